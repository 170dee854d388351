"""Convolutions as matrix products with a row per pixel, by groups of channels.

    padded[b, y, x, c] = ...                    channels last
    sums[b, q, o] += padded[b, q // 56 + ky, q % 56 + kx, c] * w[o, c, ky, kx]

The processor's dot or matrix products take groups of channels; see
`contraction.dot_groups`. Whoever reads the sums goes over them by the same pixels. With
channels first, images are moved in squares, and results are transposed in registers:

    for q_0 in parallel(pixels // 16):
        for b, o_0 in range(...):
            t[o, q] = sums[b, q, o]             a square
            for o_1 in unrolled(16):
                for q_1 in vectorized(16): y[b, o, q] = t[o, q]
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Load, Var
from tensorlang.schedules.convolution.products import Product, makers, stage_reading
from tensorlang.schedules.convolution.tiles import core, vector_lines
from tensorlang.schedules.generic import generic, inline_producers, one_stage
from tensorlang.schedules.stages import Stage
from tensorlang.schedules.tiling import cut, cut_at, extent, fused, parallelize
from tensorlang.scheduling import Knobs, Schedule

_SMALLEST = 4  # side of a square that is transposed in registers


def forward(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> set[str]:
    """Write results by pixels; the sums are a contraction like any other."""
    for image in {p.image.buffer: None for p in sums}:
        for each in makers(s, image):
            s.attempt(_moved, s, each)
    inline_producers(s)
    copies = [each.name for p in sums for each in makers(s, p.image.buffer)]
    for product in sums:
        for way in (_by_pixels, _transposed):
            reader = stage_reading(s, product.output.name)
            if reader is not None:
                s.attempt(way, s, reader, product)
        one_stage(s, knobs, product.name)
    for copy in dict.fromkeys(copies):  # padded by now
        s.attempt(_lines, s, copy)
    generic(s, knobs)
    return set()


def _moved(s: Schedule, stage: Stage) -> None:
    """Move the channels of images last, in squares that are transposed in registers.

    Raises:
        ScheduleError: the stage does something else, or there are too few.
    """
    *outer, pixel, channel = (loop.var.name for loop in stage.loops)
    (load,), last = stage.loads, stage.axis(stage.loops[-1])
    if load.indices[-1] != stage.axis(stage.loops[-2]) or last not in load.indices:
        raise ScheduleError(f"block {stage.name!r} does not move channels")
    if min(extent(s, loop) or 0 for loop in (pixel, channel)) < _SMALLEST:
        raise ScheduleError("there are no squares to transpose")
    sides, parts = _sides(s, stage.name), [stage.name]
    for tall in sides:
        if not parts:
            break
        block, parts = _whole(s, parts[0], tall)
        if not block:
            continue
        rest, (*_, pixel, channel) = [block], s.loops(block)
        chunk, lane = s.split(pixel, [None, tall])
        s.reorder(chunk, channel, lane)
        for side in sides[sides.index(tall) :]:
            if rest:
                square, rest = _whole(s, rest[0], side)
                _transpose(s, square, side, stage.output.dtype)
    parallelize(s, outer)


def _transpose(s: Schedule, block: str, side: int, kind: DType) -> None:
    """Copy whole squares of channels by pixels, if there are any."""
    if block:
        *_, c, q = s.loops(block)
        c_0, c_1 = s.split(c, [None, side])
        q_0, q_1 = s.split(q, [None, side])
        s.reorder(c_0, q_0, c_1, q_1)
        s.tensorize(c_1, f"transpose_{side}x{side}x{kind}")


def _sides(s: Schedule, block: str) -> list[int]:
    """The sides of squares that are transposed in registers, the longest first."""
    model = core(s, block)
    most = min(model.lanes, model.registers // 2)
    return [most >> n for n in range(most.bit_length()) if most >> n >= _SMALLEST]


def _whole(s: Schedule, block: str, side: int) -> tuple[str, list[str]]:
    """The blocks of whole squares along the last loop but one, and of what is left."""
    loop = s.loops(block)[-2]
    length = extent(s, loop) or 0
    if length < side:
        return "", [block]
    whole = length // side * side
    return block, cut_at(s, block, loop, whole)[1:] if whole < length else []


def _lines(s: Schedule, copy: str) -> None:
    """Copy images line by line, channels in vectors."""
    vector_lines(s, copy, core(s, copy).lanes)
    parallelize(s, s.loops(copy)[:2])


def _load(reader: Stage, product: Product) -> Load:
    """The load of the sums."""
    (load,) = (each for each in reader.loads if each.buffer == product.output)
    return load


def _by_pixels(s: Schedule, reader: Stage, product: Product) -> None:
    """Fuse the lines of an image with its columns."""
    for index in _load(reader, product).indices:
        loops = [each for each in reader.loops if reader.axis(each) in free_vars(index)]
        if not isinstance(index, Var) and len(loops) > 1:
            fused(s, [each.var.name for each in loops])
            s.fuse_axes(reader.name, [reader.axis(each).name for each in loops])


def _transposed(s: Schedule, reader: Stage, product: Product) -> None:
    """Transpose squares of the sums where they are read, if pixels come last.

    Raises:
        ScheduleError: they do not, or there are too few.
    """
    *around, output, pixel = reader.loops
    load, axes = _load(reader, product), (reader.axis(pixel), reader.axis(output))
    if load.indices[-1] != axes[1] or axes[0] not in load.indices:
        raise ScheduleError("channels are not moved")
    model = core(s, reader.name)
    side = min(model.lanes, model.registers // 2)
    if min(extent(s, loop.var.name) or 0 for loop in (output, pixel)) < side:
        raise ScheduleError("there are no squares to transpose")
    dims = load.indices.index(axes[0]), len(load.indices) - 1
    block, *rest = cut(s, reader.name, pixel.var.name, side)
    for part in rest:
        _in_lanes(s, part)
    outer = [loop.var.name for loop in around]
    q_0, q_1 = s.split(pixel.var.name, [None, side])
    several = (extent(s, q_0) or 1) >= side
    # not fused with others, so that the pixels of a vector are seen to be contiguous
    order = [q_0, *outer] if several else [*outer, q_0]
    s.reorder(*order, output.var.name, q_1)
    left = [block]
    while left and side >= _SMALLEST:
        (block,), left = left, []
        loop = s.loops(block)[-2]
        length = extent(s, loop) or 1
        whole = length // side * side
        if whole < length:
            left = cut_at(s, block, loop, whole)[1:] if whole else [block]
        if whole:
            _squares(s, block, side, product, dims)
        side //= 2
    for part in left:
        *_, loop, lane = s.loops(part)
        s.unroll(loop)
        s.vectorize(lane)
    parallelize(s, order[:1] if several else outer)


def _squares(
    s: Schedule, block: str, side: int, product: Product, dims: tuple[int, int]
) -> None:
    """Read whole squares, transposed."""
    *_, output, pixel = s.loops(block)
    o_0, o_1 = s.split(output, [None, side])
    q_0, q_1 = s.split(pixel, [None, side])
    s.reorder(o_0, q_0, o_1, q_1)
    copy, square = s.cache_read(block, product.output.name, "register", at=q_0)
    given = [f"d{n}" for n in range(product.output.ndim)]
    laid = [name for n, name in enumerate(given) if n not in dims]
    laid += [given[dims[1]], given[dims[0]]]
    s.transform_layout(square, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    name = f"copy_by_columns_{side}x{side}x{product.output.dtype}"
    s.tensorize(s.loops(copy)[-2], name)
    s.unroll(o_1)
    s.vectorize(q_1)


def _in_lanes(s: Schedule, block: str) -> None:
    """Write what is left of the pixels in vectors of them."""
    *outer, pixel = s.loops(block)
    lanes = core(s, block).lanes
    _, lane = s.split(pixel, [None, min(lanes, extent(s, pixel) or lanes)])
    s.vectorize(lane)
    parallelize(s, outer)
