"""Integer and logical instructions (PTX ISA, 9.7.1, 9.7.2 and 9.7.8)."""

from __future__ import annotations

import numpy as np

from .forms import Form, Rule, allow, same
from .types import Type, named

U32 = named("u32")


def _add(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 2, np.add)


def _sub(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 2, np.subtract)


def _mul(words: list[str], t: Type) -> Form:
    allow(words, "lo", "hi", "wide")
    if "wide" in words:
        wide = t.wider
        return Form((t, t), wide, lambda a, b: _times(a, b, wide))
    return same(t, 2, high if "hi" in words else np.multiply)


def _mad(words: list[str], t: Type) -> Form:
    product = _mul(words, t)
    into = product.result
    return Form((t, t, into), into, lambda a, b, c: product.function(a, b) + c)


def _times(a: np.ndarray, b: np.ndarray, wide: Type) -> np.ndarray:
    return a.astype(wide.numpy) * b.astype(wide.numpy)


def high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of a product."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
    top = _unsigned_high(a.view(np.uint64), b.view(np.uint64))
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        top = top - np.where(a < 0, b.view(np.uint64), zero)
        top = top - np.where(b < 0, a.view(np.uint64), zero)
    return top.view(a.dtype)


def _unsigned_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    al, ah, bl, bh = a & low, a >> half, b & low, b >> half
    middle = ah * bl + (al * bl >> half)
    other = al * bh + (middle & low)
    return ah * bh + (middle >> half) + (other >> half)


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero; all ones where the divisor is 0, as the ISA leaves it open."""
    one = b.dtype.type(1)
    by = np.where(b == 0, one, b)
    down = a // by
    rest = a - down * by
    made = down + ((rest != 0) & ((a < 0) != (by < 0))).astype(a.dtype)
    return np.where(b == 0, ~np.zeros_like(made), made)


def _div(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 2, quotient)


def _rem(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 2, lambda a, b: np.where(b == 0, a, a - quotient(a, b) * b))


def _abs(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 1, np.abs)


def _neg(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 1, np.negative)


def _least(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 2, np.minimum)


def _most(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 2, np.maximum)


def _sad(words: list[str], t: Type) -> Form:
    allow(words)
    return same(t, 3, lambda a, b, c: c + np.where(a < b, b - a, a - b))


def _shift(words: list[str], t: Type, *, left: bool) -> Form:
    """By more than the width, everything goes; a sign stays."""
    allow(words)
    bits = t.bits

    def shift(a: np.ndarray, n: np.ndarray) -> np.ndarray:
        if t.is_signed:
            return a >> np.minimum(n, np.uint32(bits - 1)).astype(t.numpy)
        by = np.minimum(n, np.uint32(bits - 1)).astype(t.numpy)
        moved = a << by if left else a >> by
        return np.where(n >= bits, t.numpy(0), moved)

    return Form((t, U32), t, shift)


def _logic(function: np.ufunc, count: int = 2) -> Rule:
    def rule(words: list[str], t: Type) -> Form:
        allow(words)
        return same(t, count, function)

    return rule


RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "mad": _mad,
    "div": _div,
    "rem": _rem,
    "abs": _abs,
    "neg": _neg,
    "min": _least,
    "max": _most,
    "sad": _sad,
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _logic(np.invert, 1),
    "shl": lambda words, t: _shift(words, t, left=True),
    "shr": lambda words, t: _shift(words, t, left=False),
}
