"""Weight gradients by lanes: dot products of flattened images.

for unit in parallel(outputs // rows * inputs // columns):
    parts = alloc(f32[rows, columns, lanes], scope="register")
    for b, s in range(...):
        for o, c in unrolled(rows, columns):
            for lane in vectorized(lanes): parts[...] += spaced[...] * image[...]
    dw[...] = the sum of the lanes
"""

from __future__ import annotations

from typing import Final

from tensorlang.schedules.conv_tiles import copied_image, width
from tensorlang.schedules.products import Product, rearranged
from tensorlang.schedules.tiling import extent, parallelize
from tensorlang.scheduling import Knobs, Schedule

_MOST_ROWS: Final = 14


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
    rows, columns = _weight_tile(s, part, output, channel, window[-1], knobs)
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
    s: Schedule, part: str, output: str, channel: str, tap: str, knobs: Knobs
) -> tuple[int, int]:
    """Outputs and inputs of a tile: the most products per load."""
    _, registers = width(s, part)
    taps = extent(s, tap) or 1
    outputs, channels = extent(s, output) or 1, extent(s, channel) or 1
    rows = [n for n in range(1, _MOST_ROWS + 1) if outputs % n == 0]
    columns = [n for n in range(1, _MOST_ROWS + 1) if channels % n == 0]

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        row, column = tile
        products = row * column * taps
        if products + min(row, column * taps) + 2 > registers and products > 1:
            return float("inf"), products
        return max(products, 8, row + 2 * column * taps) / products, -products

    best = min(((r, c) for r in rows for c in columns), key=cost)
    return (
        knobs.choice("outputs", rows, default=best[0]),
        knobs.choice("inputs", columns, default=best[1]),
    )
