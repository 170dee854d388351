"""Convolutions on flattened images: register tiles of outputs by vectors of pixels.

for unit in parallel(batch * lines // R * outputs // rows):
    sums, sums_1, ... = alloc(f32[phases, rows, R * pitch])
    for phase, q_0 in range(...):             # of each part of a transposed convolution
        acc = alloc(f32[rows, vectors * lanes], scope="register")
        for c, ky, kx in range(...):
            for o in unrolled(rows):
                for v in unrolled(vectors):
                    for lane in vectorized(lanes): acc[...] += image[...] * w[...]
    for o, u in range(...):
        for t, r in unrolled(strides):        # a line of each phase
            for lane in vectorized(lanes): y[...] = sums[...]

Each output of a tile reads its own row of weights sequentially and broadcasts each
weight to a few vectors of pixels. Results drop the elements between the lines. The
stores of all phases of a line are adjacent and combine into one.

Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
architectures", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Binary, Const
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import substitute, walk
from tensorlang.schedules.convolution.model import VECTORS, Work, choose, compared
from tensorlang.schedules.convolution.products import (
    Product,
    loads,
    makers,
    only,
    readers,
    rearranged,
)
from tensorlang.schedules.convolution.tiles import (
    Tile,
    copied_image,
    core,
    extents,
    over,
    tiles,
    vector_lines,
)
from tensorlang.schedules.stages import stages
from tensorlang.schedules.tiling import cut_at, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import block_of, constant, find_block

_MOST_INTERLEAVED: Final = 8  # stores that can be combined into one


def forward(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> set[str]:
    """Register tiles of outputs by flattened pixels, then the results."""
    first, names = sums[0], [product.name for product in sums]
    results = readers(s, *names)
    image = rearranged(s, first.image.buffer)
    weights = [maker.name for maker in makers(s, first.other.buffer)]
    for name in weights:
        parallelize(s, s.loops(name)[:1])
    if image:
        copied_image(s, image)
    if results:
        _units(s, sums, only(results, "reader"), knobs, padded=bool(image))
    else:
        _pixels(s, only(sums, "convolution"), knobs)
    return {*names, *weights, *results} | ({image} if image else set())


# ----------------------------------------------------------------------- sums


def _chosen(s: Schedule, knobs: Knobs, name: str, work: Work) -> tuple[Tile, int]:
    """The tile and the lines per unit: knobs, by default the cheapest."""
    found = core(s, name)
    tile, lines = choose(work, found)
    knobs.compared.append(partial(compared, work, found))
    rows = knobs.choice("rows", work.tile_rows, default=tile.rows)
    vectors = knobs.choice("vectors", VECTORS, default=tile.vectors)
    lines = knobs.choice("lines", work.cuts, default=lines)
    return Tile(rows, vectors, found.lanes), lines


def _units(
    s: Schedule, sums: Sequence[Product], result: str, knobs: Knobs, *, padded: bool
) -> None:
    """Units of outputs by lines: compute all sums, then extract the results."""
    first = sums[0]
    outer, place = _result_loops(s, first, result)
    last = s.loops(result)[-1] not in place
    strides = _strides(s, result, place)
    work = _work(s, sums, result, strides)
    tile, lines = _chosen(s, knobs, first.name, work)
    around, inside = list(outer), []
    if not first.depthwise:
        some, one = s.split(outer[-1], [None, work.unit_outputs(tile.rows)])
        around, inside = [*outer[:-1], some], [one]
    if work.whole:
        several, line = s.split(place[0], [None, lines * strides[0]])
        around, place = [*around, several], (line, *place[1:])
    s.reorder(*around, *((*place, *inside) if last else (*inside, *place)))
    for product in sums:
        _tiled(s, product, around[-1], tile, work.outputs, padded=padded)
    if {*strides} == {1}:
        vector_lines(s, result, tile.lanes)
    else:
        _interleaved(s, result, place, strides, tile.lanes)
    parallelize(s, around)


def _result_loops(
    s: Schedule, product: Product, result: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops over channels, and over pixels; results may have channels last."""
    block, loops = block_of(find_block(s.function, result)), s.loops(result)
    sums = next(x for x in loads(block) if x.buffer == product.output)
    first = len(loops) - product.rank
    if block.axes[-1].var in sums.indices[:-1]:
        first = 1
    place = loops[first : first + product.rank]
    return tuple(loop for loop in loops if loop not in place), place


def _tiled(
    s: Schedule, product: Product, at: str, tile: Tile, outputs: int, *, padded: bool
) -> None:
    """The sums that a unit of work needs, in tiles of rows and of what remains."""
    name = product.name
    s.compute_at(name, at)
    q = len(s.loops(name)) - len(over(s, name)) - 1
    span, parts = extent(s, s.loops(name)[q]) or 1, [(name, tile.rows)]
    if outputs % tile.rows:
        parts = _row_parts(s, name, s.loops(name)[q - 1], tile.rows)
    for block, rows in parts:
        size = replace(tile, rows=rows)
        tiles(s, name, size, span, padded=padded, block=block)


