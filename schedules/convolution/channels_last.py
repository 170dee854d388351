"""Convolutions in channels-last layout: register tiles of pixels by outputs.

for unit in parallel(batch * outputs // (vectors * lanes) * lines):
    for j_0 in range(columns // rows):
        acc = alloc(f32[rows, vectors * lanes], scope="register")
        for ky, kx, c_0 in range(...):
            for c_1, j in unrolled(steps, rows):
                for v in unrolled(vectors):
                    for lane in vectorized(lanes): acc[...] += frame[...] * packed[...]
        y[...] = acc[...]

A unit's weights are packed contiguously, in the order in which they are read. Inputs
are summed innermost: pixels of many channels lie so far apart that the few lines of a
window would evict each other from the L1 cache between two of its elements. Where the
inputs of neighbouring taps follow each other, kx and c are one loop. A few inputs are
unrolled: beside the products of a small tile, counting would take much of the time.
Depthwise, a tile holds pixels for one vector of channels, line after line, and padding
is tested for where the image is read: a vector is inside or outside as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil, gcd, prod

from tensorlang.frozen import frozen
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Var
from tensorlang.schedules.contraction.space import ROWS, VECTORS
from tensorlang.schedules.convolution.products import (
    Product,
    loads,
    makers,
    readers,
    rearranged,
)
from tensorlang.schedules.convolution.tiles import (
    MOST_TAPS,
    core,
    extents,
    most_steps,
    vector_lines,
)
from tensorlang.schedules.cost.tiles import Nest, compared, fastest, tiles_cycles
from tensorlang.schedules.cost.traffic import Operand
from tensorlang.schedules.stages import extent_of
from tensorlang.schedules.tiling import (
    cut_at,
    divisors,
    extent,
    fused,
    parallelize,
    write_back,
)
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis import tree


@frozen
class _Tile:
    """Pixels by vectors of outputs."""

    rows: int
    vectors: int
    lanes: int
    steps: int  # inputs that are summed in a loop's body

    @property
    def wide(self) -> int:
        """Outputs per tile."""
        return self.vectors * self.lanes


def forward(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> set[str]:
    """Register tiles for the sums of each phase, then the blocks computed from them."""
    first, names = sums[0], [product.name for product in sums]
    lanes = core(s, first.name).lanes
    copies = [maker.name for maker in makers(s, first.image.buffer)]
    if first.depthwise:
        copies = [name for name in copies if not s.attempt(s.inline, name)]
    for name in copies:
        vector_lines(s, name, lanes)
        parallelize(s, s.loops(name)[:2])
    results = readers(s, *names)
    tile = _chosen(s, knobs, sums)
    packed = rearranged(s, first.other.buffer)
    if packed:
        _pack(s, packed, first, tile)
    for product in sums:
        _summed(s, _in_lines(s, product, tile.steps, packed=bool(packed)), tile)
    for result in results:
        if not s.attempt(partial(s.inline, reverse=True), result):
            vector_lines(s, result, lanes)
            parallelize(s, s.loops(result)[:2])
    return {*copies, *names, *results} | ({packed} if packed else set())


def _pack(s: Schedule, name: str, product: Product, tile: _Tile) -> None:
    """Pack the weights in strips as wide as a tile's outputs."""
    given = [f"d{n}" for n in range(tree.find_buffer(s.function, name).ndim)]
    *rest, output = given
    groups = [] if product.depthwise else rest[: len(product.batch)]
    rest = rest[len(groups) :]
    strip, inside = f"{output} // {tile.wide}", f"{output} % {tile.wide}"
    inputs = rest[: len(product.k)]
    laid = ", ".join([*groups, strip, *rest[len(inputs) :], *inputs, inside])
    s.transform_layout(name, f"lambda {', '.join(given)}: ({laid})")
    if product.depthwise or not _far(s, name, product):
        vector_lines(s, name, tile.lanes)
        parallelize(s, s.loops(name)[:1])
        return
    *outer, output = s.loops(name)
    s.reorder(output, *outer)  # few rows of weights at a time
    length = extent(s, output) or 1
    whole = length // tile.lanes * tile.lanes
    parts = cut_at(s, name, output, whole) if 0 < whole < length else [name]
    for part in parts:
        output, *outer = s.loops(part)
        lanes = min(tile.lanes, extent(s, output) or 1)
        several, lane = s.split(output, [None, lanes])
        s.reorder(several, *outer, lane)
        s.vectorize(lane)
        parallelize(s, [several, outer[0]])


def _far(s: Schedule, name: str, product: Product) -> bool:
    """Whether a vector of weights is gathered from rows of all inputs' windows."""
    block = tree.block_of(tree.find_block(s.function, name))
    (load,) = loads(block)
    named = {a.value.name: a.var for a in block.axes if isinstance(a.value, Var)}
    places = [load.indices.index(named[of]) for of in s.loops(name)]
    inputs = product.axes(product.k)[0]
    return places[product.other.indices.index(inputs)] > places[-1]


