"""What schedules of convolutions are made of: copies of images, and register tiles.

A tile is some outputs by some vectors of a flattened image: see `schedules.conv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Binary, Const, Let, Load, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.tiling import cut_at, extent, shared
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.tree import block_of, constant, find_block, find_buffer


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of a register tile."""

    rows: int
    vectors: int
    lanes: int


def step_cost(rows: int, vectors: int) -> float:
    """Half cycles of one step of a tile's reduction.

    Two products a cycle, eight of them on their way; two loads a cycle, and those of
    the image cross cache lines.
    """
    if not vectors:
        return 0.0
    loads = rows + 2 * vectors
    return max(rows * vectors, 8, loads) + loads / 16


def tile_cost(span: int, tile: Tile, steps: int) -> float:
    """Half cycles for all tiles over so many elements, writing them back included."""
    whole, rest = divmod(-(-span // tile.lanes), tile.vectors)
    cost = whole * step_cost(tile.rows, tile.vectors) + step_cost(tile.rows, rest)
    return cost * steps + 6 * tile.rows * -(-span // tile.lanes)


def width(s: Schedule, name: str = "sums") -> tuple[int, int]:
    """Lanes of a register of what a block reads, and how many registers there are."""
    block = block_of(find_block(s.function, name))
    wide = max(n.buffer.dtype.bits for n in walk(block) if isinstance(n, Load))
    if s.target is None:
        return 512 // wide, 32
    return s.target.lanes(wide), s.target.vector_registers


def extents(s: Schedule, loops: Sequence[str]) -> list[int]:
    """The extents of loops; 1 for a symbolic one."""
    return [extent(s, loop) or 1 for loop in loops]


# ---------------------------------------------------------------------- image


def copied_image(s: Schedule, name: str) -> None:
    """A copy of images, dealt out and in one row."""
    lanes, _ = width(s, name)
    *outer, row = s.loops(name)
    vector_image(s, name, lanes, row=row, step=extent(s, outer[-1]) or 1)
    shared(s, outer[:2])


def vector_image(
    s: Schedule, block: str, lanes: int, *, row: str = "", step: int = 1
) -> None:
    """The copy of a padded image: columns inside of it in vectors, untested.

    Args:
        s: The schedule.
        block: The copying block.
        lanes: Elements of a vector.
        row: The loop over all elements, where lines lie in one row.
        step: The step from one copied column of the image to the next.
    """
    line, low, size = _line(s, block)
    first, last = max(-(-low // step), 0), (low + size - step) // step + 1
    column = s.split(row, [None, line])[1] if row and line else s.loops(block)[-1]
    length = extent(s, column) or 0
    last = min(last, length)
    if last - first < lanes // 4:
        return
    part = cut_at(s, block, column, first)[1] if first else block
    if last < length:
        cut_at(s, part, s.loops(part)[-1], last - first)
    vector_lines(s, part, lanes)


def _line(s: Schedule, name: str) -> tuple[int, int, int]:
    """Of an image: elements of a line of the copy, padding before it, columns.

    The copy's place in the image is its last let: `q % line * step + phase - low`.
    """
    block = block_of(find_block(s.function, name))
    (x,) = {n.buffer for n in walk(block) if isinstance(n, Load)}
    column = block.axes[-1].var
    lets = [n.value for n in walk(block) if isinstance(n, Let) and n.var.dtype == i64]
    place = [value for value in (column, *lets) if column in free_vars(value)][-1]
    found = [
        int(n.b.value)
        for n in walk(place)
        if isinstance(n, Binary) and n.op == "floormod" and isinstance(n.b, Const)
    ]
    line = found[0] if found else extent(s, s.loops(name)[-1]) or 0
    return line, -linear(place).constant, constant(x.shape[-1]) or 0


def tiles(
    s: Schedule,
    tile: Tile,
    span: int,
    *,
    padded: bool,
    around: Sequence[str] = (),
    name: str = "sums",
) -> None:
    """Register tiles over so many elements: whole ones, and smaller ones behind.

    What is left reads past the end of the elements where the image is padded; where it
    is not, the last tile has shorter vectors.

    Args:
        s: The schedule.
        tile: The size of whole tiles.
        span: Elements of a row of sums.
        padded: Whether the image goes on behind its end.
        around: Loops that go to threads with those over tiles; none: the sums are
            computed where they are used.
        name: The sums, both the block and what it writes.
    """
    whole = span // (tile.vectors * tile.lanes) * tile.vectors * tile.lanes
    vectors = (span - whole) // tile.lanes
    left = span - whole - vectors * tile.lanes
    sizes = [(whole, tile.vectors, tile.lanes)]
    if padded:
        sizes.append((span - whole, vectors + (left > 0), tile.lanes))
    else:
        sizes += [(vectors * tile.lanes, vectors, tile.lanes), (left, 1, left)]
    sizes = [size for size in sizes if size[0]]
    tall = tile.rows > 1 or bool(around)  # else there is no loop over outputs
    parts = [name]
    for length, _, _ in sizes[:-1]:
        parts[-1:] = _cut(s, parts[-1], length, apart=bool(around), tall=tall)
    for part, (_, count, lanes) in zip(parts, sizes, strict=True):
        made = _tile(s, part, Tile(tile.rows, count, lanes), name, tall=tall)
        if around:
            loops = s.loops(part)
            shared(s, [*loops[: len(around)], made])


def _cut(s: Schedule, block: str, at: int, *, apart: bool, tall: bool) -> list[str]:
    """Cut a nest along its pixels: that loop goes out for a while.

    Out of all others where the parts are to be apart, else of the one over outputs.
    """
    loops, place = s.loops(block), _place(s, block)
    first = 0 if apart else place - int(tall)
    if first == place:
        return cut_at(s, block, loops[place], at)
    q = loops[place]
    s.reorder(q, *loops[first:place], *loops[place + 1 :])
    parts = cut_at(s, block, q, at)
    for part in parts:
        moved = s.loops(part)
        s.reorder(*moved[first + 1 : place + 1], moved[first])
    return parts


def _place(s: Schedule, block: str) -> int:
    """How many loops are around the one over pixels."""
    return len(s.loops(block)) - len(over(s, block)) - 1


def over(s: Schedule, block: str) -> tuple[str, ...]:
    """The loops that a block folds over."""
    found = block_of(find_block(s.function, block))
    values = [a.value for a in found.axes if a.kind == "reduction"]
    names = {v.name for v in values if isinstance(v, Var)}
    return tuple(loop for loop in s.loops(block) if loop in names)


def _tile(s: Schedule, block: str, tile: Tile, name: str, *, tall: bool) -> str:
    """One kind of tile; returns the loop over all of its kind."""
    place = _place(s, block)
    loops = s.loops(block)
    outputs = loops[place - 1 : place] if tall else ()
    q, folded = loops[place], loops[place + 1 :]
    around, vector, lane = s.split(q, [None, tile.vectors, tile.lanes])
    s.reorder(around, *folded, *outputs, vector, lane)
    write, registers = s.cache_write(block, name, "register", at=around)
    dims = len(find_buffer(s.function, registers).shape)
    given = [f"d{n}" for n in range(dims)]
    row = f"{given[-2]} * {tile.vectors * tile.lanes} + {given[-1]}"
    laid = ", ".join([*given[:-2], row])
    s.transform_layout(registers, f"lambda {', '.join(given)}: ({laid})")
    for loop in (*folded[-1:], *outputs, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, around, tile.lanes)
    return around


def write_back(s: Schedule, write: str, at: str, lanes: int) -> None:
    """The tile's own loops, written out: it has to stay in registers."""
    loops = s.loops(write)
    inside = loops[loops.index(at) + 1 :]
    for loop in inside[:-1]:
        s.unroll(loop)
    for loop in inside[-1:]:
        vector, lane = s.split(loop, [None, lanes])
        s.unroll(vector)
        s.vectorize(lane)


def vector_lines(s: Schedule, result: str, lanes: int) -> None:
    """The results of a line, in vectors."""
    loop = s.loops(result)[-1]
    length = extent(s, loop) or 1
    whole = length // lanes * lanes
    parts = cut_at(s, result, loop, whole) if 0 < whole < length else [result]
    for part in parts:
        loop = s.loops(part)[-1]
        _, lane = s.split(loop, [None, min(lanes, extent(s, loop) or 1)])
        s.vectorize(lane)
