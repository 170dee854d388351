"""What the rules of instructions of a warp, and of pipelines, protect from."""

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
    "each lane reduces its own elements of the instruction": Broken(
        tile(row="15 - vi"), _TENSORIZE
    ),
    "all lanes of a warp reach its instruction": Broken(
        tile(where=", where=p * 8 + t // 4 < 10"), _TENSORIZE
    ),
    "a stage is filled before it is used, and by nothing else": Broken(
        """
def twice(a: f32[8, 4], b: f32[8, 4], y: Out[f32[8, 4]], z: Out[f32[8, 4]]):
    for k in range(8):
        t = alloc(f32[4])
        for i in range(4):
            with block("t", vk=spatial(8, k), vi=spatial(4, i)):
                t[vi] = a[vk, vi]
        for j in range(4):
            with block("y", wk=spatial(8, k), vj=spatial(4, j)):
                y[wk, vj] = t[vj]
        for p in range(4):
            with block("again", uk=spatial(8, k), vp=spatial(4, p)):
                t[vp] = b[uk, vp]
        for q in range(4):
            with block("z", xk=spatial(8, k), vq=spatial(4, q)):
                z[xk, vq] = t[vq]
""",
        step("double_buffer", "k"),
    ),
    "a stage is spatial or reduced in a block": Broken(
        """
def sums(x: f32[3, 4], y: Out[f32[3]]):
    for f in range(12):
        t = alloc(f32[1])
        with block("t", vf=spatial(12, f)):
            t[0] = x[vf // 4, vf % 4]
        for j in range(1):
            with block("y", vi=spatial(3, f // 4), vk=reduction(4, f % 4)):
                reduce(sum, y[vi], t[0])
""",
        step("pipeline", "f", 3),
    ),
    "iterations of a pipelined loop run in order": Broken(
        """
def rows(a: f32[8, 4], y: Out[f32[8, 4]]):
    for k in parallel(8):
        t = alloc(f32[4])
        for i in range(4):
            with block("t", vk=spatial(8, k), vi=spatial(4, i)):
                t[vi] = a[vk, vi]
        for j in range(4):
            with block("y", wk=spatial(8, k), vj=spatial(4, j)):
                y[wk, vj] = t[vj] * 2.0
""",
        step("double_buffer", "k"),
    ),
}
