"""Convolutions in channels-last layout: register tiles of pixels by outputs.

for unit in parallel(batch * outputs // (vectors * lanes) * lines):
    for j_0 in range(columns // rows):
        acc = alloc(f32[rows, vectors * lanes], scope="register")
        for c, ky, kx in range(...):
            for j in unrolled(rows):
                for v in unrolled(vectors):
                    for lane in vectorized(lanes): acc[...] += frame[...] * packed[...]
        y[...] = acc[...]

A unit's weights are packed contiguously, in the order in which they are read.
Depthwise, a tile holds pixels for one vector of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Load, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.conv_tiles import (
    extents,
    over,
    vector_lines,
    width,
    write_back,
)
from tensorlang.schedules.generic import generic
from tensorlang.schedules.outer_products import outer_products
from tensorlang.schedules.tiling import cut_at, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.tree import block_of, find_block, find_buffer

_ROWS: Final = tuple(range(1, 15))
_VECTORS: Final = (1, 2, 3, 4)
_HIDING: Final = 8  # sums that hide the latency of a fused multiply-add
_FEW_SUMS: Final = 16  # leaving registers for values shared by neighbouring taps
_MOST_TAPS: Final = 128  # unrolled products of a tile
_MOST_BYTES: Final = 5 << 17  # of a unit's weights: they stay in the L2 cache


@dataclass(frozen=True, slots=True)
class _Tile:
    """Pixels by vectors of outputs."""

    rows: int
    vectors: int
    lanes: int

    @property
    def wide(self) -> int:
        """Outputs per tile."""
        return self.vectors * self.lanes

    def cost(self, rows: int) -> float:
        """Half cycles per step of a tile of `rows` pixels, by its bottleneck."""
        sums = rows * self.vectors
        return max(sums, _HIDING, rows + 2 * self.vectors) if rows else 0.0


@schedule("conv", algorithm="last")
def last(s: Schedule, knobs: Knobs) -> None:
    """Register tiles for the sums of each phase, then the blocks computed from them."""
    names = [block.name for block in blocks(s.function)]
    lanes, _ = width(s)
    for name in ("wide", "frame"):
        if name in names:
            vector_lines(s, name, lanes)
            parallelize(s, s.loops(name)[:2])
    sums = [name for name in names if name.startswith("sums")]
    tile = _chosen(s, knobs, sums)
    _pack(s, tile)
    for name in sums:
        _summed(s, name, tile)
    results = [n for n in names if n not in sums and _read(s, n) & set(sums)]
    for result in results:
        if not s.attempt(partial(s.inline, reverse=True), result):
            vector_lines(s, result, lanes)
            parallelize(s, s.loops(result)[:2])
    done = {"wide", "frame", "packed", *sums, *results}
    if "products" in names:
        done |= outer_products(s, names, knobs)
    if set(names) - done:
        generic(s, knobs)


def _read(s: Schedule, block: str) -> set[str]:
    """The names of the buffers that a block reads but does not write."""
    found = walk(block_of(find_block(s.function, block)))
    return {n.buffer.name for n in found if isinstance(n, Load)} - {block}


def _pack(s: Schedule, tile: _Tile) -> None:
    """Pack the weights in strips as wide as a tile's outputs."""
    given = [f"d{n}" for n in range(find_buffer(s.function, "packed").ndim)]
    *rest, output = given
    groups = rest[:1] if s.loops("packed")[0].startswith("g") else []
    rest = rest[len(groups) :]
    strip, inside = f"{output} // {tile.wide}", f"{output} % {tile.wide}"
    laid = ", ".join([*groups, strip, *rest, inside])
    s.transform_layout("packed", f"lambda {', '.join(given)}: ({laid})")
    if _is_depthwise(s, "sums") or not _far(s):
        vector_lines(s, "packed", tile.lanes)
        parallelize(s, s.loops("packed")[:1])
        return
    *outer, output = s.loops("packed")
    s.reorder(output, *outer)  # few rows of weights at a time
    length = extent(s, output) or 1
    whole = length // tile.lanes * tile.lanes
    parts = cut_at(s, "packed", output, whole) if 0 < whole < length else ["packed"]
    for part in parts:
        output, *outer = s.loops(part)
        lanes = min(tile.lanes, extent(s, output) or 1)
        several, lane = s.split(output, [None, lanes])
        s.reorder(several, *outer, lane)
        s.vectorize(lane)
        parallelize(s, [several, outer[0]])


def _far(s: Schedule) -> bool:
    """Whether a vector of weights is gathered from rows of all inputs' windows."""
    block = block_of(find_block(s.function, "packed"))
    (load,) = {n for n in walk(block) if isinstance(n, Load)}
    named = {a.value.name: a.var for a in block.axes if isinstance(a.value, Var)}
    places = [load.indices.index(named[of]) for of in s.loops("packed")]
    inputs = [loop.startswith("c") for loop in s.loops("packed")].index(True)
    return places[inputs] > places[-1]


