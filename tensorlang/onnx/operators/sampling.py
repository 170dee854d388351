"""GridSample: images at given places, by interpolation along each dimension.

Places and weights are computed by elementwise operators; pixels are gathered, so that
images and places have gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Final

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.graph.values import Tensor
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.reading import Results, reads
from tensorlang.ops import math, nn

_MODES: Final = {"bilinear": "linear", "bicubic": "cubic"}
_PADDINGS: Final = ("zeros", "border", "reflection")
_A: Final = -0.75  # of Keys's cubic filter


@reads("GridSample", since=16)
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: bool, mode: str, padding_mode: str
) -> Results:
    """Pixels at places from -1 to 1, whose last dimension comes first in `grid`."""
    mode = _MODES.get(mode, mode)
    if mode not in {"nearest", "linear", "cubic"} or padding_mode not in _PADDINGS:
        raise GraphError(f"{mode=}, {padding_mode=} is not supported")
    batch, channels, *dims = known_shape(x)
    outer = known_shape(grid)
    if outer[0] != batch or outer[-1] != len(dims) or grid.ndim != x.ndim:
        raise ShapeError(f"a grid of {grid.spec} for {x.spec}")
    if 0 in dims:
        raise ShapeError(f"there are no pixels in {x.spec}")
    order = [0, *range(2, x.ndim), 1]
    table = nn.reshape(nn.transpose(x, order), (-1, channels))
    first = np.arange(batch).reshape(-1, *[1] * len(dims)) * prod(dims)
    lines = []
    for n, size in enumerate(dims):
        line = _Line(size, padding_mode, align_corners=align_corners)
        lines.append(list(line.taps(line.place(grid[..., len(dims) - 1 - n]), mode)))
    total: Tensor | None = None
    for (at, weight), *more in product(*lines):
        for (place, share), size in zip(more, dims[1:], strict=True):
            at, weight = at * size + place, weight * share  # noqa: PLW2901
        pixels = nn.embedding(at + first, table) * weight.reshape((*weight.shape, 1))
        total = pixels if total is None else total + pixels
    return nn.transpose(total, [0, x.ndim - 1, *range(1, x.ndim - 1)])


@frozen
class _Line:
    """A dimension of images."""

    size: int  # its number of pixels
    padding: str  # what is beyond them
    align_corners: bool  # whether -1 and 1 are centres of pixels, not their edges

    def place(self, at: Tensor) -> Tensor:
        """The coordinate in pixels of a place from -1 to 1."""
        span, edge = (self.size - 1, 0.0) if self.align_corners else (self.size, 0.5)
        return (at + 1.0) * 0.5 * float(span) - edge

    def taps(self, at: Tensor, mode: str) -> Iterator[tuple[Tensor, Tensor]]:
        """The pixels that are read, and their weights."""
        if mode == "nearest":
            yield self._pixel(self._inside(math.round(at)), 1.0 + at * 0.0)
            return
        at = at if mode == "cubic" else self._inside(at)
        base = math.floor(at)
        rest = at - base
        for offset in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
            far = math.abs(rest - float(offset))
            weight = 1.0 - far if mode == "linear" else _cubic(far)
            yield self._pixel(base + float(offset), weight)

    def _inside(self, at: Tensor) -> Tensor:
        """A coordinate moved into the image, as far as the padding does."""
        if self.padding == "zeros":
            return at
        if self.padding == "border":
            clipped: Tensor = math.clip(at, 0.0, float(self.size - 1))
            return clipped
        low, high = (
            (0.0, self.size - 1.0) if self.align_corners else (-0.5, self.size - 0.5)
        )
        if high == low:
            return at * 0.0
        span = high - low
        far = math.remainder(math.abs(at - low), 2 * span)
        made: Tensor = math.minimum(far, 2 * span - far) + low
        return made

    def _pixel(self, at: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The number of a pixel, and its weight: 0 beyond the image."""
        moved = self._inside(at)
        inside = math.clip(moved, 0.0, float(self.size - 1))
        if self.padding == "zeros":
            weight = math.where(math.equal(moved, inside), weight, 0.0)
        return math.cast(inside, "i64"), weight


def _cubic(far: Tensor) -> Tensor:
    """Keys's filter of a distance."""
    near = ((_A + 2) * far - (_A + 3)) * far * far + 1.0
    beyond = ((far - 5.0) * far + 8.0) * far * _A - 4 * _A
    made: Tensor = math.where(math.less_equal(far, 1.0), near, beyond)
    return made
