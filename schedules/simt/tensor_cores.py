"""Matrix products of f16, bf16 and tf32 on tensor cores.

    y[i, j] = epilogue(sum over k of x[i, k] * w[j, k])

A block has a tile of rows and columns, each of its warps a part, made of 16 x 16 x 16
products. Operands are staged in shared memory, `depth` steps of k at once, in 16-byte
copies to swizzled addresses, so that neither these nor `ldmatrix` cause bank conflicts.
Sums stay in registers, distributed over lanes as the instruction leaves them; the
epilogue (bias, activation, dropout) runs on them there.

Rows, columns and steps are zero-padded to tiles, without storing the padding. Other
forms are scheduled without tensor cores (`tiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.nodes import Buffer, For, Load
from tensorlang.ir.tf32 import tf32
from tensorlang.schedules.generic import stage_named, stage_names
from tensorlang.schedules.simt.fragments import (
    Lanes,
    bind_threads,
    fragment_layout,
    padded,
    staged_rows,
    swizzled,
)
from tensorlang.schedules.simt.grid import GROUPS, neighbouring
from tensorlang.schedules.stages import Stage, extent_of, has_long_chains, tile_axes
from tensorlang.schedules.tiling import extent, fused
from tensorlang.scheduling import Knobs, Schedule

NEEDED: Final = frozenset(("mma", "ldmatrix"))
_BLOCKS: Final = (32, 64, 128, 256)
_DEPTHS: Final = (16, 32, 64)
_WARPS: Final = (1, 2, 4)
_STAGES: Final = (1, 2, 3, 4, 5)
_BUSY: Final = 128  # blocks that occupy a device
_USUAL_STAGES: Final = 4  # if a multiprocessor has room for two blocks of that many
_STEP: Final = 16  # rows and columns of one instruction, and steps of k


@frozen
class Form:
    """The element type: `kind`, with `step` values of k per instruction.

    `chunk` elements are copied at once, 16 bytes.
    """

    kind: str
    step: int
    chunk: int

    def instruction(
        self, ways: Sequence[str], *, swapped: bool, wide: bool = False
    ) -> str:
        """The name of the intrinsic for operands with these memory orders."""
        order = f"{'_wide' if wide else ''}{'_swapped' if swapped else ''}"
        return f"mma_m16n16k{self.step}_{self.kind}{''.join(ways)}{order}"


FORMS: Final = {
    "bf16": Form("bf16", 16, 8),
    "f16": Form("f16", 16, 8),
    "f32": Form("tf32", 8, 4),  # if the definition itself rounds to it
}


@frozen
class Operand:
    """A matrix operand: its buffer, and whether it is transposed, `[k, ..]`."""

    buffer: Buffer
    turned: bool


@frozen
class Tile:
    """Knob values: the tile of a block, its distribution over warps, its staging."""

    rows: int
    columns: int
    depth: int
    warps: tuple[int, int]
    stages: int
    swizzle: bool
    wide: bool = False
    group: int = 0

    @property
    def lanes(self) -> Lanes:
        """The distribution of the tile's elements over lanes."""
        return Lanes((self.rows, self.columns), self.warps, self.wide)