def _chosen(s: Schedule, knobs: Knobs, sums: Sequence[str]) -> _Tile:
    """The tile: knobs, by default the cheapest for the shape."""
    lanes, registers = width(s)
    spatial = s.loops("sums")[: -len(over(s, "sums"))]
    outputs = extent(s, spatial[-1]) or 1
    groups = sum(loop.startswith("g") for loop in spatial)
    columns = extent(s, spatial[-2 - groups]) or 1
    steps = max(prod(extents(s, over(s, name))) for name in sums)
    depthwise = _is_depthwise(s, "sums")
    whole = -(-outputs // lanes)

    def cost(tile: _Tile) -> tuple[float, int]:
        full = tile.rows * tile.vectors + tile.vectors + 2 > registers
        strips, left = divmod(columns, tile.rows)
        each = strips * tile.cost(tile.rows) + tile.cost(left)
        far = 1.2 if tile.wide * steps * 4 > _MOST_BYTES else 1.0
        count = -(-whole // tile.vectors) * each * far
        sums = tile.rows * tile.vectors
        return (float("inf") if full else count), abs(sums - _FEW_SUMS)

    vectors = [1] if depthwise else [n for n in _VECTORS if n <= whole]
    tiles = [_Tile(r, v, lanes) for r in _ROWS for v in vectors if r <= columns]
    if depthwise:
        tiles = [t for t in tiles if t.rows * steps <= _MOST_TAPS] or tiles[:1]
    best = min(tiles, key=cost)
    return _Tile(
        knobs.choice("rows", _ROWS, default=best.rows),
        knobs.choice("vectors", _VECTORS, default=best.vectors),
        lanes,
    )


def _is_depthwise(s: Schedule, block: str) -> bool:
    """Whether the convolution is depthwise."""
    return not any(loop.startswith("c") for loop in over(s, block))


def _summed(s: Schedule, name: str, tile: _Tile) -> None:
    """The sums of a phase, a line at a time: whole tiles, then remainders."""
    folded = over(s, name)
    depthwise = _is_depthwise(s, name)
    outer = s.loops(name)[: -len(folded)]
    output = outer[-1]
    sizes = _pieces(extent(s, output) or 1, tile)
    s.reorder(output, *outer[:-1], *folded)
    found = [name]
    for size, _, _ in sizes[:-1]:
        found[-1:] = cut_at(s, found[-1], s.loops(found[-1])[0], size)
    for part, (_, vectors, lanes) in zip(found, sizes, strict=True):
        how = _Tile(tile.rows, vectors, lanes)
        _piece(s, part, name, how, len(folded), depthwise=depthwise)


def _pieces(length: int, tile: _Tile) -> list[tuple[int, int, int]]:
    """Outputs, vectors and lanes of whole tiles, whole vectors, and the remainder."""
    whole = length // tile.wide * tile.wide
    vectors, left = divmod(length - whole, tile.lanes)
    found = [
        (whole, tile.vectors, tile.lanes),
        (vectors * tile.lanes, vectors, tile.lanes),
        (left, 1, left),
    ]
    return [piece for piece in found if piece[0]]


def _piece(
    s: Schedule, part: str, name: str, tile: _Tile, folds: int, *, depthwise: bool
) -> None:
    """Tiles of one width; the loop over outputs is outermost."""
    output, *around = s.loops(part)[:-folds]
    folded = s.loops(part)[-folds:]
    groups = [loop for loop in around if loop.startswith("g")]
    *lines, column = [loop for loop in around if loop not in groups]
    strip, vector, lane = s.split(output, [None, tile.vectors, tile.lanes])
    order = [lines[0], *groups, strip, *lines[1:]]
    s.reorder(*order, column, *folded, vector, lane)
    pieces = [part]
    columns = extent(s, column) or 1
    if columns > tile.rows and columns % tile.rows:
        pieces = cut_at(s, part, column, columns // tile.rows * tile.rows)
    for piece in pieces:
        _tile(s, piece, name, tile, folds, depthwise=depthwise)
    parallelize(s, s.loops(part)[: len(order)])


def _tile(
    s: Schedule, piece: str, name: str, tile: _Tile, folds: int, *, depthwise: bool
) -> None:
    """Build one register tile."""
    *_, column = s.loops(piece)[: -folds - 2]
    *folded, vector, lane = s.loops(piece)[-folds - 2 :]
    rows = min(tile.rows, extent(s, column) or 1)
    tall, row = s.split(column, [None, rows])
    s.reorder(tall, *folded, row, vector, lane)
    write, _ = s.cache_write(piece, name, "register", at=tall)
    written = folded[-1:] if rows * tile.vectors <= _FEW_SUMS else []
    if depthwise and rows * prod(extents(s, folded)) <= _MOST_TAPS:
        written = folded
    for loop in (*written, row, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, tall, tile.lanes)
