"""Convolutions of f16 and bf16 by warpgroups, where channels are last.

    sums[b, i, j, o] += x[b, i + u, j + v, c] * w[o, u, v, c]

As in `warpgroups`, but the rows of a tile are a box of pixels, such as 8 lines by 8
columns of 2 images, and a step of the ring has 64 channels of one element of the
window. One bulk copy reads the box, shifted by that element; what is outside of the
image is filled with zeros. Weights are copied once with their channels last, if these
are not. A box has sizes that are powers of 2, which leave least of the tiles outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final, TypeAlias

from tensorlang.errors import ArgumentError, ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.polynomials import poly
from tensorlang.ir.nodes import For, Load, Store
from tensorlang.ir.simplification.zero_fill import filled, without_lets
from tensorlang.machine.gpus import GROUP_ROWS, MAPPED, PIECE, gpu_of
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.edges import fuse_padding
from tensorlang.schedules.simt.fragments import swizzled
from tensorlang.schedules.simt.grid import per_thread
from tensorlang.schedules.simt.matrices import sides_of
from tensorlang.schedules.simt.split_steps import combine_parts
from tensorlang.schedules.simt.tensor_cores import (
    readers,
    temporary,
)
from tensorlang.schedules.simt.warpgroup_tiles import (
    BYTES,
    DEPTH,
    Tile,
    clocks_of,
    processors_of,
    tiles_of,
)
from tensorlang.schedules.simt.warpgroups import (
    Nest,
    as_matrix,
    has_wgmma,
    in_roles,
    steps_of,
    tile_of,
)
from tensorlang.schedules.simt.window_tiles import MOST_TAPS
from tensorlang.schedules.stages import Stage, extent_of, trips, variables
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block

_CHUNK: Final = PIECE // BYTES  # elements
_THREADS: Final = 256
_AHEAD: Final = 128 << 10  # bytes copied ahead, which go on while results are stored
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)  # of a box
_BATCHES: Final = (16, 32, 64, 128, 256)  # images, if unknown
_Box: TypeAlias = "tuple[int, ...]"  # pixels along each loop over rows


@frozen
class _Windows:
    """Loops of a convolution: over pixels, outputs, window and channels."""

    stage: Stage
    rows: tuple[For, ...]
    column: For
    taps: tuple[For, ...]
    channel: For
    loads: tuple[Load, Load]  # of the images, and of the weights

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Images and their extents; None if unknown."""
        return tuple(map(extent_of, self.rows))

    @property
    def outputs(self) -> int:
        """Columns of the products."""
        return extent_of(self.column) or 1

    @property
    def slices(self) -> int:
        """Channels by the steps of a tile; the last ones are zero-padded."""
        return -(-(extent_of(self.channel) or 1) // DEPTH)

    @property
    def steps(self) -> int:
        """Steps of a sum."""
        return self.slices * DEPTH * (trips(self.taps) or 1)


def warpgroup_windows(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Schedule a contraction that slides over images, with its epilogue.

    Raises:
        ScheduleError: the target has no such instructions, the stage is not of this
            form, or a knob chooses other instructions.
    """
    if not has_wgmma(s):
        raise ScheduleError("the target has no products of warpgroups")
    slid = _windows_of(stage)
    total = temporary(s, stage)
    packed, weight = _channels_last(s, slid)
    copies = [s.reindex(stage.name, x) for x in (slid.loads[0].buffer.name, weight)]
    fuse_padding(s, [copies[0][0]])
    used = [variables(load) for load in slid.loads]
    along = [[x.var for x in stage.block.axes if x.var in own] for own in used]
    taps = [stage.axis(loop) for loop in slid.taps]
    for (copy, _), axes in zip(copies, along, strict=True):
        _need_box(s, copy, [n for n, var in enumerate(axes) if var not in taps])
    tile, box = _tile(s, knobs, slid)
    nest = _tiled(s, slid, total, tile, box)

    def stage_operands() -> None:
        for (copy, made), axes in zip(copies, along, strict=True):
            _, buffer = s.cache_read(nest.block, made, "shared", at=nest.step)
            s.inline(copy)
            last = axes.index(stage.axis(slid.channel))
            rest = (n for n in range(len(axes)) if n != last)
            s.permute_dims(buffer, [*rest, last])
            as_matrix(s, buffer)
            s.transform_layout(buffer, swizzled(tile.depth, _CHUNK))

    in_roles(s, knobs, stage, nest, stage_operands)
    if packed and not s.attempt(_packed, s, packed):
        per_thread(s, s.loops(packed), _THREADS)
    if tile.parts > 1:
        combine_parts(s, stage.name, readers(s, total))


def _tiled(s: Schedule, slid: _Windows, total: str, tile: Tile, box: _Box) -> Nest:
    """Divide the loops into tiles, which are bound to blocks."""
    block, result = slid.stage.name, total
    pairs = [*zip(slid.sizes, box, strict=True)]
    tiles = prod(-(-n // part) if n else processors_of(s) + 1 for n, part in pairs)
    tiles *= -(-slid.outputs // tile.columns) * tile.parts
    long = map(slid.stage.axis, (*slid.rows, slid.column, slid.channel))
    sizes = dict(zip(long, (*box, tile.columns, tile.depth), strict=True))
    multiples = [sizes.get(axis.var, 1) for axis in slid.stage.block.axes]
    s.pad(block, multiples, discarded=True)
    k0, *parts, k1 = s.split(slid.channel.var.name, steps_of(tile))
    for part in parts:
        block, result = s.rfactor(block, part)
    named = zip((x.var.name for x in slid.rows), box, strict=True)
    split = (s.split(name, [None, size]) for name, size in named)
    outer, inner = zip(*split, strict=True)
    j0, j1 = s.split(slid.column.var.name, [None, tile.columns])
    window = [loop.var.name for loop in slid.taps]
    around = [outer[0], *parts, *outer[1:], j0]  # the unknown length outermost
    s.reorder(*around, *window, k0, *inner, j1, k1)
    step, place = fused(s, [*window, k0]), fused(s, around)
    s.bind(place, "block.x")
    whole = all(size is None or size >= part for size, part in pairs)
    ring = -(-_AHEAD // (BYTES * tile.depth * (tile.rows + tile.columns)))
    return Nest(tile, block, result, place, step, inner, slid.steps, tiles, ring, whole)


def _windows_of(stage: Stage) -> _Windows:
    """The loops of a convolution.

    Raises:
        ScheduleError: the stage is none of 16-bit operands with channels last, whose
            windows advance by one pixel.
    """
    sides = sides_of(stage)
    alone = [loop for loop in sides.groups["batch"] if extent_of(loop) == 1]
    several = (*sides.groups["row"], *alone)
    rows = tuple(loop for loop in stage.driven("spatial") if loop in several)
    columns = sides.groups["column"]
    loads, folded = sides.loads, sides.folded
    kinds = {load.buffer.dtype.name for load in loads}
    if len(kinds) != 1 or not kinds <= {"f16", "bf16"}:
        raise ScheduleError("warpgroups need two operands of f16 or of bf16")
    if len(alone) < len(sides.groups["batch"]) or len(columns) != 1:
        raise ScheduleError(f"{stage.name} has groups, or several columns")
    image, weight = loads
    channel = [loop for loop in folded if stage.axis(loop) == image.indices[-1]]
    if not channel or stage.axis(channel[0]) not in weight.indices:
        raise ScheduleError(f"channels of {image!r} are not last")
    taps = tuple(loop for loop in folded if loop is not channel[0])
    if not taps:
        raise ScheduleError(f"{stage.name} slides over nothing")
    found = _Windows(stage, rows, columns[0], taps, channel[0], loads)
    known = [*found.sizes[1:], *map(extent_of, (*columns, *folded))]
    if None in known or (extent_of(channel[0]) or 0) % _CHUNK:
        raise ScheduleError(f"sizes of {stage.name} are unknown, or no multiple of 8")
    order = [stage.axis(loop) for loop in (*rows, *columns)]
    if [*stage.update.indices] != order or image.buffer.ndim not in MAPPED:
        raise ScheduleError(f"{stage.name} does not store pixels with channels last")
    return found


def _channels_last(s: Schedule, slid: _Windows) -> tuple[str, str]:
    """The weights with their channels last, and the block that copies them, if any."""
    load, channel = slid.loads[1], slid.stage.axis(slid.channel)
    if load.indices[-1] == channel:
        return "", load.buffer.name
    copy, made = s.cache_read(slid.stage.name, load.buffer.name, "global")
    last = load.indices.index(channel)
    rest = (n for n in range(load.buffer.ndim) if n != last)
    s.permute_dims(made, [*rest, last])
    return copy, made


def _packed(s: Schedule, copy: str) -> None:
    """Copy weights 16 bytes at once: a thread has 8 channels of a whole window.

    Raises:
        ScheduleError: these do not lie side by side.
    """
    stage = stage_named(s, copy)
    assert stage is not None
    (load,) = stage.loads
    last = load.indices.index(stage.update.indices[-1])
    *outer, channel = [loop.var.name for loop in stage.loops[: last + 1]]
    window = stage.loops[last + 1 :]
    lying = [stage.axis(loop) for loop in stage.loops] == [*load.indices]
    if not lying or not 0 < (trips(window) or 0) <= MOST_TAPS:
        raise ScheduleError(f"{copy} does not copy small windows as they lie")
    around, lane = s.split(channel, [None, _CHUNK])
    s.reorder(*outer, around, *(loop.var.name for loop in window), lane)
    thread = per_thread(s, [*outer, around], WARP)  # few: they occupy more blocks
    read, _ = s.cache_read(copy, load.buffer.name, "register", at=thread)
    for block in (read, copy):
        inside = s.loops(block)[s.loops(block).index(thread) + 1 :]
        if block == read:
            inside = s.split(fused(s, inside), [None, _CHUNK])
        for loop in inside[:-1]:
            s.unroll(loop)
        s.vectorize(inside[-1])


def _need_box(s: Schedule, copy: str, tiled: Sequence[int]) -> None:
    """Refuse an operand that bulk copies cannot read by boxes.

    Args:
        copy: The block that gathers it.
        tiled: Positions of the axes along which a box is long.
    """
    block = block_of(find_block(s.function, copy))
    store = without_lets(block.body)
    source = filled(store.value) if isinstance(store, Store) else None
    if source is None:
        raise ScheduleError(f"{copy} does not copy what is zero outside of an array")
    for axis in (block.axes[n].var for n in tiled):
        found = [poly(at) for at in source.indices if axis in free_vars(at)]
        terms = [m for at in found for m in at if any(axis in free_vars(x) for x in m)]
        if terms != [(axis,)] or found[0][axis,] != 1:
            raise ScheduleError(
                f"{copy} reads {source!r}, which does not advance by one along {axis!r}"
            )


def _tile(s: Schedule, knobs: Knobs, slid: _Windows) -> tuple[Tile, _Box]:
    """The knobs of a tile and of its box; by default the fastest ones.

    Raises:
        ArgumentError: a knob does not fit.
    """
    stage = slid.stage
    least = slid.outputs, extent_of(slid.channel) or 0
    fits = min(least) >= DEPTH and prod(n or DEPTH for n in slid.sizes) >= GROUP_ROWS
    again = f"_{stage.name}" if "instruction" in knobs.values else ""
    ranked = _ranked(s, slid)
    tile = tile_of(knobs, stage, lambda: ranked[0][0], fits=fits)
    if slid.slices % tile.parts:
        raise ArgumentError(
            f"step_parts{again}={tile.parts} does not divide the {slid.slices} slices "
            f"of channels of {stage.name}"
        )
    same = (box for each, box in ranked if each.rows == tile.rows)
    usual = next(same, _boxes(slid.sizes, tile.rows)[0])
    inner = [
        knobs.choice(f"box_{n}{again}", _SIZES, default=size)
        for n, size in enumerate(usual[1:], 1)
    ]
    images = tile.rows // prod(inner)
    if images * prod(inner) != tile.rows:
        raise ArgumentError(
            f"boxes of {inner} pixels are no part of the {tile.rows} rows of a tile"
        )
    return tile, (images, *inner)


def _ranked(s: Schedule, slid: _Windows) -> list[tuple[Tile, _Box]]:
    """Tiles with their boxes, the fastest first.

    If the number of images is unknown, over all of `_BATCHES`, each as important in
    its time relative to that of its fastest tile.
    """
    first, *others = slid.sizes
    rows = None if first is None else prod(n or 1 for n in slid.sizes)
    tiles = tiles_of(s, slid.stage, (1, rows, slid.outputs))
    found = [
        (tile, box)
        for tile in tiles
        if not slid.slices % tile.parts
        for box in _boxes(slid.sizes, tile.rows)
    ]
    gpu = None if s.target is None else gpu_of(s.target)
    if gpu is None:
        return found

    def clocks(images: int, tile: Tile, box: _Box) -> float:
        pairs = zip((images, *others), box, strict=True)
        covered = prod(-(-(n or 1) // part) * part for n, part in pairs)
        return clocks_of(gpu, (1, covered, slid.outputs), slid.steps, tile)

    batches = _BATCHES if first is None else (first,)
    times = [[clocks(n, *each) for each in found] for n in batches]
    slowed = [
        sum(column)
        for column in zip(*([t / min(row) for t in row] for row in times), strict=True)
    ]
    order = sorted(range(len(found)), key=slowed.__getitem__)
    return [found[n] for n in order]


def _boxes(sizes: Sequence[int | None], rows: int) -> list[_Box]:
    """The boxes of so many pixels, those first that read the fewest neighbours.

    They are larger than images only if there is no other.
    """
    every = [box for box in product(_SIZES, repeat=len(sizes)) if prod(box) == rows]
    whole = [
        box
        for box in every
        if all(n is None or n >= part for n, part in zip(sizes, box, strict=True))
    ]

    def read(box: _Box) -> int:
        return box[0] * prod(part + 1 for part in box[1:])

    return sorted(whole or every, key=read)
