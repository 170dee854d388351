"""Weight gradients as outer products: tiles of image elements by output vectors.

for unit in parallel(outputs // (vectors * lanes) * channels // rows):
    products = alloc(f32[window, rows, vectors * lanes])
    for ky in range(...):
        acc = alloc(f32[kx * rows, vectors * lanes], scope="register")
        for b, i, j_0 in range(...):
            for j_1, kx, c, v in unrolled(...):
                for lane in vectorized(lanes): acc[...] += image[...] * pixels[...]
    dw[...] = products[...]     # outputs first
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.integers.indices import linear
from tensorlang.schedules.contraction.space import ROWS, VECTORS
from tensorlang.schedules.convolution.products import Product, makers, rearranged
from tensorlang.schedules.convolution.tiles import (
    core,
    extents,
    most_steps,
    over,
    vector_image,
    vector_lines,
)
from tensorlang.schedules.cost.core import Core
from tensorlang.schedules.cost.tiles import Nest, compared, fastest, tile_cycles
from tensorlang.schedules.cost.traffic import Operand
from tensorlang.schedules.tiling import cut_at, extent, parallelize, write_back
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import find_buffer

_RESOLVED: Final = 0.02  # share of a tile's time that is not worth other loops
_FEW_STRIPS: Final = 8  # vectors of channels to distribute over threads


@frozen
class _Tile:
    """Channels, window columns and output vectors whose sums stay in registers."""

    rows: int
    taps: int
    vectors: int

    @property
    def sums(self) -> int:
        """Registers of sums."""
        return self.rows * self.taps * self.vectors


def outer_products(s: Schedule, knobs: Knobs, product: Product, dw: str) -> set[str]:
    """Copies, products, and weights in their layout."""
    model = core(s, product.name)
    lanes = model.lanes
    image = rearranged(s, product.image.buffer)
    pixels = [maker.name for maker in makers(s, product.other.buffer)]
    images = [maker.name for maker in makers(s, product.image.buffer)]
    copies = [*images, *pixels]
    rank = len(product.places)
    if product.depthwise:
        _copied(s, copies, image if product.lines else None, lanes)
        _depthwise(s, product, model)
        return {*copies, product.name}
    *own, channel = s.loops(dw)[:-rank]
    window, output = s.loops(dw)[-rank:], own[-1]
    tile = _chosen(s, knobs, product, (output, channel, *window))
    for name in pixels[-1:]:
        _packed(s, name, rank, tile.vectors * lanes)
    if image and not product.lines and (extent(s, channel) or 1) % lanes == 0:
        _packed(s, image, rank, lanes)
    _copied(s, copies, image if product.lines else None, lanes)
    some, one = s.split(output, [None, tile.vectors * lanes])
    several, each = s.split(channel, [None, tile.rows])
    around = [*own[:-1], some, several]
    count = prod(extents(s, around))
    if rank > 1 and count < model.threads:
        around.append(window[0])
    inside = [loop for loop in window if loop not in around]
    s.reorder(*around, one, each, *inside)
    s.compute_at(product.name, around[-1])
    _tile(s, product, tile, around[-1], model)
    for loop in inside[-1:]:
        s.unroll(loop)
    parallelize(s, around)
    return {*copies, product.name, dw}


def _depthwise(s: Schedule, product: Product, model: Core) -> None:
    """Depthwise: a vector of channels for every window element."""
    name, rank = product.name, len(product.places)
    lanes = model.lanes
    loops = s.loops(name)
    output = loops[rank]
    length = extent(s, output) or 1
    whole = length // lanes * lanes
    s.reorder(output, *loops[:rank], *loops[rank + 1 :])
    parts = cut_at(s, name, output, whole) if 0 < whole < length else [name]
    for part in parts:
        output, *inner = s.loops(part)
        count = min(lanes, extent(s, output) or 1)
        several, lane = s.split(output, [None, count])
        first = rank - 1 if length < _FEW_STRIPS * lanes else 0
        while (
            first < rank and prod(extents(s, inner[first:rank])) > model.registers - 4
        ):
            first += 1
        around, taps = [several, *inner[:first]], inner[first:rank]
        s.reorder(*around, *inner[rank:], *taps, lane)
        write, _ = s.cache_write(part, name, "register", at=around[-1])
        for loop in taps:
            s.unroll(loop)
        s.vectorize(lane)
        write_back(s, write, around[-1], count)
        parallelize(s, around)


def _packed(s: Schedule, name: str, rank: int, width: int) -> None:
    """Lay out a copy, channels last, in strips: a unit's data is contiguous."""
    given = [f"d{n}" for n in range(find_buffer(s.function, name).ndim)]
    batch, spatial, *rest = given[0], given[1 : rank + 1], *given[rank + 1 :]
    *groups, channel = rest
    strip, inside = f"{channel} // {width}", f"{channel} % {width}"
    laid = ", ".join([batch, *groups, strip, *spatial, inside])
    s.transform_layout(name, f"lambda {', '.join(given)}: ({laid})")


