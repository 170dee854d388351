"""Rotations as multiplications, for GPUs whose shift units are the bottleneck.

The two halves of the 64-bit product `x * 2^n` contain the bits of `x` rotated by `n`;
their `or` merges into the following exclusive or, which takes three operands. On NVIDIA
GPUs shifts and logic share one unit, and multiplications use another, which otherwise
only adds. In a round of Threefry (add, rotate, xor) the first does two thirds.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tensorlang.ir.dtypes import u32
from tensorlang.ir.nodes import Call, Const, Node
from tensorlang.ir.visit import nodes_of

# Share of rotations. Of Threefry's 68 operations per word 45 are shifts, logic and sums
# of three, 23 other additions. A wide product occupies its unit as long as an addition
# or twice as long, which is not published: with 9 of 20 rotations the units have 36,
# and 32 or 41, to do.
_SHARE: Final = 0.45
_FEW: Final = 8  # rotations: fewer are not worth it


def products(body: Node) -> frozenset[int]:
    """The rotation amounts to implement as products: the first that `_SHARE` allows."""
    found = filter(_is_plain, nodes_of(body, Call))
    counts = Counter(int(node.args[1].value) for node in found)  # type: ignore[attr-defined]
    total, taken = counts.total(), 0
    made: set[int] = set()
    for by, count in counts.items() if total >= _FEW else ():
        if taken + count <= _SHARE * total:
            taken += count
            made.add(by)
    return frozenset(made)


def _is_plain(call: Call) -> bool:
    """Whether a call rotates a 32-bit word by a constant."""
    by = call.args[1] if call.name == "rotl" and call.dtype == u32 else None
    return isinstance(by, Const) and 0 < int(by.value) < 32
