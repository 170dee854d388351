"""Sums and maxima of windows: a small tile of results to a thread, in its registers.

    for i_0 in bound(.., "block.x"):
        for i_1 in bound(7, "thread.y"):
            for j_0 in bound(28, "thread.x"):
                padded = alloc(f32[6, 6], scope="register")    # each pixel once
                sums = alloc(f32[4, 4], scope="register")
                for i_2, j_1, ky, kx in unrolled(4, 4, 3, 3):
                    sums[i_2, j_1] += padded[i_2 + ky, j_1 + kx] * w[ky, kx]
                y[.., i_0 * 28 + i_1 * 4 : + 4, j_0 * 4 : + 4] = sums

Neighbouring windows share most of their pixels: what all windows of a tile reach over
is loaded once, in wide accesses where lines are whole ones. Threads, blocks and tiles
are loops of their own, so that a place takes no division but the block's.
"""

from __future__ import annotations

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Binary, Block, Expr, Let, Load, Store, Var
from tensorlang.ir.visit import allocations, blocks, substitute, walk
from tensorlang.schedules.cutting import cut_at, extent, tried
from tensorlang.schedules.generic import stage_named, stage_names
from tensorlang.schedules.simt.sliding import Windows, windows_of
from tensorlang.schedules.simt.window_tiles import Tile, shared_out, tile_of
from tensorlang.schedules.stages import INJECTIVE, Stage, extent_of, is_cheap, kind_of
from tensorlang.schedules.streaming import loop_named
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.tree import block_of, find_block


def windows(s: Schedule, knobs: Knobs) -> None:
    """Every stage that folds small windows, with its image and what follows it."""
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is None or 0 in map(extent_of, stage.loops):
            continue
        if stage.driven("reduction"):
            tried(s, _scheduled, s, knobs, stage)


def _scheduled(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """One stage of windows.

    Raises:
        ScheduleError: it is none, or its parts cannot be computed in one place.
    """
    slid = windows_of(stage)
    _inline_others(s, slid)
    shown = _shown(s, stage)
    top = stage if shown is None else shown
    tile = tile_of(knobs, slid, top)
    at = shared_out(s, slid, tile, top)
    if shown is None:
        written, _ = s.cache_write(stage.name, stage.output.name, "register", at)
    else:
        written = shown.name
        s.compute_at(stage.name, at)
        s.set_scope(stage.output.name, "register")
    _fold(s, slid, at)
    _image(s, slid, at, tile)
    _written_out(s, written, at, tile.lanes if tile.sizes[slid.spatial[-1]] > 1 else 1)


def _inline_others(s: Schedule, slid: Windows) -> None:
    """Compute what is cheap and no image where it is read, such as turned windows."""
    image = slid.image.buffer
    made = {load.buffer for load in slid.stage.loads if load.buffer != image}
    for name in stage_names(s):
        other = stage_named(s, name)
        if other is not None and other.output in made and is_cheap(other.block):
            tried(s, s.inline, name)


def _shown(s: Schedule, stage: Stage) -> Stage | None:
    """What alone reads the sums, element by element; None where they are results.

    Raises:
        ScheduleError: the sums are read otherwise.
    """
    if stage.output not in set(allocations(s.function)):
        return None
    readers = [b.name for b in blocks(s.function) if _reads(b, stage)]
    found = stage_named(s, readers[0]) if len(readers) == 1 else None
    if found is None or kind_of(found) != INJECTIVE:
        raise ScheduleError(f"no single stage reads {stage.output.name}")
    axes = tuple(found.axis(loop) for loop in found.loops)
    places = [x.indices for x in found.loads if x.buffer == stage.output]
    if places != [axes] or len(axes) != len(stage.driven("spatial")):
        raise ScheduleError(f"{found.name} reads {stage.output.name} elsewhere")
    return found


def _reads(block: Block, stage: Stage) -> bool:
    loads = (node for node in walk(block.body) if isinstance(node, Load))
    return any(load.buffer == stage.output for load in loads)


def _fold(s: Schedule, slid: Windows, at: str) -> None:
    """What does not slide goes around the tile; the tile is written out."""
    own = _under(s, slid.stage.name, at)
    rest = [name for name in own if name not in slid.deep]
    if len(rest) < len(own):
        s.reorder(*(name for name in own if name in slid.deep), *rest)
    for name in rest:
        s.unroll(name)


def _under(s: Schedule, block: str, at: str) -> tuple[str, ...]:
    """The loops around a block that stand in another one."""
    loops = s.loops(block)
    return loops[loops.index(at) + 1 :]


# -------------------------------------------------------------------------- image


def _image(s: Schedule, slid: Windows, at: str, tile: Tile) -> None:
    """The pixels that a tile reaches over, in registers: of all channels or of one."""
    image, deep = slid.image.buffer.name, [*slid.deep]
    if tile.depth > 1:
        deep = [name for name in deep if name not in slid.deep_in_memory]
        for name in slid.deep_in_memory:
            s.unroll(name)
    around = [name for name in s.loops(slid.stage.name) if name in deep]
    place = around[-1] if around else at
    copy = _maker(s, image)
    if copy and tried(s, s.compute_at, copy, place):
        s.set_scope(image, "register")
    else:
        copy, _ = s.cache_read(slid.stage.name, image, "register", place)
    first, *others = _inside(s, slid, copy, tile)
    _written_out(s, first, place, tile.lanes)
    for part in others:
        _written_out(s, part, place, 1 if slid.lines else tile.lanes)


def _maker(s: Schedule, image: str) -> str:
    """The block of the stage that makes an image element by element, if one does."""
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is not None and stage.output.name == image:
            return name if kind_of(stage) == INJECTIVE else ""
    return ""


def _inside(s: Schedule, slid: Windows, copy: str, tile: Tile) -> list[str]:
    """The copying blocks of columns inside the image, before it and behind it.

    What lies inside of it for all tiles needs no test, and can be whole accesses.
    """
    column = slid.slides[-1]
    loop, before = _line(s, copy, column.dim)
    step = tile.lanes if slid.lines else tile.sizes[column.loop] * column.step
    length = (extent(s, loop) or 0) if loop else 0
    first = max(before, 0) % step
    whole = (length - first) // step * step
    if whole <= 0 or whole == length:
        return [copy]
    at, parts, main = s.loops(copy).index(loop), [], copy
    if first:
        main = cut_at(s, copy, loop, first)[1]
        parts.append(copy)
    if first + whole < length:
        parts.append(cut_at(s, main, s.loops(main)[at], whole)[1])
    return [main, *parts]


def _line(s: Schedule, copy: str, dim: int) -> tuple[str, int]:
    """A copy's loop along a dimension, and its elements there before the image."""
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


def _written_out(s: Schedule, block: str, at: str, lanes: int) -> None:
    """A thread's loops written out; the innermost one in accesses of some lanes."""
    own = _under(s, block, at)
    if own and lanes > 1 and (extent(s, own[-1]) or 0) % lanes == 0:
        *_, lane = s.split(own[-1], [None, lanes])
        own = _under(s, block, at)[:-1]
        s.vectorize(lane)
    for name in own:
        if loop_named(s, name).kind == "serial":  # else that of another part, too
            s.unroll(name)