def _copied(s: Schedule, copies: Sequence[str], image: str | None, lanes: int) -> None:
    """Vectorize copies: one of channels-first images over the columns inside them."""
    for name in copies:
        (vector_image if name == image else vector_lines)(s, name, lanes)
        parallelize(s, s.loops(name)[:2])


def _chosen(s: Schedule, knobs: Knobs, product: Product, loops: Sequence[str]) -> _Tile:
    """The tile: knobs, by default the fastest, as predicted for one image.

    Args:
        product: The sums over pixels.
        loops: The loops over outputs, channels and the window.
    """
    model = core(s, product.name)
    outputs, channels, *window = extents(s, loops)
    strips = -(-outputs // model.lanes)
    pixels = prod(extents(s, product.taps))
    taps = window[-1] if window[-1] + 2 <= model.registers else 1
    size = product.output.dtype.bytes
    operands = (
        Operand("mk", "k", 0, size),
        Operand("nk", "n", 0, size),
        Operand("mtn", "n", 0, size, moves=2),
    )

    def nest(tile: _Tile) -> Nest:
        rows, vectors = tile.rows * taps, tile.vectors
        busy = tile_cycles(model, rows, vectors, pixels)
        around = (("n", strips / vectors), ("m", channels / tile.rows))
        units = prod(trips for _, trips in around)
        windows = prod(window) / taps
        return Nest(
            units * windows * busy,
            units * (window[0] if len(window) > 1 and units < model.threads else 1),
            (*around, ("t", windows)),
            {"m": tile.rows, "n": vectors * model.lanes, "k": pixels, "t": taps},
            operands,
        )

    vectors = [n for n in VECTORS if strips % n == 0]
    rows = [n for n in ROWS if channels % n == 0]
    tiles = [_Tile(r, taps, v) for r in rows for v in vectors]
    fitting = [t for t in tiles if model.holds(t.rows * taps, t.vectors)]
    best = fastest(model, fitting, nest) or tiles[0]
    knobs.compared.append(
        lambda: compared(
            model,
            fitting,
            nest,
            lambda each: {"inputs": each.rows, "output_vectors": each.vectors},
        )
    )
    return _Tile(
        knobs.choice("inputs", rows, default=best.rows),
        taps,
        knobs.choice("output_vectors", vectors, default=best.vectors),
    )


def _tile(s: Schedule, product: Product, tile: _Tile, at: str, model: Core) -> None:
    """Accumulate one unit's sums in registers.

    Images are processed one by one where adding each to the sums takes no time. Several
    pixels are unrolled where the registers hold what neighbours share.
    """
    name = product.name
    loops = s.loops(name)
    folded = over(s, name)
    inner = loops[loops.index(at) + 1 : len(loops) - len(folded)]
    *taps, output = inner
    rows = [taps.pop()] if tile.rows > 1 else []
    columns = [taps.pop()] if tile.taps > 1 else []
    vector, lane = s.split(output, [None, model.lanes])
    batch, *spatial = folded
    size, steps = (tile.rows * tile.taps, tile.vectors), prod(extents(s, spatial))
    whole, ends = (tile_cycles(model, *size, count) for count in (steps, 0))
    added = ends + tile.sums
    apart = added <= _RESOLVED * whole
    taps = [batch, *taps] if apart else taps
    pixels = spatial if apart else [batch, *spatial]
    s.reorder(*taps, *pixels, *columns, *rows, vector, lane)
    around = taps[-1] if taps else at
    write, _ = s.cache_write(name, name, "register", at=around, accumulate=apart)
    column = spatial[-1]
    steps = most_steps(extent(s, column) or 1, tile.sums)
    shared = tile.rows * max(tile.taps - _apart(product), 0)
    if steps > 1 and tile.sums + tile.vectors + shared < model.registers:
        s.unroll(s.split(column, [None, steps])[1])
    for loop in (*columns, *rows, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, around, model.lanes)


def _apart(product: Product) -> int:
    """Columns of the image from a pixel to the next one."""
    (column,) = product.axes(product.taps[-1:])
    found = [
        dict(linear(index).terms).get(column, 0) for index in product.image.indices
    ]
    return max(found)
