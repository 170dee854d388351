"""Special values that expose kernel errors, and arrays filled with them.

*Plain* values are random. *Mild* ones, such as 0, -0, 1, ties and subnormals, may occur
in any number. *Wild* ones, such as infinities and NaNs, hide all others in a reduction,
so it gets one at a time. *Huge* numbers overflow in one order of a reduction and not in
another: one array alone gets one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from tensorlang.frozen import frozen
from tensorlang.ops.spec.examples import Fill, Input, plain
from tensorlang.runtime.arrays.host_arrays import Array

# decision values by dtype
Constants: TypeAlias = Mapping[np.dtype, tuple[Any, ...]]

SEED: Final = 1
RANDOM: Final = ("random values", plain(SEED))
MILD: Final = 16.0  # the largest mild magnitude
# fraction of a type's largest exponent from which numbers are huge
_HUGE: Final = 1 / 4
# fractions of the largest exponent whose small multiples avoid it
_EXPONENTS: Final = (-0.9, -0.6, -0.3, -0.1, 0.1, 0.2, 0.28, 0.38, 0.7, 0.9)
_NUMBERS: Final = (0.0, 1.0, 0.5, 2.0, 3.0, 17.0, 88.75, 104.0, 127.5, 1000.0, 30000.0)
_FEW_RESULTS: Final = 64
_ONES: Final = 1 / 2  # terms that are not 0, as a fraction of 1 / epsilon
_FEW: Final = 4  # rotations of mild values in which each is among others


@frozen
class Special:
    """The special values of an input; for integers, all are both mild and wild."""

    mild: Array
    wild: Array
    huge: Array


@frozen
class Pool:
    """The special values for filling arrays."""

    # values that the reference or a candidate compares with, and their neighbours
    constants: Constants = field(default_factory=dict)
    least: float = 0.0  # minimum magnitude of the other numbers, apart from 0
    most: float = math.inf  # maximum magnitude; infinities and NaNs are always included

    def of(self, given: Input) -> Special:
        """The special values of an input."""
        own = np.array(self.constants.get(given.dtype, ()), given.dtype)
        if given.limits is not None:
            values = _whole(given, own.tolist())
            return Special(values, values, values[:0])
        values = np.concatenate([own, _floats(given.dtype)])
        with np.errstate(invalid="ignore"):  # signalling NaNs are invalid
            sizes = np.abs(values.astype(np.float64))
        finite, edge = np.isfinite(sizes), _edge(given.dtype)
        kept = (sizes == 0) | ((sizes >= self.least) & (sizes <= self.most))
        kept[: len(own)] = True
        mild = sizes <= min(MILD, edge)
        return Special(
            values[finite & kept & mild],
            values[~finite | (kept & ~mild & (sizes <= edge))],
            values[finite & kept & ~mild & (sizes > edge)],
        )


def _edge(dtype: np.dtype) -> float:
    """The magnitude from which numbers of a type are huge."""
    return math.ldexp(1.0, int(int(ml_dtypes.finfo(dtype).maxexp) * _HUGE))


def _floats(dtype: np.dtype) -> Array:
    """Special numbers of a float type, from those next to 0 to its NaNs."""
    info = ml_dtypes.finfo(dtype)
    least, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    most, eps = float(info.max), float(info.eps)
    edges = (1 + eps, 1 - eps / 2, eps, least, normal - least, normal, most, np.inf)
    spread = (1.375 * 2.0 ** int(e * int(info.maxexp)) for e in _EXPONENTS)
    numbers = [s for size in (*_NUMBERS, *edges, *spread) for s in (size, -size)]
    return np.concatenate([np.array(numbers).astype(dtype), _nans(dtype)])


def _nans(dtype: np.dtype) -> Array:
    """Quiet and signalling NaNs of either sign, with short and long payloads."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = int(np.array(np.inf, dtype).view(unsigned))
    quiet = 1 << (int(ml_dtypes.finfo(dtype).nmant) - 1)
    sign = 1 << (8 * dtype.itemsize - 1)
    payloads = (quiet, sign | quiet, quiet | 1, sign | (2 * quiet - 1), 1, sign | 1)
    return np.array([bits | payload for payload in payloads], unsigned).view(dtype)


