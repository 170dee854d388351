"""The hash functions of keys: Threefry and Philox, in every published size.

The code is generic over words: the same lines build IR expressions and compute on NumPy
arrays. Sources: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
3" (SC 2011), and the Random123 library, whose known answers are in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from operator import add, xor
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen

# (words, bits) -> the rotations of each round, with a period of eight rounds
ROTATIONS: Final[dict[tuple[int, int], tuple[tuple[int, ...], ...]]] = {
    (2, 32): ((13,), (15,), (26,), (6,), (17,), (29,), (16,), (24,)),
    (2, 64): ((16,), (42,), (12,), (31,), (16,), (32,), (24,), (21,)),
    (4, 32): (
        *((10, 26), (11, 21), (13, 27), (23, 5)),
        *((6, 20), (17, 11), (25, 10), (18, 20)),
    ),
    (4, 64): (
        *((14, 16), (52, 57), (23, 40), (5, 37)),
        *((25, 33), (46, 12), (58, 22), (32, 32)),
    ),
}
PARITY: Final = {32: 0x1BD11BDA, 64: 0x1BD11BDAA9FC1A22}

# (words, bits) -> the multipliers of a Philox round
MULTIPLIERS: Final[dict[tuple[int, int], tuple[int, ...]]] = {
    (2, 32): (0xD256D193,),
    (4, 32): (0xD2511F53, 0xCD9E8D57),
    (2, 64): (0xD2B74407B1CE6E93,),
    (4, 64): (0xD2E7470EE14C6C93, 0xCA5A826395121157),
}
WEYL: Final = {
    32: (0x9E3779B9, 0xBB67AE85),
    64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}

# (family, words) -> (default rounds, maximum rounds in Random123)
_ROUNDS: Final = {
    ("threefry", 2): (20, 32),
    ("threefry", 4): (20, 72),
    ("philox", 2): (10, 16),
    ("philox", 4): (10, 16),
}
_NAME: Final = re.compile(r"(threefry|philox)([24])x(32|64)(?:-([0-9]{1,3}))?")

W = TypeVar("W")


class Arithmetic(Protocol[W]):
    """Operations on words other than `+`, `*` and `^`, which wrap."""

    def constant(self, value: int) -> W:
        """The word `value`."""
        ...

    def rotate(self, word: W, by: int) -> W:
        """`word` rotated left by `by` bits."""
        ...

    def high(self, a: W, b: W) -> W:
        """The upper half of the double-width product."""
        ...

    def named(self, name: str, word: W) -> W:
        """`word`, which has this name in the text of kernels."""
        ...


@frozen
class Impl:
    """A hash function: its family, size and number of rounds.

    A key has `key_words` words of `bits` bits; a counter and an output have `words`.
    """

    family: str
    words: int
    bits: int
    rounds: int

    @property
    def name(self) -> str:
        """The canonical name, with a suffix for other than the default rounds."""
        usual = _ROUNDS[self.family, self.words][0]
        suffix = "" if self.rounds == usual else f"-{self.rounds}"
        return f"{self.family}{self.words}x{self.bits}{suffix}"

    @property
    def key_words(self) -> int:
        """The number of words of a key."""
        return self.words if self.family == "threefry" else self.words // 2

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type of one word."""
        return np.dtype(np.uint32 if self.bits == 32 else np.uint64)

    def __str__(self) -> str:
        return self.name


@cache
def impl(name: str) -> Impl:
    """The hash of that name, such as `threefry2x32`, `threefry4x64-13`, `philox4x32`.

    Raises:
        ArgumentError: the name or its number of rounds is not defined.
    """
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ArgumentError(
            f"{name!r} is no random implementation; use threefry or philox with 2x32, "
            "2x64, 4x32 or 4x64 and perhaps rounds, such as 'threefry2x32-13'"
        )
    family, words, bits = match[1], int(match[2]), int(match[3])
    usual, most = _ROUNDS[family, words]
    rounds = usual if match[4] is None else int(match[4])
    if not 1 <= rounds <= most:
        raise ArgumentError(
            f"{family}{words}x{bits} is defined for 1 to {most} rounds, not {rounds}"
        )
    return Impl(family, words, bits, rounds)


def elements_per_hash(how: Impl, stream: str, width: int) -> int:
    """The number of `width`-bit elements of a stream per hash."""
    return 1 if stream == "jax" else how.words * how.bits // width


