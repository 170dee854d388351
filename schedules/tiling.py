"""Cuts that several schedules make: whole tiles and a rest, fused loops, vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tensorlang.errors import TensorlangError
from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Expr, For
from tensorlang.schedules.stages import extent_of
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.scheduling import Schedule


def attempt(s: Schedule, step: Callable[..., object], *args: object) -> bool:
    """Whether a step went through; where it does not, nothing of it stays."""
    function, trace = s.function, s.trace
    try:
        step(*args)
    except TensorlangError:
        s.function, s.trace = function, trace
        return False
    return True


def is_part(name: str, prefix: str) -> bool:
    """Whether a loop is the one of that name, or was cut off from it."""
    return name == prefix or name.startswith(f"{prefix}_tail")


def extent(s: Schedule, name: str) -> int | None:
    """The extent of a loop, where it is a constant."""
    return extent_of(loop_named(s, name))


def cut(s: Schedule, block: str, prefix: str, size: int) -> list[str]:
    """Cut a nest along a loop: the blocks of the whole tiles and of the rest.

    The loop comes to stand outermost where there is something to cut off. A loop that
    is shorter than a tile, or of unknown length, stays whole.
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
    """Cut a nest along a loop of unknown length: whole tiles, and the rest."""
    around = s.loops(block)
    loop = next(name for name in around if is_part(name, prefix))
    whole = whole_steps(s, loop_named(s, loop).extent, size)
    if around[0] != loop:
        s.reorder(loop, *(name for name in around if name != loop))
    main, rest = cut_at(s, block, loop, whole)
    return main, rest


def cut_at(s: Schedule, block: str, loop: str, at: Expr | int) -> list[str]:
    """The blocks of the first `at` iterations of a loop and of all others."""
    before = {b.name for b in blocks(s.function)}
    s.partition(loop, at)
    return [block, next(b.name for b in blocks(s.function) if b.name not in before)]


def divisors(number: int) -> list[int]:
    """The divisors of a number from 1, in order."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return low + [number // n for n in reversed(low) if n * n != number]


def fused(s: Schedule, names: Sequence[str]) -> str:
    """One loop of several that are perfectly nested."""
    whole, *rest = names
    for name in rest:
        whole = s.fuse(whole, name)
    return whole


def shared(s: Schedule, names: Sequence[str]) -> None:
    """The loops, if any, as one, to threads, where it runs more than once."""
    if not names:
        return
    whole = fused(s, names)
    if extent(s, whole) != 1:
        s.parallel(whole)


def in_lanes(s: Schedule, loop: For, lanes: int, rest: int | None = None) -> None:
    """A loop in vectors, with its tail, if there is one, apart and masked.

    The tail's vectors have `rest` lanes: of a short row, whole registers without a lane
    to use would cost as much as those with some.
    """
    name, length = loop.var.name, extent_of(loop)
    lanes = lanes if length is None else max(min(lanes, length), 1)
    whole = whole_steps(s, loop.extent, lanes)
    main, *tails = (name,) if whole == loop.extent else s.partition(name, whole)
    for part, wide in [(main, lanes), *((tail, rest or lanes) for tail in tails)]:
        _, lane = s.split(part, [None, min(wide, lanes)])
        s.vectorize(lane)
