"""Instructions that move bits about (PTX ISA, 9.7.1 and 9.7.8)."""

from __future__ import annotations

import numpy as np

from .forms import Form, Rule, allow, same
from .types import Type, named

U32 = named("u32")


def _funnel(words: list[str], t: Type) -> Form:
    """`shf.l`: the upper half of b:a shifted left; `shf.r`: its lower half, right."""
    allow(words, "l", "r", "wrap", "clamp")

    def shift(a: np.ndarray, b: np.ndarray, n: np.ndarray) -> np.ndarray:
        by = n & np.uint32(31) if "wrap" in words else np.minimum(n, np.uint32(32))
        by = by.astype(np.uint64)
        both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        if "l" in words:
            return ((both << by) >> np.uint64(32)).astype(np.uint32)
        return (both >> by).astype(np.uint32)

    return Form((t, t, U32), t, shift)


def _insert(words: list[str], t: Type) -> Form:
    allow(words)

    def insert(a: np.ndarray, b: np.ndarray, at: np.ndarray, n: np.ndarray):
        mask = _ones(n, t) << np.minimum(at & np.uint32(255), t.bits - 1).astype(t.word)
        mask = np.where((at & np.uint32(255)) >= t.bits, t.word(0), mask)
        moved = a << np.minimum(at & np.uint32(255), t.bits - 1).astype(t.word)
        return (b & ~mask) | (moved & mask)

    return Form((t, t, U32, U32), t, insert)


def _ones(count: np.ndarray, t: Type) -> np.ndarray:
    few = np.minimum(count & np.uint32(255), t.bits)
    some = (t.word(1) << np.minimum(few, t.bits - 1).astype(t.word)) - t.word(1)
    return np.where(few == t.bits, ~t.word(0), some)


def _extract(words: list[str], t: Type) -> Form:
    """A field; of a signed one, the sign is its last bit, or the last that is there."""
    allow(words)

    def extract(a: np.ndarray, at: np.ndarray, n: np.ndarray) -> np.ndarray:
        at, n = np.broadcast_arrays(at & np.uint32(255), n & np.uint32(255))
        field = (a >> np.minimum(at, t.bits - 1).astype(t.numpy)).view(t.word)
        if not t.is_signed:
            field = np.where(at >= t.bits, t.word(0), field)
            return (field & _ones(n, t)).view(t.numpy)
        last = np.minimum(at.astype(np.int64) + n - 1, t.bits - 1)
        sign = (a >> np.maximum(last, 0).astype(t.numpy)) & t.numpy(1)
        fill = np.where((sign != 0) & (n > 0), ~t.word(0), t.word(0))
        room = np.minimum(n, np.maximum(t.bits - at.astype(np.int64), 0))
        mask = _ones(room.astype(np.uint32), t)
        return ((field & mask) | (fill & ~mask)).view(t.numpy)

    return Form((t, U32, U32), t, extract)


def _permute(words: list[str], t: Type) -> Form:
    """Bytes of b:a; the eighth bit of a selector repeats the sign of its byte."""
    allow(words)

    def permute(a: np.ndarray, b: np.ndarray, how: np.ndarray) -> np.ndarray:
        both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        made = np.zeros(1, np.uint64)
        for byte in range(4):
            which = (how >> np.uint32(4 * byte)).astype(np.uint64)
            one = both >> (np.uint64(8) * (which & np.uint64(7))) & np.uint64(255)
            signs = (one >> np.uint64(7)) * np.uint64(255)
            one = np.where(which & np.uint64(8), signs, one)
            made = made | one << np.uint64(8 * byte)
        return made.astype(np.uint32)

    return same(t, 3, permute)


def _logic3(words: list[str], t: Type) -> Form:
    allow(words)

    def logic(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray):
        made = np.zeros(1, t.word)
        for row in range(8):
            parts = [x if row >> k & 1 else ~x for x, k in ((a, 2), (b, 1), (c, 0))]
            chosen = np.where(table >> np.uint32(row) & np.uint32(1), ~t.word(0), 0)
            made = made | parts[0] & parts[1] & parts[2] & chosen.astype(t.word)
        return made

    return Form((t, t, t, U32), t, logic)


def _population(words: list[str], t: Type) -> Form:
    allow(words)
    return Form((t,), U32, lambda a: np.bitwise_count(a).astype(np.uint32))


def _leading_zeros(words: list[str], t: Type) -> Form:
    allow(words)

    def zeros(a: np.ndarray) -> np.ndarray:
        for by in (1, 2, 4, 8, 16, 32)[: t.bits.bit_length() - 1]:
            a = a | a >> t.word(by)
        return np.uint32(t.bits) - np.bitwise_count(a).astype(np.uint32)

    return Form((t,), U32, zeros)


def _reversed(words: list[str], t: Type) -> Form:
    allow(words)

    def turn(a: np.ndarray) -> np.ndarray:
        made = np.zeros_like(a)
        for bit in range(t.bits):
            made = made << t.word(1) | (a >> t.word(bit) & t.word(1))
        return made

    return same(t, 1, turn)


def dot(name: str, words: list[str], kinds: list[Type]) -> Form:
    """`dp4a.t.u d, a, b, c`: c and four products of bytes; `dp2a` has halves in a.

    `dp2a.lo` takes the lower two bytes of b, `dp2a.hi` the upper ones.
    """
    allow(words, "lo", "hi")
    bits, first = (16, 2 * ("hi" in words)) if name == "dp2a" else (8, 0)
    result = named("s32" if any(t.is_signed for t in kinds) else "u32")

    def total(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        made = c.view(np.uint32)
        for part in range(32 // bits):
            left = _field(a, bits * part, bits, kinds[0])
            right = _field(b, 8 * (first + part), 8, kinds[1])
            made = made + left * right
        return made.view(result.numpy)

    return Form((named("b32"), named("b32"), result), result, total)


def _field(word: np.ndarray, at: int, bits: int, kind: Type) -> np.ndarray:
    """Some bits of words as numbers of a type, in the 32 bits of u32."""
    part = (word >> np.uint32(at)).astype(f"u{bits // 8}")
    if kind.is_signed:
        return part.view(f"i{bits // 8}").astype(np.int32).view(np.uint32)
    return part.astype(np.uint32)


RULES: dict[str, Rule] = {
    "shf": _funnel,
    "bfi": _insert,
    "bfe": _extract,
    "prmt": _permute,
    "lop3": _logic3,
    "popc": _population,
    "clz": _leading_zeros,
    "brev": _reversed,
}
