"""Windows of images: padding and sums; operators that are sums of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.graph.specs import Extent
from tensorlang.graph.values import Tensor
from tensorlang.onnx.folding import to_value
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.reading import Ints, Results, reads
from tensorlang.ops import find, math, nn


def padding_of(
    x: Tensor, how: str, pads: Ints | None, reach: Sequence[int], strides: Ints
) -> tuple[tuple[int, int], ...]:
    """Padding before and after each spatial dimension.

    Args:
        x: The images.
        how: ONNX's `auto_pad`.
        pads: ONNX's `pads`.
        reach: Window extents, dilation included.
        strides: Strides of the windows.

    Raises:
        ShapeError: it depends on a symbolic size, or has the wrong rank.
        GraphError: unknown `auto_pad`.
    """
    rank = len(reach)
    if len(x.shape) != rank + 2 or len(strides) != rank:
        raise ShapeError(f"windows of {reach} in steps of {strides} on {x.spec}")
    if how == "NOTSET":
        ends = (0,) * 2 * rank if pads is None else pads
        if len(ends) != 2 * rank or min(ends) < 0:
            raise ShapeError(f"pads={ends} for {rank} dimensions; none is below 0")
        return tuple(zip(ends[:rank], ends[rank:], strict=True))
    if how not in {"VALID", "SAME_UPPER", "SAME_LOWER"} or (pads and any(pads)):
        raise GraphError(f"auto_pad={how!r} with pads={pads} is not supported")
    if how == "VALID":
        return ((0, 0),) * rank
    made = []
    for extent, far, step in zip(x.shape[2:], reach, strides, strict=True):
        if step == 1:
            more = far - 1
        elif isinstance(extent, int):
            more = max((-(-extent // step) - 1) * step + far - extent, 0)
        else:
            raise ShapeError(
                f"auto_pad={how!r} of the symbolic size {extent}; give pads"
            )
        less = more // 2
        made.append((less, more - less) if how == "SAME_UPPER" else (more - less, less))
    return tuple(made)


def reach_of(
    window: Sequence[Extent], dilations: Ints, strides: Ints
) -> tuple[int, ...]:
    """Window extents, dilation included.

    Raises:
        ShapeError: not one to three dimensions, or a size is symbolic or below 1.
    """
    sizes = [n for n in window if isinstance(n, int)]
    fits = 1 <= len(sizes) <= 3 and len(window) == len(sizes)
    fits = fits and len(dilations) == len(strides) == len(sizes)
    if not fits or min(*sizes, *dilations, *strides) < 1:
        raise ShapeError(
            f"windows of {tuple(window)}, dilations {dilations}, strides {strides}: "
            "each has one to three positive numbers, as many as the others"
        )
    return tuple((n - 1) * by + 1 for n, by in zip(sizes, dilations, strict=True))


@frozen
class Windows:
    """Windows of images, per spatial dimension."""

    extents: Ints  # their extents
    steps: Ints  # their strides
    spread: Ints  # their dilations
    ends: tuple[tuple[int, int], ...]  # padding before and after
    ceil: bool  # whether a last window may reach beyond the padding

    def sums(self, x: Tensor) -> Tensor:
        """The sum of each window, as a convolution of each channel with ones."""
        rank = len(self.extents)
        self._refuse_empty(x)
        ones = to_value(np.ones((1, 1, *self.extents), x.spec.numpy))
        channels = nn.reshape(x, (x.shape[0] * x.shape[1], 1, *x.shape[2:]))
        y = find(f"nn.conv{rank}d")(
            channels,
            ones,
            stride=self.steps,
            padding=self._reaching(x.shape[2:]),
            dilation=self.spread,
        )
        made: Tensor = nn.reshape(y, (*x.shape[:2], *y.shape[2:]))
        return made

    def _refuse_empty(self, x: Tensor) -> None:
        """Refuse windows that are larger than padded images, or padding alone."""
        reach = reach_of(self.extents, self.spread, self.steps)
        for n, far, (low, high) in zip(x.shape[2:], reach, self.ends, strict=True):
            larger = isinstance(n, int) and far > n + low + high
            if larger or max(low, high) >= far:
                raise ShapeError(
                    f"windows of {reach} on {x.spec}, padded by {self.ends}: some hold "
                    "no element"
                )

    def _reaching(self, sizes: Sequence[Extent]) -> tuple[tuple[int, int], ...]:
        """The padding, with what a last window reaches beyond it."""
        made, reach = [], reach_of(self.extents, self.spread, self.steps)
        for n, far, step, (low, high) in zip(
            sizes, reach, self.steps, self.ends, strict=True
        ):
            beyond = 0
            if self.ceil:
                if not isinstance(n, int):
                    raise ShapeError(f"ceil_mode of the symbolic size {n}")
                last = -(-(n + low + high - far) // step) * step
                begins_inside = last < n + low
                beyond = max(last + far - (n + low + high), 0) if begins_inside else 0
            made.append((low, high + beyond))
        return tuple(made)


def means(x: Tensor, windows: Windows, count_include_pad: bool) -> Tensor:
    """Averages of windows that are dilated; sums are f32 or f64."""
    dtype, x = x.spec.dtype, _wide(x)
    inside = np.ones((1, 1, *known_shape(x)[2:]), x.spec.numpy)
    sums, counted = windows.sums(x), windows
    if count_include_pad:
        around = ((0, 0), (0, 0), *windows.ends)
        inside = np.pad(inside, around, constant_values=1)
        counted = replace(windows, ends=((0, 0),) * len(windows.ends))
    counts = counted.sums(to_value(inside))
    made: Tensor = math.cast(math.divide(sums, counts), dtype)
    return made


def _wide(x: Tensor) -> Tensor:
    """Halves as f32, in which their sums do not overflow; others as they are."""
    return x if x.spec.numpy.itemsize >= 4 else math.cast(x, "f32")


@reads("LpPool")
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str,
    ceil_mode: bool = False,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    p: float = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Results:
    """The p-norm of each window."""
    ones = (1,) * len(kernel_shape)
    steps, by = strides or ones, dilations or ones
    if p <= 0:
        raise GraphError(f"p={p} is no norm; p is above 0")
    reach = reach_of(kernel_shape, by, steps)
    ends = padding_of(x, auto_pad, pads, reach, steps)
    ceil = ceil_mode and not auto_pad.startswith("SAME")
    powers = math.power(math.abs(_wide(x)), p)
    sums = Windows(kernel_shape, steps, by, ends, ceil).sums(powers)
    return math.cast(math.power(sums, 1 / p), x.spec.dtype)


@reads("Col2Im")
def columns_to_images(
    input: Tensor,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Results:
    """Sums of overlapping blocks: a transposed convolution with a one per element."""
    rank, count = len(block_shape), prod(block_shape)
    ones = (1,) * rank
    steps, by = strides or ones, dilations or ones
    reach = reach_of(block_shape, by, steps)
    flat = pads or (0,) * 2 * rank
    fits = input.ndim == 3 and len(image_shape) == rank and len(flat) == 2 * rank
    if not fits or min(flat) < 0 or known_shape(input)[1] % count:
        raise ShapeError(
            f"blocks {block_shape} of {input.spec} in images of {image_shape}, padded "
            f"by {flat}"
        )
    batch, rows, length = known_shape(input)
    padded = [
        n + a + b for n, a, b in zip(image_shape, flat, flat[rank:], strict=False)
    ]
    counts = [
        (n - far) // step + 1 for n, far, step in zip(padded, reach, steps, strict=True)
    ]
    if prod(counts) != length or min(counts) < 1:
        raise ShapeError(
            f"{length} blocks, where images of {image_shape} have {counts}"
        )
    one_hot = np.eye(count, dtype=input.spec.numpy).reshape(count, 1, *block_shape)
    groups = rows // count
    y = find(f"nn.conv{rank}d_transpose")(
        nn.reshape(input, (batch, rows, *counts)),
        to_value(np.tile(one_hot, (groups, *(1,) * (rank + 1)))),
        stride=steps,
        dilation=by,
        groups=groups,
    )
    rest = [n - m for n, m in zip(padded, y.shape[2:], strict=True)]
    y = nn.pad(y, ((0, 0), (0, 0), *((0, n) for n in rest))) if any(rest) else y
    cut = [slice(a, a + n) for a, n in zip(flat, image_shape, strict=False)]
    return y[(..., *cut)]