def tensor_cores(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Schedule a product of two matrices with its epilogue.

    Raises:
        ScheduleError: the target has no tensor cores, or the stage is not of this form.
    """
    pair = operands(stage)
    form = FORMS[pair[0].buffer.dtype.name]
    loops = *(tile_axes(stage) or ()), *stage.driven("reduction")
    sizes = [extent_of(loop) for loop in loops]
    tile = tile_of(s, knobs, stage, form, sizes, most=_enough(sizes))
    if not pair[1].turned and tile.swizzle and can_interleave(tile, form):
        name = f"wide_{stage.name}" if "wide" in knobs.values else "wide"
        tile = replace(tile, wide=knobs.flag(name, default=not ends_long(s, stage)))
    again = f"_{stage.name}" if "group" in knobs.values else ""
    group = knobs.choice(f"group{again}", GROUPS, default=16)
    _schedule(s, stage, pair, replace(tile, group=group), form)


def can_interleave(tile: Tile, form: Form) -> bool:
    """Whether two products may interleave in 32 columns without a bank conflict.

    That requires 16-bit elements and whole swizzled rows.
    """
    of_16_bits = form.chunk == 8 and tile.depth >= 4 * form.chunk
    return of_16_bits and tile.lanes.products[1] % 2 == 0


def operands(
    stage: Stage, part: int = _BLOCKS[0], *, batches: bool = False
) -> tuple[Operand, Operand]:
    """The operand of the rows, and the one of the columns.

    Args:
        stage: The product.
        part: What the rows of a transposed operand are multiples of.
        batches: Whether there may be other spatial loops, around products of matrices.

    Raises:
        ScheduleError: the stage is no product of two matrices of f16, of bf16, or of
            f32 that it rounds to tf32, whose rows can be copied 16 bytes at once.
    """
    axes, folded = tile_axes(stage), stage.driven("reduction")
    alone = len(stage.driven("spatial")) == 2
    if axes is None or len(folded) != 1 or not (alone or batches):
        raise ScheduleError("tensor cores need a product of two matrices")
    if (extent_of(axes[0]) or _STEP) < _STEP:
        raise ScheduleError(f"{axes[0].extent!r} rows fill no product of {_STEP}")
    loads, names = stage.loads, {load.buffer.dtype.name for load in stage.loads}
    if len(loads) != 2 or len(names) != 1 or not names <= FORMS.keys():
        raise ScheduleError("tensor cores need two operands of f16, bf16 or tf32")
    rounded = tf32(loads[0]) * tf32(loads[1]) if names == {"f32"} else None
    if rounded is not None and getattr(stage.update, "values", ()) != (rounded,):
        raise ScheduleError("f32 is rounded to tf32 only if the definition says so")
    k = stage.axis(folded[0])
    found = []
    if _swapped(stage):
        loads = loads[::-1]
    for load, loop in zip(loads, axes, strict=True):
        own = stage.axis(loop), k
        places = [n for n, at in enumerate(load.indices) if free_vars(at) & {*own}]
        along = tuple(load.indices[n] for n in places)
        whole = len(places) == load.buffer.ndim
        rows = places[-1:] == [load.buffer.ndim - 1] if batches else whole
        if along not in (own, own[::-1]) or not rows:
            raise ScheduleError(f"{load!r} is not a row of a matrix along {own}")
        _copied_wide(load, stage, part)
        found.append(Operand(load.buffer, along == own[::-1]))
    return found[0], found[1]


def _swapped(stage: Stage) -> bool:
    """Whether the operand of the columns is the first factor."""
    axes = tile_axes(stage)
    return axes is not None and stage.axis(axes[0]) not in stage.loads[0].indices


def _copied_wide(load: Load, stage: Stage, part: int) -> None:
    """Refuse a matrix whose rows cannot be copied 16 bytes at once, tile by tile.

    Steps are zero-padded to tiles; not those of tf32, whose rounding is in the block.
    """
    loop = next(x for x in stage.loops if stage.axis(x) == load.indices[-1])
    form = FORMS[load.dtype.name]
    step = _STEP if form.kind == "tf32" else form.chunk
    whole = step if loop in stage.driven("reduction") else part
    length = extent_of(loop)
    if length is None or length % whole:
        raise ScheduleError(
            f"rows of {load.buffer.name} have {loop.extent!r} numbers, no multiple of "
            f"{whole}"
        )


def tile_of(
    s: Schedule,
    knobs: Knobs,
    stage: Stage,
    form: Form,
    sizes: Sequence[int | None],
    *,
    most: Sequence[int] = (_BLOCKS[2], _BLOCKS[2]),
) -> Tile:
    """The knobs; by default as large as known sizes can use.

    With an expensive epilogue, more threads share a tile.

    Args:
        stage: The product.
        form: The element type.
        sizes: Rows, columns and steps; None if unknown.
        most: Upper limits of a block's default rows and columns.

    Raises:
        ScheduleError: no block can have such a tile.
    """
    rows, columns = (
        _largest(size, tuple(n for n in _BLOCKS if n <= limit))
        for size, limit in zip(sizes[:2], most, strict=True)
    )
    depth = _largest(sizes[2], _DEPTHS[: form.chunk // 4])  # 64 bytes of a row
    long = ends_long(s, stage)
    if s.target is None or not NEEDED.issubset(s.target.features):
        raise ScheduleError("the target has no tensor cores")
    few = columns <= 64 or not long
    stage_bytes = 16 // form.chunk * depth * (rows + columns)
    twice = 2 * _USUAL_STAGES * stage_bytes <= s.target.shared_bytes
    again = f"_{stage.name}" if "block_rows" in knobs.values else ""  # a second product
    why = f"the largest that the sizes fill, at most {most[0]} x {most[1]}"
    tile = Tile(
        knobs.choice(f"block_rows{again}", _BLOCKS, default=rows, why=why),
        knobs.choice(f"block_columns{again}", _BLOCKS, default=columns, why=why),
        knobs.choice(f"depth{again}", _DEPTHS, default=depth),
        (
            knobs.choice(f"warp_rows{again}", _WARPS, default=2),
            knobs.choice(f"warp_columns{again}", _WARPS, default=2 if few else 4),
        ),
        knobs.choice(
            f"stages{again}",
            _STAGES,
            default=_USUAL_STAGES - (not twice),
            why=f"{'two' if twice else 'no two'} blocks of {_USUAL_STAGES} stages fit "
            "the shared memory",
        ),
        knobs.flag(f"swizzle{again}", default=True),
    )
    _fits(tile, form, s)
    return tile


def _enough(sizes: Sequence[int | None]) -> tuple[int, int]:
    """The largest default block: smaller if rows and columns give too few blocks."""
    rows, columns = sizes[:2]
    most = _BLOCKS[2]
    if rows is None or columns is None:
        return most, most
    found = [(most, most), (most, most // 2), (most // 2, most // 2)]
    enough = (x for x in found if rows * columns >= _BUSY * x[0] * x[1])
    return next(enough, found[-1])


def _largest(extent: int | None, sizes: tuple[int, ...]) -> int:
    """The largest size that divides an extent, else the smallest that covers it."""
    if extent is None:
        return sizes[-1]
    whole = [size for size in sizes if extent % size == 0]
    return max(whole) if whole else next((n for n in sizes if n >= extent), sizes[-1])


def ends_long(s: Schedule, stage: Stage) -> bool:
    """Whether the epilogue is expensive."""
    found = (stage_named(s, name) for name in stage_names(s))
    return any(
        has_long_chains(after)
        for after in found
        if after is not None and stage.output in reads(after.block.body)
    )


def _fits(tile: Tile, form: Form, s: Schedule) -> None:
    """Refuse a tile that no block can have."""
    if s.target is None:
        raise ScheduleError("which tiles a block can have depends on the target")
    pairs = zip((tile.rows, tile.columns), tile.warps, strict=True)
    if any(size % (16 * warps) for size, warps in pairs):
        raise ScheduleError(
            f"{tile.warps} warps do not share {tile.rows} by {tile.columns} in "
            "products of 16 by 16"
        )
    sides = tile.rows + tile.columns
    staged = 16 // form.chunk * tile.depth * sides * tile.stages
    if staged > s.target.shared_bytes or tile.lanes.sums > 128:
        raise ScheduleError(
            f"{staged} bytes of shared memory and {tile.lanes.sums} sums of a thread "
            f"are more than a block of {s.target} may have"
        )


def _schedule(
    s: Schedule, stage: Stage, pair: tuple[Operand, Operand], tile: Tile, form: Form
) -> None:
    axes, (folded,) = tile_axes(stage), stage.driven("reduction")
    assert axes is not None
    row, column = axes
    block, lanes = stage.name, tile.lanes
    result = temporary(s, stage)
    sizes = tile.rows, tile.columns, tile.depth
    copies = padded_operands(s, stage, sizes, (row, column, folded))
    i0, *i = s.split(row.var.name, [None, *lanes.split(0)])
    j0, *j = s.split(column.var.name, [None, *lanes.split(1)])
    k0, k1, k2 = s.split(folded.var.name, [None, tile.depth // form.step, form.step])
    threads, own = lanes.order(i, j)
    *groups, j0 = neighbouring(s, j0, tile.group)
    s.reorder(*groups, i0, j0, k0, *threads, k1, *own, k2)
    if tile.wide:  # two interleaved products are two
        own[1:3] = [fused(s, own[1:3])]
    write, sums = s.cache_write(block, result, "shared", at=j0)
    epilogues(s, result, write)
    init = s.decompose_reduction(block, k0)
    for operand, size in zip(pair, (tile.rows, tile.columns), strict=True):
        made = staged(s, block, operand, copies, k0)
        length = size if operand.turned else tile.depth
        layout = _layout(
            operand, length, tile, form, wide=tile.wide and operand == pair[1]
        )
        staged_rows(s, *made, layout, threads=lanes.threads, chunk=form.chunk)
    first = s.loops(init)[len(groups) + 2 :]
    bind_threads(s, first[:4], first[4:])
    lanes.share(s, write)
    bind_threads(s, threads, [k1, *own[:2]])
    s.transform_layout(sums, fragment_layout(lanes))
    ways = [f"_{side}t" for side, o in zip("ab", pair, strict=True) if o.turned]
    name = form.instruction(ways, swapped=_swapped(stage), wide=tile.wide)
    s.tensorize(own[2], name)
    s.bind(i0, "block.y")
    s.bind(j0, "block.x")
    for loop in groups:
        s.bind(loop, "block.z")
    stages = min(tile.stages, extent(s, k0) or tile.stages)
    if stages > 1:
        s.pipeline(k0, stages)


def temporary(s: Schedule, stage: Stage) -> str:
    """The buffer of the sums: never a parameter, since it may have to be padded."""
    if stage.output not in s.function.buffers:
        return stage.output.name
    return s.cache_write(stage.name, stage.output.name, "global")[1]


def padded_operands(
    s: Schedule, stage: Stage, tile: Sequence[int], loops: tuple[For, For, For]
) -> dict[str, tuple[str, str]]:
    """Pad tiles; of each padded operand, returns the copying block and the copy."""
    sizes = dict(zip(loops, tile, strict=True))
    ragged = {x for x, size in sizes.items() if (extent_of(x) or 1) % size}
    ragged |= {x for x in loops if extent_of(x) is None}
    if not ragged:
        return {}
    used = {stage.axis(loop) for loop in ragged}
    made = {
        load.buffer.name: s.cache_read(stage.name, load.buffer.name, "global")
        for load in stage.loads
        if used & {v for index in load.indices for v in free_vars(index)}
    }
    by_axis = {stage.axis(loop): size for loop, size in sizes.items() if loop in ragged}
    s.pad(stage.name, [by_axis.get(axis.var, 1) for axis in stage.block.axes])
    return made


def staged(
    s: Schedule,
    block: str,
    operand: Operand,
    copies: dict[str, tuple[str, str]],
    at: str,
) -> tuple[str, str]:
    """Stage a tile of an operand in shared memory, zero-padded if ragged."""
    copy, source = copies.get(operand.buffer.name, ("", operand.buffer.name))
    made = s.cache_read(block, source, "shared", at=at)
    if copy:
        s.inline(copy)
    return made


def _layout(
    operand: Operand, length: int, tile: Tile, form: Form, *, wide: bool
) -> str:
    """The layout of a staged operand, by the length of its rows.

    Transposed operands are read by `ldmatrix` if they are 16-bit, else one by one.
    """
    if not tile.swizzle:
        return padded(length, form.chunk)
    pairs = operand.turned and form.kind == "tf32"
    return swizzled(length, form.chunk, pairs=pairs, wide=wide)


def epilogues(s: Schedule, result: str, write: str) -> None:
    """Fuse epilogues into the write-back of the sums."""
    for name in readers(s, result):
        if name != write:
            s.attempt(partial(s.inline, reverse=True), name)


def readers(s: Schedule, result: str) -> list[str]:
    """The stages that read a buffer."""
    found = ((name, stage_named(s, name)) for name in stage_names(s))
    return [
        name
        for name, stage in found
        if stage and result in {b.name for b in reads(stage.block.body)}
    ]