def _row_parts(
    s: Schedule, name: str, outputs: str, rows: int
) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of the remaining outputs, with a tile's outputs."""
    count = extent(s, outputs) or 1
    block, rest = cut_at(s, name, outputs, count // rows * rows)
    if count > 2 * rows:
        s.split(outputs, [None, rows])
    return [(block, rows), (rest, count % rows)]


def _work(
    s: Schedule, sums: Sequence[Product], result: str, strides: Sequence[int]
) -> Work:
    """The problem size."""
    first = sums[0]
    outer, place = _result_loops(s, first, result)
    pitch = _pitch(s, first, result, place, strides)
    sizes = [-(-n // step) for n, step in zip(extents(s, place), strides, strict=True)]
    last = sum((n - 1) * p for n, p in zip(sizes[1:], pitch[1:], strict=True)) + 1
    if {*strides} != {1}:
        last = pitch[0]  # else many units of a line each would seem cheapest
    parts = [
        (prod(extents(s, each.phases)), prod(extents(s, (*each.k, *each.taps))))
        for each in sums
    ]
    groups, outputs = outer[1:], 1
    if not first.depthwise:
        groups, outputs = groups[:-1], extent(s, groups[-1]) or 1
    several = strides[0] == 1 or len(place) > 1
    whole = several and (extent(s, place[0]) or 1) % strides[0] == 0
    units = prod(extents(s, groups))
    planes = _elements(first) / units / (sizes[0] * pitch[0])
    size = first.output.dtype.bytes
    return Work(outputs, planes, sizes[0], pitch[0], last, parts, units, size, whole)


def _elements(product: Product) -> int:
    """The number of elements of an image, if known."""
    return prod(constant(size) or 1 for size in product.image.buffer.shape[1:])


def _strides(s: Schedule, result: str, place: Sequence[str]) -> list[int]:
    """Phases along each dimension: the moduli applied to pixel indices."""
    block = block_of(find_block(s.function, result))
    axes = {axis.value: axis.var for axis in block.axes}
    named = {v.name: var for v, var in axes.items() if hasattr(v, "name")}
    found = {
        n.a: int(n.b.value)
        for n in walk(block)
        if isinstance(n, Binary) and n.op == "floormod" and isinstance(n.b, Const)
    }
    return [found.get(named[loop], 1) if loop in named else 1 for loop in place]


def _pitch(
    s: Schedule,
    product: Product,
    result: str,
    place: Sequence[str],
    strides: Sequence[int],
) -> list[int]:
    """Elements of the sums between neighbours of a phase, per dimension."""
    stage = next(each for each in stages(s.function) if each.name == result)
    load = next(each for each in stage.loads if each.buffer == product.output)
    axes = {loop.var.name: stage.axis(loop) for loop in stage.loops}
    pairs = zip(place, strides, strict=True)
    apart = {axes[x]: axes[x] * step for x, step in pairs if x in axes}
    steps = dict(linear(simplify(substitute(load.indices[-1], apart))).terms)
    return [steps[axes[x]] if x in axes else 1 for x in place]


def _interleaved(
    s: Schedule, result: str, place: Sequence[str], strides: Sequence[int], lanes: int
) -> None:
    """Store a line's results: vectors of each phase, interleaved."""
    for loop, stride in zip(place[:-1], strides, strict=False):
        if 1 < stride <= _MOST_INTERLEAVED and (extent(s, loop) or 1) % stride == 0:
            s.unroll(s.split(loop, [None, stride])[1])
    stride = strides[-1]
    if stride > _MOST_INTERLEAVED:
        return
    column = s.loops(result)[-1]
    length = extent(s, column) or 1
    pixels = length // stride
    parts = []
    block = result
    for size in (pixels // lanes * lanes * stride, pixels % lanes * stride):
        done = length - (extent(s, s.loops(block)[-1]) or 0)
        if size and size + done < length:
            first, block = cut_at(s, block, s.loops(block)[-1], size)
            parts.append((first, size))
        elif size:
            parts.append((block, size))
    for part, size in parts:
        count = min(lanes, size // stride)
        _, lane, phase = s.split(s.loops(part)[-1], [None, count, stride])
        s.reorder(phase, lane)
        s.unroll(phase)
        s.vectorize(lane)


def _pixels(s: Schedule, product: Product, knobs: Knobs) -> None:
    """Single-pixel windows: the sums are the results, without gaps."""
    batch, *groups, output, q, channel, tap = s.loops(product.name)
    length, steps = extent(s, q) or 1, extent(s, channel) or 1
    outputs = extent(s, output) or 1
    work = Work(
        outputs,
        planes=steps,
        lines=1,
        pitch=length,
        last=length,
        parts=[(1, steps)],
        units=prod(extents(s, groups)),
        bytes=product.output.dtype.bytes,
        scratch=False,
    )
    orders = [work, replace(work, pixels_first=True)]
    model = core(s, product.name)
    best = min(
        orders, key=lambda each: each.nest(model, *choose(each, model)).cycles(model)
    )
    first = knobs.flag("pixels_first", default=best.pixels_first)
    tile, _ = _chosen(s, knobs, product.name, orders[first])
    some, one = s.split(output, [None, tile.rows])
    s.reorder(batch, *groups, some, one, q, channel, tap)
    around = [batch, *groups, some]
    tiles(
        s,
        product.name,
        tile,
        length,
        padded=False,
        around=around,
        pixels_first=first,
    )
