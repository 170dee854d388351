"""Which rotations of a kernel are products, on a GPU whose shifts are the bottleneck.

`x * 2^n` in 64 bits has in its two halves what a rotation by `n` has in its word: their
`or` goes into the exclusive or that follows, which takes three operands. NVIDIA's GPUs
have shifts and logic on one unit and products on another one, which else only adds: of
a round of Threefry (an addition, a rotation, an exclusive or) the first has two thirds.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tensorlang.ir.dtypes import u32
from tensorlang.ir.nodes import Call, Const, Node
from tensorlang.ir.visit import walk

_SHARE: Final = (
    0.3  # of rotations: products take at most as long then, at a quarter rate
)
_FEW: Final = 8  # rotations that nothing waits for


def products(body: Node) -> frozenset[int]:
    """By how much words are rotated where that is a product; the first that are met."""
    found = (node for node in walk(body) if isinstance(node, Call) and _is_plain(node))
    counts = Counter(int(node.args[1].value) for node in found)  # type: ignore[attr-defined]
    total, taken = counts.total(), 0
    made: set[int] = set()
    for by, count in counts.items() if total >= _FEW else ():
        if taken + count <= _SHARE * total:
            taken += count
            made.add(by)
    return frozenset(made)


def _is_plain(call: Call) -> bool:
    """Whether a call rotates a word of 32 bits by a constant."""
    by = call.args[1] if call.name == "rotl" and call.dtype == u32 else None
    return isinstance(by, Const) and 0 < int(by.value) < 32
