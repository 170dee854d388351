"""Weight gradients as outer products: tiles of image elements by output vectors.

for unit in parallel(outputs // (vectors * lanes) * channels // rows):
    products = alloc(f32[window, rows, vectors * lanes])
    for ky in range(...):
        acc = alloc(f32[kx * rows, vectors * lanes], scope="register")
        for b, i, j in range(...):
            for kx, c, v in unrolled(...):
                for lane in vectorized(lanes): acc[...] += image[...] * pixels[...]
    dw[...] = products[...]     # outputs first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tensorlang.schedules.conv_tiles import (
    extents,
    over,
    vector_image,
    vector_lines,
    width,
)
from tensorlang.schedules.products import Product, makers, rearranged
from tensorlang.schedules.tiling import cut_at, extent, parallelize, write_back
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.tree import find_buffer

_ROWS: Final = tuple(range(1, 15))
_VECTORS: Final = (1, 2, 3, 4)
_ENOUGH_UNITS: Final = 8
_MANY_PIXELS: Final = 256  # per image, from which images are processed one by one
_FEW_STRIPS: Final = 8  # vectors of channels to distribute over threads
_HIDING: Final = 8  # sums that hide the latency of a fused multiply-add


@dataclass(frozen=True, slots=True)
class _Tile:
    """Channels, window columns and output vectors whose sums stay in registers."""

    rows: int
    taps: int
    vectors: int

    @property
    def sums(self) -> int:
        """Registers of sums."""
        return self.rows * self.taps * self.vectors

    @property
    def cost(self) -> float:
        """Half cycles per vector of products, by the bottleneck."""
        loads = self.rows * self.taps + 2 * self.vectors
        return max(self.sums, _HIDING, loads) / self.sums


def outer_products(s: Schedule, knobs: Knobs, product: Product, dw: str) -> set[str]:
    """Copies, products, and weights in their layout."""
    lanes, registers = width(s, product.name)
    image = rearranged(s, product.image.buffer)
    pixels = [maker.name for maker in makers(s, product.other.buffer)]
    images = [maker.name for maker in makers(s, product.image.buffer)]
    copies = [*images, *pixels]
    rank = len(product.places)
    if product.depthwise:
        _copied(s, copies, image if product.lines else None, lanes)
        _depthwise(s, product, lanes, registers)
        return {*copies, product.name}
    *own, channel = s.loops(dw)[:-rank]
    window, output = s.loops(dw)[-rank:], own[-1]
    tile = _chosen(s, knobs, output, channel, window[-1], lanes, registers)
    for name in pixels[-1:]:
        _packed(s, name, rank, tile.vectors * lanes)
    if image and not product.lines and (extent(s, channel) or 1) % lanes == 0:
        _packed(s, image, rank, lanes)
    _copied(s, copies, image if product.lines else None, lanes)
    some, one = s.split(output, [None, tile.vectors * lanes])
    several, each = s.split(channel, [None, tile.rows])
    around = [*own[:-1], some, several]
    count = prod(extents(s, around))
    if rank > 1 and count < _ENOUGH_UNITS:
        around.append(window[0])
    inside = [loop for loop in window if loop not in around]
    s.reorder(*around, one, each, *inside)
    s.compute_at(product.name, around[-1])
    _tile(s, product.name, tile, around[-1], lanes)
    for loop in inside[-1:]:
        s.unroll(loop)
    parallelize(s, around)
    return {*copies, product.name, dw}


def _depthwise(s: Schedule, product: Product, lanes: int, registers: int) -> None:
    """Depthwise: a vector of channels for every window element."""
    name, rank = product.name, len(product.places)
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
        while first < rank and prod(extents(s, inner[first:rank])) > registers - 4:
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


def _chosen(  # noqa: PLR0917 - the parameters of a tile's cost
    s: Schedule,
    knobs: Knobs,
    output: str,
    channel: str,
    tap: str,
    lanes: int,
    registers: int,
) -> _Tile:
    """The tile: knobs, by default the cheapest for the shape."""
    outputs, channels = extent(s, output) or 1, extent(s, channel) or 1
    vectors = [n for n in _VECTORS if -(-outputs // lanes) % n == 0]
    rows = [n for n in _ROWS if channels % n == 0]
    taps = extent(s, tap) or 1
    taps = taps if taps + 2 <= registers else 1

    def cost(tile: _Tile) -> tuple[float, int]:
        full = tile.sums + min(tile.vectors, tile.rows * taps) + 2 > registers
        return (float("inf") if full else tile.cost), tile.sums

    best = min((_Tile(r, taps, v) for r in rows for v in vectors), key=cost)
    return _Tile(
        knobs.choice("inputs", rows, default=best.rows),
        taps,
        knobs.choice("output_vectors", vectors, default=best.vectors),
    )


def _tile(s: Schedule, name: str, tile: _Tile, at: str, lanes: int) -> None:
    """Accumulate one unit's sums in registers."""
    loops = s.loops(name)
    folded = over(s, name)
    inner = loops[loops.index(at) + 1 : len(loops) - len(folded)]
    *taps, output = inner
    rows = [taps.pop()] if tile.rows > 1 else []
    columns = [taps.pop()] if tile.taps > 1 else []
    vector, lane = s.split(output, [None, lanes])
    batch, *spatial = folded
    apart = prod(extents(s, spatial)) >= _MANY_PIXELS
    taps = [batch, *taps] if apart else taps
    pixels = spatial if apart else [batch, *spatial]
    s.reorder(*taps, *pixels, *columns, *rows, vector, lane)
    around = taps[-1] if taps else at
    write, _ = s.cache_write(name, name, "register", at=around, accumulate=apart)
    for loop in (*columns, *rows, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, around, lanes)
