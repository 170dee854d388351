"""Pixels that a thread holds in registers, loaded in wide accesses where possible.

for c in unrolled(6):
    padded[c] = select((j * 4 + c >= 1) & (j * 4 + c < 113), x[j * 4 + c - 1], 0.0)
                                    ->
padded[0] = select(j * 4 >= 1, x[j * 4 - 1], 0.0)
for c in vectorized(4): padded[c + 1] = x[j * 4 + c]
padded[5] = select(j * 4 + 4 < 112, x[j * 4 + 4], 0.0)
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.frozen import frozen
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Binary, Expr, Let, Load, Store, Var
from tensorlang.ir.visit import substitute, walk
from tensorlang.schedules.generic import stage_named, stage_names
from tensorlang.schedules.stages import INJECTIVE, kind_of
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import cut_at, extent
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block


@frozen
class Line:
    """How a line of an image is partitioned."""

    dim: int  # dimension that is partitioned into the inside and the padding
    unit: int  # pixels that the pieces are multiples of
    lanes: int  # contiguous elements of one access
    whole: bool  # whether these are the pixels of the line itself


def hold(
    s: Schedule, readers: Sequence[str], image: str, place: str, line: Line
) -> None:
    """Hold the part of an image that a loop's body reads in registers.

    Args:
        readers: The blocks that read it, the first one first.
        image: The name of the image, which may be computed element by element.
        place: The loop.
        line: How its lines are partitioned.

    Raises:
        ScheduleError: the part has no constant size.
    """
    copy = _maker(s, image)
    if copy and s.attempt(s.compute_at, copy, place):
        s.set_scope(image, "register")
    else:
        copy, kept = s.cache_read(readers[0], image, "register", place)
        for reader in readers[1:]:
            _, again = s.cache_read(reader, image, "register", place)
            s.share(kept, again)
    first, *others = _inside(s, copy, line)
    unroll_under(s, first, place, line.lanes)
    for part in others:
        unroll_under(s, part, place, 1 if line.whole else line.lanes)


def under(s: Schedule, block: str, at: str) -> tuple[str, ...]:
    """The loops around a block that are inside another loop."""
    loops = s.loops(block)
    return loops[loops.index(at) + 1 :]


def unroll_under(s: Schedule, block: str, at: str, lanes: int) -> None:
    """Unroll a thread's loops, the innermost one in accesses of `lanes` elements."""
    own = under(s, block, at)
    if own and lanes > 1 and (extent(s, own[-1]) or 0) % lanes == 0:
        *_, lane = s.split(own[-1], [None, lanes])
        own = under(s, block, at)[:-1]
        s.vectorize(lane)
    for name in own:
        if loop_named(s, name).kind == "serial":  # else shared with another part
            s.unroll(name)


def _maker(s: Schedule, image: str) -> str:
    """The injective stage that computes an image, by block name; empty if none."""
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is not None and stage.output.name == image:
            return name if kind_of(stage) == INJECTIVE else ""
    return ""


def _inside(s: Schedule, copy: str, line: Line) -> list[str]:
    """The copying blocks of pixels inside the image, before it and after it.

    Pixels inside for all tiles need no bounds check, and can use wide accesses.
    """
    loop, before = _along(s, copy, line.dim)
    length = (extent(s, loop) or 0) if loop else 0
    first = max(before, 0) % line.unit
    whole = (length - first) // line.unit * line.unit
    if whole <= 0 or whole == length:
        return [copy]
    at, parts, main = s.loops(copy).index(loop), [], copy
    if first:
        main = cut_at(s, copy, loop, first)[1]
        parts.append(copy)
    if first + whole < length:
        parts.append(cut_at(s, main, s.loops(main)[at], whole)[1])
    return [main, *parts]


def _along(s: Schedule, copy: str, dim: int) -> tuple[str, int]:
    """A copy's loop along a dimension, and the elements before the image there."""
    block = block_of(find_block(s.function, copy))
    values = {axis.var: axis.value for axis in block.axes}
    store = next(node for node in walk(block.body) if isinstance(node, Store))
    own = next(
        (values.get(v) for v in [store.indices[dim]] if isinstance(v, Var)), None
    )
    loads = [node for node in walk(block.body) if isinstance(node, Load)]
    if not isinstance(own, Var) or len(loads) != 1:
        return "", 0
    named: dict[Var, Expr] = {}
    for node in walk(block.body):
        if isinstance(node, Let):
            named[node.var] = substitute(node.value, named)
    place = substitute(loads[0].indices[dim], named)
    while isinstance(place, Binary) and place.op in {"min", "max"}:
        place = place.a
    return own.name, -linear(place).constant
