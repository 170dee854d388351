"""Building blocks of convolution schedules: image copies and register tiles.

A tile is a few outputs by a few vectors of a flattened image; see `schedules.conv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Binary, Const, Let, Load, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.cost.core import Core, core_of
from tensorlang.schedules.tiling import (
    cut_at,
    divisors,
    extent,
    parallelize,
    write_back,
    written,
)
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis import tree

MOST_TAPS: Final = 128  # products of a loop's body: their code stays in its caches


@frozen
class Tile:
    """Sizes of a register tile."""

    rows: int
    vectors: int
    lanes: int


def core(s: Schedule, name: str) -> Core:
    """A core that computes a block, in the widest type of its operands."""
    block = tree.block_of(tree.find_block(s.function, name))
    kinds = [n.buffer.dtype for n in walk(block) if isinstance(n, Load)]
    return core_of(s.target, max(kinds, key=lambda each: each.bits))


def extents(s: Schedule, loops: Sequence[str]) -> list[int]:
    """The extents of loops; 1 for a symbolic one."""
    return [extent(s, loop) or 1 for loop in loops]


# ---------------------------------------------------------------------- image


def copied_image(s: Schedule, name: str) -> None:
    """Copy images, split by phase and flattened."""
    lanes = core(s, name).lanes
    *outer, row = s.loops(name)
    vector_image(s, name, lanes, row=row, step=extent(s, outer[-1]) or 1)
    parallelize(s, outer[:2])


def vector_image(
    s: Schedule, block: str, lanes: int, *, row: str = "", step: int = 1
) -> None:
    """Vectorize the copy of a padded image: inner columns need no bounds check.

    Args:
        block: The copying block.
        lanes: Elements of a vector.
        row: The loop over all elements, if the lines are flattened.
        step: The image's step between copied columns.
    """
    line, low, size = _line(s, block)
    first, last = max(-(-low // step), 0), (low + size - step) // step + 1
    column = s.split(row, [None, line])[1] if row and line else s.loops(block)[-1]
    length = extent(s, column) or 0
    last = min(last, length)
    if last <= first:
        return
    part = cut_at(s, block, column, first)[1] if first else block
    if last < length:
        cut_at(s, part, s.loops(part)[-1], last - first)
    vector_lines(s, part, lanes)


def _line(s: Schedule, name: str) -> tuple[int, int, int]:
    """Elements of a line of the copy, left padding, and columns of the image.

    The place in the image is the copy's last let: `q % line * step + phase - low`.
    """
    block = tree.block_of(tree.find_block(s.function, name))
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
    return line, -linear(place).constant, tree.constant(x.shape[-1]) or 0


def tiles(
    s: Schedule,
    name: str,
    tile: Tile,
    span: int,
    *,
    padded: bool,
    around: Sequence[str] = (),
    block: str = "",
    pixels_first: bool = False,
) -> None:
    """Register tiles over `span` elements: whole ones, then smaller ones.

    If the image is padded, the remainder reads past the last element; otherwise the
    last tile has shorter vectors.

    Args:
        name: The sums: both the block and the buffer it writes.
        tile: The size of whole tiles.
        span: Elements of a row of sums.
        padded: Whether the image may be read past its end.
        around: Loops parallelized with those over tiles; if empty, the sums are
            computed where they are used.
        block: A part of the sums; all of them by default.
        pixels_first: Whether the last of the loops around those over tiles, which is
            over outputs, is inside of them.
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
    parts = [block or name]
    for length, _, _ in sizes[:-1]:
        parts[-1:] = _cut(s, parts[-1], length, apart=bool(around), tall=tall)
    for part, (_, count, lanes) in zip(parts, sizes, strict=True):
        made = _tile(s, part, Tile(tile.rows, count, lanes), name, tall=tall)
        if around:
            order = [*s.loops(part)[: len(around)], made]
            if pixels_first:
                order[-2:] = reversed(order[-2:])
                s.reorder(*order)
            parallelize(s, order)


def _cut(s: Schedule, block: str, at: int, *, apart: bool, tall: bool) -> list[str]:
    """Partition a nest along its pixels, with that loop moved outwards meanwhile.

    Outside all other loops if `apart`, otherwise outside the one over outputs.
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
    """The number of loops around the one over pixels."""
    return len(s.loops(block)) - len(over(s, block)) - 1


def over(s: Schedule, block: str) -> tuple[str, ...]:
    """The block's reduction loops."""
    found = tree.block_of(tree.find_block(s.function, block))
    values = [a.value for a in found.axes if a.kind == "reduction"]
    names = {v.name for v in values if isinstance(v, Var)}
    return tuple(loop for loop in s.loops(block) if loop in names)


def _tile(s: Schedule, block: str, tile: Tile, name: str, *, tall: bool) -> str:
    """Build tiles of one size; returns the loop over them."""
    place = _place(s, block)
    loops = s.loops(block)
    outputs = loops[place - 1 : place] if tall else ()
    q, folded = loops[place], loops[place + 1 :]
    around, vector, lane = s.split(q, [None, tile.vectors, tile.lanes])
    s.reorder(around, *folded, *outputs, vector, lane)
    write, registers = s.cache_write(block, name, "register", at=around)
    dims = len(tree.find_buffer(s.function, registers).shape)
    given = [f"d{n}" for n in range(dims)]
    row = f"{given[-2]} * {tile.vectors * tile.lanes} + {given[-1]}"
    laid = ", ".join([*given[:-2], row])
    s.transform_layout(registers, f"lambda {', '.join(given)}: ({laid})")
    for loop in (*folded[-1:], *outputs, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, around, tile.lanes)
    return around


def most_steps(length: int, products: int) -> int:
    """The most steps of a sum, of its length, whose products make a loop's body.

    Beside the few products of one step, counting would take much of the time.
    """
    return max(n for n in divisors(length) if n == 1 or n * products <= MOST_TAPS)


def line_tiles(
    s: Schedule, block: str, folded: int, lanes: int, most: int | None = None
) -> list[str]:
    """Register tiles of vectors of a line, and a shorter one for what remains.

    Args:
        folded: Loops inside the one over columns, which are unrolled.
        lanes: Elements of a vector.
        most: Iterations above which only the innermost of these is unrolled.

    Returns:
        The loops over the vectors of each part.
    """
    column = s.loops(block)[-folded - 1]
    length = extent(s, column) or 1
    whole = length // lanes * lanes
    parts = cut_at(s, block, column, whole) if 0 < whole < length else [block]
    output, found = written(s, block), []
    for part in parts:
        column, *inner = s.loops(part)[-folded - 1 :]
        count = min(lanes, extent(s, column) or 1)
        around, lane = s.split(column, [None, count])
        s.reorder(around, *inner, lane)
        write, _ = s.cache_write(part, output, "register", at=around)
        many = most is not None and prod(extents(s, inner)) > most
        for loop in inner[-1:] if many else inner:
            s.unroll(loop)
        s.vectorize(lane)
        write_back(s, write, around, count)
        found.append(around)
    return found


def vector_lines(s: Schedule, result: str, lanes: int) -> None:
    """Vectorize the results of a line."""
    loop = s.loops(result)[-1]
    length = extent(s, loop) or 1
    whole = length // lanes * lanes
    parts = cut_at(s, result, loop, whole) if 0 < whole < length else [result]
    for part in parts:
        loop = s.loops(part)[-1]
        _, lane = s.split(loop, [None, min(lanes, extent(s, loop) or 1)])
        s.vectorize(lane)
