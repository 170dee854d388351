"""Stream layouts: from the words of hashes to elements.

`jax`: element i is H(key, i), its words combined into one (JAX's partitionable layout).
`packed`: the words of H(key, 0), H(key, 1), ... in order, none discarded; two words
make a 64-bit element, first word high, and narrow elements take a word's low bits
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ir.natives import mulhi, rotl
from tensorlang.ops.random.impls import Impl, hash_words

UNSIGNED: Final[dict[int, ir.DType]] = {8: ir.u8, 16: ir.u16, 32: ir.u32, 64: ir.u64}


@frozen
class ExprArithmetic:
    """A hash's arithmetic as IR expressions."""

    dtype: ir.DType

    def constant(self, value: int) -> ir.Expr:
        """The word as a literal."""
        return ir.Const(value, self.dtype)

    def rotate(self, word: ir.Expr, by: int) -> ir.Expr:
        """`word` rotated left."""
        return rotl(word, ir.Const(by, self.dtype))

    def high(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """The upper half of the product."""
        return mulhi(a, b)

    def named(self, name: str, word: ir.Expr) -> ir.Expr:
        """`word`, bound to the name if it is used more than once."""
        return ir.named(name, word, always=False)


def hash_exprs(
    how: Impl, counter: Sequence[ir.Expr], key: Sequence[ir.Expr]
) -> tuple[ir.Expr, ...]:
    """The words of H(key, counter)."""
    return hash_words(how, counter, key, ExprArithmetic(UNSIGNED[how.bits]))


def draw_counter(how: Impl, high: ir.Expr, low: ir.Expr) -> tuple[ir.Expr, ...]:
    """The counter words of element `(high, low)` of a stream."""
    return (high, low, *_zeros(how))


def split_counter(how: Impl, high: ir.Expr, low: ir.Expr) -> tuple[ir.Expr, ...]:
    """The counter words of child key `(high, low)`, disjoint from those of draws.

    Two-word hashes use the same counters for both, as JAX does: a key that was split
    must not be drawn from, which key states ensure.
    """
    return (*_zeros(how), high, low)


def _zeros(how: Impl) -> tuple[ir.Expr, ...]:
    return (ir.Const(0, UNSIGNED[how.bits]),) * (how.words - 2)


def folded(how: Impl, words: Sequence[ir.Expr], width: int) -> ir.Expr:
    """The `width`-bit element of the `jax` stream, from the words of one hash.

    (For 64 bits, JAX combines all four words of Threefry, but uses two of Philox.)
    """
    if width == 64 and how.bits == 32:
        used = words if how.family == "threefry" else words[:2]
        return _joined(_xor(used[0::2]), _xor(used[1::2]))
    return _xor(words).cast(UNSIGNED[width])


def pieces(how: Impl, words: Sequence[ir.Expr], width: int) -> list[ir.Expr]:
    """The `width`-bit elements of the `packed` stream in the words of one hash."""
    if width > how.bits:
        pairs = zip(words[0::2], words[1::2], strict=True)
        return [_joined(first, second) for first, second in pairs]
    steps = range(0, how.bits, width)
    return [
        (word >> at if at else word).cast(UNSIGNED[width])
        for word in words
        for at in steps
    ]


def _xor(words: Sequence[ir.Expr]) -> ir.Expr:
    return reduce(lambda a, b: a ^ b, words)


def _joined(first: ir.Expr, second: ir.Expr) -> ir.Expr:
    return (first.cast(ir.u64) << 32) | second.cast(ir.u64)
