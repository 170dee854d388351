"""What the rules of instructions of a warp protect from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorlang_test_programs.broken import Broken, step


def tile(row: str = "vi", where: str = "") -> str:
    """One warp that multiplies 16 by 16 by 16, reading a at `row`."""
    return f"""
def product(a: bf16[16, 16], b: bf16[16, 16], c: InOut[f32[16, 16]]):
    for t in bound(32, "thread.x"):
        for p in range(2):
            for q in range(2):
                for e in range(2):
                    for k in range(16):
                        with block("c", vi=spatial(16, p * 8 + t // 4),
                                   vj=spatial(16, q * 8 + t % 4 * 2 + e),
                                   vk=reduction(16, k){where}):
                            with init():
                                pass
                            reduce(sum, c[vi, vj],
                                   cast(f32, a[{row}, vk]) * cast(f32, b[vj, vk]))
"""


_TENSORIZE: Final = step("tensorize", "p", "mma_m16n16k16_bf16")
BROKEN_WARPS: Final[Mapping[str, Broken]] = {
    "each lane folds what is its own in the instruction": Broken(
        tile(row="15 - vi"), _TENSORIZE
    ),
    "all lanes of a warp come to its instruction": Broken(
        tile(where=", where=p * 8 + t // 4 < 10"), _TENSORIZE
    ),
}
