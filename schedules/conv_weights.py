"""Weight gradients by lanes: dot products of flattened images.

for unit in parallel(outputs // rows * inputs // columns):
    parts = alloc(f32[rows, columns, lanes], scope="register")
    for b, s in range(...):
        for o, c in unrolled(rows, columns):
            for lane in vectorized(lanes): parts[...] += spaced[...] * image[...]
    dw[...] = the sum of the lanes
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as every
from math import prod
from typing import Final

from tensorlang.schedules.conv_tiles import copied_image, core, extents
from tensorlang.schedules.core import REFILL
from tensorlang.schedules.products import Product, rearranged
from tensorlang.schedules.tile_model import Nest, fastest
from tensorlang.schedules.tiling import parallelize
from tensorlang.schedules.traffic import Operand
from tensorlang.scheduling import Knobs, Schedule

_ROWS: Final = tuple(range(1, 15))


def weights(s: Schedule, knobs: Knobs, product: Product, dw: str) -> set[str]:
    """Weight gradients: tiles of outputs, inputs and a window's columns.

    Each step multiplies a vector of each output's row by one of each input's and
    column's; the lanes are summed at the end of the rows.
    """
    part, operands = product.name, (product.image.buffer, product.other.buffer)
    copies = [name for buffer in operands if (name := rearranged(s, buffer))]
    for name in copies:
        copied_image(s, name)
    *outer, lane = s.loops(dw)
    rank = len(product.places)
    *groups, output, channel = outer[:-rank]
    window = outer[-rank:]
    rows, columns = _weight_tile(s, product, output, channel, window, knobs)
    some, one = s.split(output, [None, rows])
    several, each = s.split(channel, [None, columns])
    around = [*groups, some, several, *window[:-1]]
    inner = [one, each, window[-1]]
    s.reorder(*around, *inner, lane)
    s.compute_at(part, around[-1])
    place = s.loops(part).index(around[-1]) + 1
    *tile, lanes, batch, step = s.loops(part)[place:]
    s.reorder(batch, step, *tile, lanes)
    write, _ = s.cache_write(part, part, "register", at=around[-1])
    back = s.loops(write)[place:]
    for loop in (*tile, *back[:-1], *inner):
        s.unroll(loop)
    for loop in (lanes, back[-1], lane):
        s.vectorize(loop)
    parallelize(s, around)
    return {*copies, part, dw}


def _weight_tile(  # noqa: PLR0917 - the loops of a tile
    s: Schedule,
    product: Product,
    output: str,
    channel: str,
    window: Sequence[str],
    knobs: Knobs,
) -> tuple[int, int]:
    """Outputs and inputs of a tile: the fastest, as predicted."""
    model = core(s, product.name)
    outputs, channels, taps = extents(s, (output, channel, window[-1]))
    steps, windows = prod(extents(s, product.taps)), prod(extents(s, window[:-1]))
    rows = [n for n in _ROWS if outputs % n == 0]
    columns = [n for n in _ROWS if channels % n == 0]
    size = product.output.dtype.bytes
    read = (Operand("mk", "k", 0, size), Operand("nk", "k", 0, size))

    def nest(tile: tuple[int, int]) -> Nest:
        row, column = tile
        sums = row * column * taps
        step = model.dots(row, column * taps, size)
        loops = (("m", outputs / row), ("n", channels / column), ("t", float(windows)))
        count = prod(trips for _, trips in loops)
        busy = count * (steps * step + REFILL + model.latency + sums)
        block = {"m": row, "n": column, "k": steps * model.lanes, "t": 1.0}
        return Nest(busy, count, loops, block, read)

    best = fastest(model, every(rows, columns), nest) or (1, 1)
    return (
        knobs.choice("outputs", rows, default=best[0]),
        knobs.choice("inputs", columns, default=best[1]),
    )
