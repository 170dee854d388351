"""Bytes that a loop nest moves between caches, from sizes alone.

A nest is a tile, of which each operand reads a block, inside loops over blocks. An
operand that a loop does not index is read again in each iteration: from the cache, if
all that one iteration touches fits. (Wolf and Lam, "A data locality optimizing
algorithm", 1991; Low et al., "Analytical modeling is enough for high-performance BLIS",
2016.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.machine import Cache
from tensorlang.schedules.cost.core import PAGE, Level

_KEPT: Final = 0.9  # of a cache: what is prefetched and written takes the rest
_OVER: Final = 4.0  # a cache that is over this by a third keeps nothing

Loops: TypeAlias = tuple[tuple[str, float], ...]
"""Dimensions and numbers of iterations, outermost first."""


@frozen
class Operand:
    """An array in a nest."""

    dims: str  # dimensions that index it, a letter each
    run: str  # dimension along which it is contiguous
    pitch: int  # bytes from one run to the next; 0 if runs follow each other
    bytes: int  # bytes of an element
    moves: int = 1  # how often each byte is moved: 2 if it is read and written
    # number of loops outside of the place where it is made: it is read from the caches
    # that it was written to. 0 for an operand of the nest
    inside: int = 0

    def size(self, block: Mapping[str, float], cache: Cache) -> float:
        """Bytes of a block, in whole lines of a cache."""
        size = block[self.run] * self.bytes
        if self.pitch > size:
            size = min(-(-size // cache.line) * cache.line, self.pitch)
        for dim in self.dims:
            if dim != self.run:
                size *= block[dim]
        return size

    def held(self, block: Mapping[str, float], cache: Cache) -> float:
        """Bytes of a cache that a block occupies: more where runs share few sets."""
        size = self.size(block, cache)
        if not self.pitch or not cache.ways:
            return size
        run = max(block[self.run] * self.bytes, cache.line)
        if self.pitch <= run:
            return size
        period = period_of(cache)
        used = places(self.pitch, period) * run
        return size * max(period / used, 1.0)


def period_of(cache: Cache) -> int:
    """Bytes after which addresses certainly share the sets of a cache."""
    return min(cache.bytes // max(cache.ways, 1), PAGE)


def places(pitch: int, period: int) -> int:
    """The number of different places in a period where runs at a pitch begin."""
    return period // gcd(pitch, period)


def missed(needed: float, capacity: float) -> float:
    """The share of what is used again that a cache no longer holds."""
    return (
        min(max(_OVER * (1.0 - _KEPT * capacity / needed), 0.0), 1.0) if needed else 0.0
    )


def held(
    operands: Sequence[Operand], block: Mapping[str, float], levels: Sequence[Level]
) -> list[float]:
    """Bytes of each cache that a block of each operand occupies."""
    return [needed[0] for _, needed in _needed((), block, operands, levels)]


def moved(
    loops: Loops,
    tile: Mapping[str, float],
    operands: Sequence[Operand],
    levels: Sequence[Level],
) -> list[list[float]]:
    """Bytes of each operand that come into each cache in one of many runs of a nest."""
    found = _needed(loops, tile, operands, levels)
    return [
        _missing(loops, operands, *each, level.capacity)
        for each, level in zip(found, levels, strict=True)
    ]


def _needed(
    loops: Loops,
    tile: Mapping[str, float],
    operands: Sequence[Operand],
    levels: Sequence[Level],
) -> Iterator[tuple[list[float], list[float]]]:
    """For each cache the bytes of each operand's tile, and those of it that loops need.

    Caches that place lines alike need the same.
    """
    known: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    for level in levels:
        alike = level.cache.line, level.cache.ways and period_of(level.cache)
        if alike not in known:
            known[alike] = _occupied(loops, tile, operands, level.cache)
        yield known[alike]


def _occupied(
    loops: Loops, tile: Mapping[str, float], operands: Sequence[Operand], cache: Cache
) -> tuple[list[float], list[float]]:
    """Bytes of each operand's tile, and of a cache in all loops, in fewer, in none."""
    block = dict(tile)
    sizes = [operand.size(block, cache) * operand.moves for operand in operands]
    occupied = [operand.held(block, cache) for operand in operands]
    needed = [sum(occupied)]
    for dim, trips in reversed(loops):
        block[dim] *= trips
        for n, operand in enumerate(operands):
            if dim in operand.dims:
                occupied[n] = operand.held(block, cache)
        needed.append(sum(occupied))
    return sizes, needed[::-1]


def _missing(
    loops: Loops,
    operands: Sequence[Operand],
    tiles: Sequence[float],
    needed: Sequence[float],
    capacity: float,
) -> list[float]:
    """Bytes of each operand that come into a cache, from what loops need of it."""
    if needed[0] <= capacity:
        return [0.0] * len(operands)
    sizes = list(tiles)
    for depth in range(len(loops), 0, -1):
        gone = missed(needed[depth], capacity)
        dim, trips = loops[depth - 1]
        for n, operand in enumerate(operands):
            if operand.inside == depth:
                sizes[n] *= gone
            sizes[n] *= trips if dim in operand.dims else 1.0 + (trips - 1.0) * gone
    gone = missed(needed[0], capacity)
    return [
        size if operand.inside else size * gone
        for size, operand in zip(sizes, operands, strict=True)
    ]