def _whole(given: Input, own: Iterable[int]) -> Array:
    """Special numbers of an integer type, within an input's range."""
    assert given.limits is not None
    low, high = given.limits
    steps = (8, 16, 32, 64) if given.dtype.kind != "b" else ()
    powers = [(1 << bits) + d for bits in steps for d in (-1, 0, 1)]
    powers += [p // 2 for p in powers]
    ends = [low, low + 1, (low + high) // 2, high - 1, high]
    every = dict.fromkeys([0, 1, -1, 2, -2, 3, 7, 100, -100, *ends, *powers, *own])
    taken = [n for n in every if low <= n <= high and (n or not given.nonzero)]
    return np.array(taken, given.dtype)


def rotated(pool: Pool, turn: int, *, wild: bool, all_of: bool = True) -> Fill:
    """Consecutive special values, rotated so that over all turns each is everywhere.

    Across several arrays, each pair of values coincides in some turn. With `all_of`
    false only every other element is special: a reduction then has plain values too,
    which are not hidden when special ones cancel.
    """

    def made(number: int, given: Input, array: Array) -> Array:
        special = pool.of(given)
        values = special.mild
        if wild and given.limits is None:
            values = np.concatenate([values, special.wild, special.huge])
        place = np.arange(array.size).reshape(array.shape)
        step = place if all_of else place // 2
        run = step // len(values)
        chosen = values[(step + (number + 1) * (turn + run)) % len(values)]
        return np.where(all_of | ((place + run + turn) % 2 == 0), chosen, array)

    return _over_plain(turn, made)


def sparse(
    pool: Pool, turn: int, count: int, *, every: bool = False, side: int = 0
) -> Fill:
    """Plain values with `count` wild ones in each array, or with every kind.

    First and last elements are included in turn; several arrays get different values.
    Plain values are negative for a `side` of -1, positive for 1.
    """

    def made(number: int, given: Input, array: Array) -> Array:
        special = pool.of(given)
        values = special.wild
        if given.limits is None:
            if every:
                values = np.concatenate([special.mild, special.wild, special.huge])
            if side:
                array = np.copysign(array, np.array(side, array.dtype))
        return _placed(array, values, turn + number, count)

    return _over_plain(turn, made)


def single_huge(pool: Pool, turn: int) -> Fill:
    """Plain values, with one huge number in one of the arrays."""

    def made(number: int, given: Input, array: Array) -> Array:
        values = pool.of(given).huge
        own = turn // len(values) == number if len(values) else False
        return _placed(array, values, turn, 1) if own else array

    return _over_plain(turn, made)


def _placed(array: Array, values: Array, turn: int, count: int) -> Array:
    """The array with some of the values at distinct positions."""
    if not len(values) or not array.size:
        return array
    generator = np.random.default_rng((SEED, turn))
    places = generator.choice(array.size, min(count, array.size), replace=False)
    ends = (0, array.size - 1)
    if len(places) > len(ends):
        places[:2] = ends
    elif turn % 3 < len(ends):
        places[0] = ends[turn % 3]
    array.reshape(-1)[places] = values[(turn + np.arange(len(places))) % len(values)]
    return array


def _over_plain(turn: int, made: Callable[[int, Input, Array], Array]) -> Fill:
    """Arrays derived from plain ones, by their index."""

    def fill(given: Sequence[Input]) -> list[Array]:
        arrays = zip(given, plain(SEED + turn)(given), strict=True)
        return [made(number, *one) for number, one in enumerate(arrays)]

    return fill


def constant(value: float) -> Fill:
    """The same number everywhere, or the nearest that an input accepts."""

    def made(given: Input) -> Array:
        number = value
        if given.limits is not None:
            low, high = given.limits
            number = min(max(int(value), low, int(given.nonzero)), high)
        return np.full(given.shape, number, given.dtype)

    return lambda given: list(map(made, given))


def extremes(inputs: Sequence[Input]) -> Iterator[tuple[str, Fill]]:
    """Each integer array filled with its smallest or largest number, in turn.

    Sums of these, or of products of them, have the largest magnitude.
    """
    whole = [n for n, each in enumerate(inputs) if each.limits is not None]
    turns = ("0", "1") if len(whole) == 1 else ("00", "11", "01", "10")
    for turn in turns if whole else ():

        def made(number: int, given: Input, array: Array, turn: str = turn) -> Array:
            if given.limits is None:
                return array
            largest = turn[whole.index(number) % len(turn)] == "1"
            low, high = given.limits
            low = low or int(given.nonzero)
            return np.full(given.shape, high if largest else low, given.dtype)

        named = ", ".join("largest" if each == "1" else "smallest" for each in turn)
        yield f"{named} integers", _over_plain(0, made)


def ties(*values: float) -> Fill:
    """A few numbers in random order, so that many are equal."""

    def made(number: int, given: Input, array: Array) -> Array:
        held = [constant(value)([given])[0].reshape(-1)[:1] for value in values]
        chosen = np.random.default_rng((SEED, number)).integers(
            len(values), size=array.shape
        )
        return np.concatenate(held)[chosen] if array.size else array

    return _over_plain(0, made)


def ramp(step: int, *, exact: bool) -> Fill:
    """Numbers counting up or, with a step of -1, down.

    For exact results each element is its own index, as far as the type allows; other
    floats are from -4 to 4, whose sums do not cancel entirely.
    """

    def made(given: Input) -> Array:
        count = np.arange(prod(given.shape))[::step].reshape(given.shape)
        if given.limits is None:
            scaled = count if exact else count * (8 / max(count.size, 1)) - 4
            return scaled.astype(given.dtype)
        low, high = given.limits
        start = min(max(low, int(given.nonzero)), high)
        start = max(start, min(0, high))
        count %= min(high - start + 1, count.size + 1)
        return (start + count).astype(given.dtype)

    return lambda given: list(map(made, given))


def few_ones(terms: int, epsilon: float) -> Iterator[tuple[str, Fill]]:
    """Some ones and negative ones among zeros, whose sums are exact in any order.

    Of so many terms some are not 0: where they are elements, then where they are
    products of two. Their sum is exact in a type of the epsilon. Few are negative, as
    several lost ones would cancel.
    """
    most = min(_ONES / (epsilon * max(terms, 1)), 1.0)
    for share in dict.fromkeys((most, math.sqrt(most))):

        def made(
            number: int, given: Input, array: Array, share: float = share
        ) -> Array:
            if given.limits is not None:
                return array
            dice = np.random.default_rng((SEED, number)).random(array.shape)
            ones = np.where(dice < share / 4, -1.0, 1.0)
            return np.where(dice < share, ones, 0.0).astype(array.dtype)

        yield f"zeros but for {share:.2g} of the values", _over_plain(0, made)


def fills(
    pool: Pool, inputs: Sequence[Input], *, pointwise: bool, exact: bool
) -> Iterator[tuple[str, Fill]]:
    """The fills of a small case, with descriptions.

    Args:
        pool: The special values.
        inputs: The inputs to fill.
        pointwise: Whether no result depends on two elements of an array.
        exact: Whether results must match to the bit.
    """
    yield RANDOM
    yield "zeros", constant(0)
    yield "equal values", constant(1.5)
    yield "zeros and ones", ties(0.0, -0.0, 1.0)
    yield "zeros and negative ones", ties(0.0, -0.0, -1.0)
    yield "increasing values", ramp(1, exact=exact)
    yield "decreasing values", ramp(-1, exact=exact)
    specials = [pool.of(each) for each in inputs]
    mild = max((len(each.mild) for each in specials), default=0)
    wild = max((len(each.wild) for each in specials), default=0)
    huge = max((len(each.huge) for each in specials), default=0)
    for turn in range(mild + wild + huge if pointwise else _FEW):
        every = pointwise or (exact and turn % 2 == 1)
        special = rotated(pool, turn, wild=every, all_of=every)
        yield f"special values, rotation {turn}", special
    if pointwise:
        return
    yield from extremes(inputs)
    count = mild + wild + huge
    for turn in range(
        2 * count if exact else 0
    ):  # the largest, then the smallest of all
        special = sparse(pool, turn, 3, every=True, side=-1 if turn < count else 1)
        yield f"few special values, rotation {turn}", special
    for turn in range(0 if exact else wild):
        yield f"few special values, rotation {turn}", sparse(pool, turn, 1)
    for turn in range(0 if exact else huge * len(specials)):
        yield f"one huge number, turn {turn}", single_huge(pool, turn)


def large_fills(
    pool: Pool,
    inputs: Sequence[Input],
    results: int,
    *,
    pointwise: bool,
    exact: bool,
    large: bool,
) -> Iterator[tuple[str, Fill]]:
    """The fills of large arrays: as many special values at once as possible.

    Args:
        pool: The special values.
        inputs: The inputs to fill.
        results: The number of elements of the largest output.
        pointwise: Whether no result depends on two elements of an array.
        exact: Whether results must match to the bit.
        large: Whether a run is so expensive that there should be only one.
    """
    specials = [pool.of(each) for each in inputs]
    count = max((len(each.wild) + len(each.huge) for each in specials), default=0)
    if pointwise:
        mixed = rotated(pool, 0, wild=True, all_of=False)
        yield "special values among random ones", mixed
    else:
        count = max(min(2 * count, results // 8), 1)
        yield "a few special values", sparse(pool, 0, count, every=exact)
        if results < _FEW_RESULTS:
            yield RANDOM
        yield from extremes(inputs)
    if not large:
        yield "zeros", constant(0)
        yield "equal values", constant(1.5)
        mild = rotated(pool, 1, wild=False, all_of=False)
        yield "mild special values", mild
        for number, each in enumerate(() if exact else specials):
            yield "a huge number", single_huge(pool, number * len(each.huge))