def hash_words(
    how: Impl, counter: Sequence[W], key: Sequence[W], arithmetic: Arithmetic[W]
) -> tuple[W, ...]:
    """The output words H(key, counter) of the hash, generic over the word type."""
    rounds = _threefry if how.family == "threefry" else _philox
    return tuple(rounds(how, list(counter), list(key), arithmetic))


def _threefry(
    how: Impl, counter: list[Any], key: list[Any], arithmetic: Arithmetic[Any]
) -> list[Any]:
    def named(letter: str, values: Iterable[Any], after: str = "") -> list[Any]:
        return [
            arithmetic.named(f"{letter}{n}{after}", value)
            for n, value in enumerate(values)
        ]

    parity = arithmetic.constant(PARITY[how.bits])
    schedule = named("k", [*key, reduce(xor, key, parity)])
    x = named("x", map(add, counter, schedule))
    for number in range(1, how.rounds + 1):
        row = ROTATIONS[how.words, how.bits][(number - 1) % 8]
        # four words mix (0, 1) and (2, 3), then (0, 3) and (2, 1), alternately
        partners = (1, 3) if how.words == 2 or number % 2 else (3, 1)
        for left, right, by in zip((0, 2), partners, row, strict=False):
            sum_ = arithmetic.named(f"x{left}_r{number}", x[left] + x[right])
            mixed = arithmetic.rotate(x[right], by) ^ sum_
            x[left], x[right] = sum_, arithmetic.named(f"x{right}_r{number}", mixed)
        if number % 4 == 0:  # inject the key
            step = number // 4
            words = [schedule[(step + i) % len(schedule)] for i in range(len(x))]
            words[-1] = words[-1] + arithmetic.constant(step)
            x = named("x", map(add, x, words), f"_k{step}")
    return x


def _philox(
    how: Impl, x: list[Any], key: list[Any], arithmetic: Arithmetic[Any]
) -> list[object]:
    factors = [arithmetic.constant(m) for m in MULTIPLIERS[how.words, how.bits]]
    for number in range(how.rounds):
        if number:
            bumps = WEYL[how.bits]
            key = [k + arithmetic.constant(w) for k, w in zip(key, bumps, strict=False)]
        key = [arithmetic.named(f"k{n}_r{number + 1}", k) for n, k in enumerate(key)]
        low = [x[2 * i] * m for i, m in enumerate(factors)]
        high = [arithmetic.high(x[2 * i], m) for i, m in enumerate(factors)]
        if how.words == 2:
            x = [high[0] ^ key[0] ^ x[1], low[0]]
        else:
            x = [high[1] ^ x[1] ^ key[0], low[1], high[0] ^ x[3] ^ key[1], low[0]]
        x = [arithmetic.named(f"x{n}_r{number + 1}", word) for n, word in enumerate(x)]
    return x


@frozen
class NumpyArithmetic:
    """A hash's arithmetic on arrays of unsigned integers: for seeds and tests."""

    bits: int

    def constant(self, value: int) -> Any:
        """The word as a 1-element array, so that arithmetic wraps silently."""
        return np.array([value], dtype=f"u{self.bits // 8}")

    def rotate(self, word: object, by: int) -> Any:
        """`word` rotated left."""
        left, right = self.constant(by), self.constant(self.bits - by)
        return (word << left) | (word >> right)

    def named(self, name: str, word: object) -> object:  # noqa: ARG002
        """`word`: an array has no name."""
        return word

    def high(self, a: Any, b: Any) -> Any:
        """The upper half of the product; 64-bit words via exact Python integers."""
        if self.bits == 32:
            product = a.astype(np.uint64) * b.astype(np.uint64)
            return (product >> np.uint64(32)).astype(np.uint32)
        wide = a.astype(object) * b.astype(object)
        return (wide >> 64).astype(np.uint64)


def hash_numpy(
    how: Impl, counter: Sequence[object], key: Sequence[object]
) -> list[Any]:
    """H(key, counter) on NumPy arrays or Python integers; each result is an array."""
    arithmetic = NumpyArithmetic(how.bits)

    def words(values: Sequence[object]) -> list[Any]:
        return [np.atleast_1d(np.asarray(v, dtype=how.dtype)) for v in values]

    return list(hash_words(how, words(counter), words(key), arithmetic))