def _chosen(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> _Tile:
    """The tile: knobs, by default the fastest, as predicted for one image."""
    first = sums[0]
    model = core(s, first.name)
    (output,) = first.batch[-1:] if first.depthwise else first.n
    *lines, columns = extents(s, first.places)
    strips = -(-(extent(s, output) or 1) // model.lanes)
    steps = max(prod(extents(s, (*each.k, *each.taps))) for each in sums)
    groups = 1 if first.depthwise else prod(extents(s, first.batch))
    pixels = prod(tree.constant(n) or 1 for n in first.image.buffer.shape[1:])
    planes = pixels / (groups * prod(lines) * columns)
    size = first.output.dtype.bytes
    operands = (
        Operand("cyj", "c", 0, size),
        Operand("gnk", "n", 0, size),
        Operand("gyjn", "n", 0, size, moves=2),
    )

    def nest(tile: tuple[int, int]) -> Nest:
        rows, vectors = tile
        line = tiles_cycles(model, columns, strips, steps, tile)
        across = ceil(strips / vectors)
        around = (("g", float(groups)), ("n", strips / vectors), ("y", prod(lines)))
        return Nest(
            groups * prod(lines) * line,
            groups * across * prod(lines),
            (*around, ("j", columns / rows)),
            {"c": planes, "j": rows, "n": vectors * model.lanes, "k": steps}
            | {"g": 1.0, "y": 1.0},
            operands,
        )

    vectors = [1] if first.depthwise else [n for n in VECTORS if n <= strips]
    tiles = [
        (r, v) for r in ROWS for v in vectors if r <= columns and model.holds(r, v)
    ]
    if first.depthwise:
        tiles = [each for each in tiles if each[0] * steps <= MOST_TAPS] or tiles[:1]
    best = fastest(model, tiles, nest) or (1, 1)
    knobs.compared.append(
        lambda: compared(
            model, tiles, nest, lambda each: {"rows": each[0], "vectors": each[1]}
        )
    )
    tall = knobs.choice("rows", ROWS, default=best[0])
    wide = knobs.choice("vectors", VECTORS, default=best[1])
    inputs = gcd(*(extents(s, each.k)[-1] for each in sums)) if first.k else 1
    products = tall * wide * len(sums)  # of a step: all phases are compiled
    several = [n for n in divisors(inputs) if n == 1 or n * products <= 2 * MOST_TAPS]
    most = most_steps(inputs, products)
    return _Tile(tall, wide, model.lanes, knobs.choice("steps", several, default=most))


def _in_lines(s: Schedule, product: Product, steps: int, *, packed: bool) -> Product:
    """The product with its last taps and inputs in one loop, if they are contiguous.

    In packed weights they always are. Some steps of the inputs are a loop of their own.
    """
    if not product.k:
        return product
    *_, column, channel = product.image.indices
    size = tree.constant(product.image.buffer.shape[-1])
    sizes = [extent_of(x) for x in product.stage.loops if x.var.name in product.k]
    whole = product.axes(product.k) == [channel] and sizes == [size]
    (*taps, tap), (axis,) = product.taps, product.axes(product.taps[-1:])
    weights = packed or product.other.indices[-3:-1] == (axis, channel)
    several, step = s.split(product.k[-1], [None, steps])
    s.reorder(*product.taps, *product.k[:-1], several, step)
    if not (whole and weights and dict(linear(column).terms).get(axis) == 1):
        return replace(product, k=(*product.k[:-1], several, step))
    line = fused(s, (tap, several))
    return replace(product, taps=tuple(taps), k=(line, step))


def _summed(s: Schedule, product: Product, tile: _Tile) -> None:
    """The sums of a phase, a line at a time: whole tiles, then remainders."""
    name, folded = product.name, (*product.taps, *product.k)
    outer = s.loops(name)[: -len(folded)]
    output = outer[-1]
    sizes = _pieces(extent(s, output) or 1, tile)
    s.reorder(output, *outer[:-1], *folded)
    found = [name]
    for size, _, _ in sizes[:-1]:
        found[-1:] = cut_at(s, found[-1], s.loops(found[-1])[0], size)
    for part, (_, vectors, lanes) in zip(found, sizes, strict=True):
        _piece(s, part, product, replace(tile, vectors=vectors, lanes=lanes))


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


def _piece(s: Schedule, part: str, product: Product, tile: _Tile) -> None:
    """Tiles of one width; the loop over outputs is outermost."""
    folds = len(product.k) + len(product.taps)
    output, *around = s.loops(part)[:-folds]
    folded = s.loops(part)[-folds:]
    groups = [] if product.depthwise else around[len(around) - len(product.batch) :]
    *lines, column = around[: len(around) - len(groups)]
    strip, vector, lane = s.split(output, [None, tile.vectors, tile.lanes])
    order = [lines[0], *groups, strip, *lines[1:]]  # a strip's weights stay in a cache
    if product.depthwise:  # all weights do, and a line's pixels are contiguous
        order = [*lines, strip]
    s.reorder(*order, column, *folded, vector, lane)
    pieces = [part]
    columns = extent(s, column) or 1
    if columns > tile.rows and columns % tile.rows:
        pieces = cut_at(s, part, column, columns // tile.rows * tile.rows)
    for piece in pieces:
        _tile(s, piece, product, tile)
    parallelize(s, s.loops(part)[: len(order)])


def _tile(s: Schedule, piece: str, product: Product, tile: _Tile) -> None:
    """Build one register tile."""
    folds = len(product.k) + len(product.taps)
    *_, column = s.loops(piece)[: -folds - 2]
    *folded, vector, lane = s.loops(piece)[-folds - 2 :]
    rows = min(tile.rows, extent(s, column) or 1)
    tall, row = s.split(column, [None, rows])
    s.reorder(tall, *folded, row, vector, lane)
    write, _ = s.cache_write(piece, product.name, "register", at=tall)
    few = 2 * rows * tile.vectors <= core(s, piece).registers
    # neighbouring taps then share values
    written = folded[-1:] if few or product.k else []
    if product.depthwise and rows * prod(extents(s, folded)) <= MOST_TAPS:
        written = folded
    for loop in (*written, row, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, tall, tile.lanes)
