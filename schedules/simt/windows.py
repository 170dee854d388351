"""Window sums and maxima: a small register tile of results per thread.

    for i_0 in bound(.., "block.x"):
        for i_1 in bound(7, "thread.y"):
            for j_0 in bound(28, "thread.x"):
                padded = alloc(f32[6, 6], scope="register")    # each pixel once
                sums = alloc(f32[4, 4], scope="register")
                for i_2, j_1, ky, kx in unrolled(4, 4, 3, 3):
                    sums[i_2, j_1] += padded[i_2 + ky, j_1 + kx] * w[ky, kx]
                y[.., i_0 * 28 + i_1 * 4 : + 4, j_0 * 4 : + 4] = sums

Neighbouring windows share most of their pixels: the pixels that a tile's windows cover
are loaded once, in wide accesses if they divide lines. Threads, blocks and tiles are
loops of their own, so that only the block index is divided in an address.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import allocations
from tensorlang.schedules.generic import stage_named, stage_names
from tensorlang.schedules.simt.matrices import writer_of
from tensorlang.schedules.simt.sliding import Windows, windows_of
from tensorlang.schedules.simt.window_gradients import weight_gradients
from tensorlang.schedules.simt.window_images import Line, hold, under, unroll_under
from tensorlang.schedules.simt.window_tiles import MOST_TAPS, Tile, bind_tiles, tile_of
from tensorlang.schedules.stages import Stage, extent_of, is_cheap
from tensorlang.scheduling import Knobs, Schedule


def windows(s: Schedule, knobs: Knobs) -> None:
    """Schedule every stage that reduces small windows, with its image and epilogue."""
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is None or 0 in map(extent_of, stage.loops):
            continue
        if stage.driven("reduction"):
            any(s.attempt(way, s, knobs, stage) for way in (tiles, weight_gradients))


def tiles(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Tile one stage of windows.

    Raises:
        ScheduleError: it is none, or its parts cannot be fused.
    """
    slid = windows_of(stage)
    if slid.taps > MOST_TAPS:
        slid = slid.line_by_line()
    _inline_others(s, slid)
    shown = _epilogue_stage(s, stage)
    top = stage if shown is None else shown
    tile = tile_of(knobs, slid, top)
    at = bind_tiles(s, top, [*tile.sizes.values()], tile.threads)
    if shown is None:
        written, _ = s.cache_write(stage.name, stage.output.name, "register", at)
    else:
        written = shown.name
        s.compute_at(stage.name, at)
        s.set_scope(stage.output.name, "register")
    now = _renamed(s, stage)
    deep = [now[name] for name in slid.deep]
    held_at_once = {now[name] for name in slid.deep_in_memory if tile.depth > 1}
    _fold(s, stage.name, at, deep)
    around = [name for name in deep if name not in held_at_once]
    _image(s, slid, around[-1] if around else at, tile)
    for name in held_at_once:
        s.unroll(name)
    unroll_under(s, written, at, tile.lanes if tile.sizes[slid.spatial[-1]] > 1 else 1)


def _inline_others(s: Schedule, slid: Windows) -> None:
    """Inline cheap operands other than the image, such as flipped windows."""
    image = slid.image.buffer
    made = {load.buffer for load in slid.stage.loads if load.buffer != image}
    for name in stage_names(s):
        other = stage_named(s, name)
        if other is not None and other.output in made and is_cheap(other.block):
            s.attempt(s.inline, name)


def _epilogue_stage(s: Schedule, stage: Stage) -> Stage | None:
    """The only reader of the sums, elementwise; None if they are results."""
    if stage.output not in set(allocations(s.function)):
        return None
    found = stage_named(s, writer_of(s, stage))
    if found is None:
        raise ScheduleError(f"no stage alone reads {stage.output.name} as it is")
    return found


def _renamed(s: Schedule, stage: Stage) -> dict[str, str]:
    """The current names of a stage's reduction loops, by the former ones."""
    folded = stage.names("reduction")
    return dict(zip(folded, s.loops(stage.name)[-len(folded) :], strict=True))


def _fold(s: Schedule, block: str, at: str, deep: Sequence[str]) -> None:
    """Move reduction loops that do not slide around the tile, and unroll the tile."""
    rest = [name for name in under(s, block, at) if name not in deep]
    if deep:
        s.reorder(*deep, *rest)
    for name in rest:
        s.unroll(name)


def _image(s: Schedule, slid: Windows, place: str, tile: Tile) -> None:
    """Hold the pixels that a tile covers in registers, of all channels or one."""
    column = slid.slides[-1]
    unit = tile.loads if slid.lines else tile.sizes[column.loop] * column.step
    line = Line(column.dim, unit, tile.loads, whole=slid.lines)
    hold(s, [slid.stage.name], slid.image.buffer.name, place, line)
