"""Predicted cycles of convolutions with channels first and last, of one thread.

Weights are taken to be packed ahead. Register tiles are of output channels by vectors
of pixels, on flattened images with the gaps between their lines, with channels first;
of pixels by vectors of output channels with channels last. Images are copied where they
are padded, and with channels first where windows are strided, and results are taken out
between the gaps. Depthwise convolutions with channels last read images as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from tensorlang import lazy
from tensorlang.ir.dtypes import as_dtype
from tensorlang.ops.nn.convolution_problem import Problem, convolution
from tensorlang.targets import Target

with lazy.modules(__name__):
    from tensorlang import instructions
    from tensorlang.schedules.cost import core as cores
    from tensorlang.schedules.cost import tiles


class Cycles(NamedTuple):
    """Predicted cycles in both layouts."""

    first: float
    last: float


def cycles(
    id: str,
    asked: Mapping[str, Any],
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    target: Target,
) -> Cycles:
    """The predicted cycles of a convolution with channels first, in both layouts.

    Args:
        id: The operator.
        asked: Its attributes.
        shapes: The shapes of images, weights and bias.
        dtype: The type of the images.
        target: Where it runs.
    """
    return predicted(convolution(id, asked, *shapes), dtype, target)


def by_dots(p: Problem, dtype: str, target: Target, *, interleaved: int = 0) -> float:
    """Predicted cycles by the processor's dot products of channels, channels last.

    Infinite without such an instruction. Images with channels first are transposed in
    registers; where images are padded, or their channels do not fill groups, they are
    copied by vectors; results with channels first are transposed as well, or loaded and
    stored by elements where so many are `interleaved`.
    """
    row = instructions.dot_product(target.features, (dtype, dtype))
    if row is None:
        return math.inf
    core = cores.core_of(target, as_dtype(row.sums))
    pixels, vectors = math.prod(p.result), math.ceil(p.outputs / row.lanes)
    steps = math.ceil(p.inputs / row.group) * math.prod(p.window)
    one, _ = tiles.tiled(core, pixels, vectors, steps)
    images, results = math.prod(p.given_x), math.prod(p.given_y)
    moved = 0.0
    if p.first:
        size = results * as_dtype(row.sums).bytes
        taken = 2 * interleaved / core.loads
        moved = taken or transposing(size, row.sums, target)
        moved += transposing(images * as_dtype(dtype).bytes, dtype, target)
    if any(p.padding) or p.inputs % row.group:
        moved += moving(images * as_dtype(dtype).bytes, dtype, target)
    return p.batch * p.groups * one + moved


def moving(size: int, dtype: str, target: Target) -> float:
    """Predicted cycles to read and write so many bytes in another order."""
    core = cores.core_of(target, as_dtype(dtype))
    rate = core.levels[0].rate if core.levels else float(core.vector)
    return 2 * size / rate


def transposing(size: int, dtype: str, target: Target) -> float:
    """Predicted cycles to transpose so many bytes: tiles are shuffled in registers."""
    core = cores.core_of(target, as_dtype(dtype))
    shuffles = size / core.vector * math.log2(core.lanes)
    return moving(size, dtype, target) + shuffles / core.products


@lru_cache(maxsize=256)
def predicted(p: Problem, dtype: str, target: Target) -> Cycles:
    """The predicted cycles in both layouts, without dot products."""
    core = cores.core_of(target, as_dtype(dtype))
    size, strided = as_dtype(dtype).bytes, math.prod(p.stride) > 1
    copy = moving(math.prod(p.given_x) * size, dtype, target)
    if p.depthwise:
        return _depthwise(p, core, copy * strided)
    several = p.batch * p.groups
    first = several * _first(replace(p, first=True).flattened(), core)
    first += copy * (strided or any(p.padding))
    if strided or not p.pixels:  # results are taken from between the gaps
        first += moving(math.prod(p.given_y) * size, dtype, target)
    flat = replace(p, first=False).flattened()
    pixels = math.prod(p.result)
    row = p.result[-1] if flat.image else pixels  # pixels of which tiles are made
    vectors = -(-p.outputs // core.lanes)
    last = tiles.tiled(core, row, vectors, _steps(p))[0] * (pixels // row)
    return Cycles(first, several * last + copy * any(p.padding))


def _depthwise(p: Problem, core: cores.Core, copy: float) -> Cycles:
    """Lines of pixels, which read strided copies, or vectors of channels."""
    *lines, length = p.result
    taps = p.batch * math.prod(p.window) / core.products
    first = p.groups * math.prod(lines) * -(-length // core.lanes) * taps
    last = math.prod(p.result) * -(-p.groups // core.lanes) * taps
    return Cycles(first + copy, last)


def _first(p: Problem, core: cores.Core) -> float:
    """Tiles of the lines of an image, which include the gaps between them."""
    *lines, length = p.result
    around = p.image[-1] + sum(p.padding[-2:])
    pitch = -(-around // p.stride[-1])
    span = (math.prod(lines) - 1) * pitch + length if lines else length
    vectors = -(-span // core.lanes)
    return tiles.tiled(core, p.outputs, vectors, _steps(p), crossing=True)[0]


def _steps(p: Problem) -> int:
    """Products per result."""
    return p.inputs * math.prod(p.window)
