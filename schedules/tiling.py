"""Shared tiling steps: whole tiles and a remainder, fused loops, vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import blocks, writes
from tensorlang.ir.nodes import Expr, For
from tensorlang.schedules.stages import extent_of
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block


def is_part(name: str, prefix: str) -> bool:
    """Whether a loop has this name or was split off the loop that has."""
    return name == prefix or name.startswith(f"{prefix}_tail")


def extent(s: Schedule, name: str) -> int | None:
    """The extent of a loop, if constant."""
    return extent_of(loop_named(s, name))


def cut(s: Schedule, block: str, prefix: str, size: int) -> list[str]:
    """Partition a nest along a loop: the blocks of the whole tiles and the remainder.

    The loop moves outermost if there is a remainder. A loop shorter than a tile, or of
    unknown length, stays whole.
    """
    around = s.loops(block)
    loop = next(name for name in around if is_part(name, prefix))
    length = extent(s, loop)
    if length is None or length % size == 0 or length < size:
        return [block]
    if around[0] != loop:
        s.reorder(loop, *(name for name in around if name != loop))
    return cut_at(s, block, loop, length // size * size)


def cut_unknown(s: Schedule, block: str, prefix: str, size: int) -> tuple[str, str]:
    """Partition a loop of unknown length: whole tiles and the remainder."""
    around = s.loops(block)
    loop = next(name for name in around if is_part(name, prefix))
    whole = whole_steps(s, loop_named(s, loop).extent, size)
    if around[0] != loop:
        s.reorder(loop, *(name for name in around if name != loop))
    main, rest = cut_at(s, block, loop, whole)
    return main, rest


def cut_rows(
    s: Schedule, block: str, row: str, sizes: Sequence[int]
) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of the remainder, with the rows of a tile in each.

    A known number of rows leaves one remainder tile; otherwise the remainder is made of
    smaller tiles, so that no reduction loop contains a condition.

    Args:
        row: The loop over rows, or that from which it was split off.
        sizes: Rows of a tile, then of smaller ones; the last is 1.
    """
    tall, *smaller = sizes
    loop = next(name for name in s.loops(block) if is_part(name, row))
    if extent(s, loop) is not None:
        return [(part, tall) for part in cut(s, block, row, tall)]
    found: list[tuple[str, int]] = []
    for size in (tall, *(n for n in smaller if n < tall)):
        part = block
        if size > 1:
            part, block = cut_unknown(s, block, row, size)
        found.append((part, size))
    return found


def cut_at(s: Schedule, block: str, loop: str, at: Expr | int) -> list[str]:
    """The blocks of a loop's first `at` iterations and of all others.

    Raises:
        ScheduleError: a loop inside never runs, which leaves no blocks.
    """
    before = {b.name for b in blocks(s.function)}
    s.partition(loop, at)
    rest = [b.name for b in blocks(s.function) if b.name not in before]
    if not rest:
        raise ScheduleError(f"cutting loop {loop!r} leaves nothing to compute")
    return [block, rest[0]]


def written(s: Schedule, block: str) -> str:
    """The name of the only buffer that a block writes."""
    (buffer,) = writes(block_of(find_block(s.function, block)))
    return buffer.name


@cache
def nearest(count: int, wanted: int) -> int:
    """The divisor of a count that is nearest to what is wanted."""
    return min(divisors(count), key=lambda n: max(n / wanted, wanted / n))


def divisors(number: int) -> list[int]:
    """The divisors of a number, ascending."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return low + [number // n for n in reversed(low) if n * n != number]


def fused(s: Schedule, names: Sequence[str]) -> str:
    """Fuse several perfectly nested loops into one."""
    whole, *rest = names
    for name in rest:
        whole = s.fuse(whole, name)
    return whole


def parallelize(s: Schedule, names: Sequence[str]) -> None:
    """Fuse the loops, if any, and parallelize the result unless it runs once."""
    if not names:
        return
    whole = fused(s, names)
    if extent(s, whole) != 1:
        s.parallel(whole)


def write_back(s: Schedule, write: str, at: str, lanes: int | None = None) -> None:
    """Unroll and vectorize a tile's write-back, which keeps the tile in registers.

    Vectors have `lanes` elements, by default as many as the innermost loop has steps.
    """
    around = s.loops(write)
    inside = around[around.index(at) + 1 :]
    for loop in inside[:-1]:
        s.unroll(loop)
    for loop in inside[-1:]:
        if lanes is None:
            s.vectorize(loop)
        else:
            vector, lane = s.split(loop, [None, lanes])
            s.unroll(vector)
            s.vectorize(lane)


def unroll_inside(s: Schedule, block: str, at: str, lanes: int) -> None:
    """Unroll a block's loops inside `at`, if any, and vectorize the last."""
    around = s.loops(block)
    inside = list(around[around.index(at) + 1 :])
    if inside and (extent(s, inside[-1]) or 0) > lanes:
        inside[-1:] = s.split(inside[-1], [None, lanes])
    for loop in inside[:-1]:
        s.unroll(loop)
    for loop in inside[-1:]:
        s.vectorize(loop)


def in_lanes(s: Schedule, loop: For, lanes: int, rest: int | None = None) -> None:
    """Vectorize a loop, with its tail, if any, split off and masked.

    The tail's vectors have `rest` lanes: on a short row, registers with no active lane
    would cost as much as the others.
    """
    name, length = loop.var.name, extent_of(loop)
    lanes = lanes if length is None else max(min(lanes, length), 1)
    whole = whole_steps(s, loop.extent, lanes)
    main, *tails = (name,) if whole == loop.extent else s.partition(name, whole)
    for part, wide in [(main, lanes), *((tail, rest or lanes) for tail in tails)]:
        _, lane = s.split(part, [None, min(wide, lanes)])
        s.vectorize(lane)
