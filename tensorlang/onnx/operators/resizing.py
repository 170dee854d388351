"""Resize and Upsample: interpolation of one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.specs import Dim, Extent
from tensorlang.graph.values import Tensor
from tensorlang.onnx.calls import Call
from tensorlang.onnx.operators import interpolation
from tensorlang.onnx.operators.data_movement import axis_of, taken_along
from tensorlang.onnx.operators.shapes import filled
from tensorlang.onnx.reading import Ints, Reals, Results, Sizes, reads
from tensorlang.ops import math, nn


def repeated(x: Tensor, axis: int, times: int) -> Tensor:
    """Each element along an axis, several times in a row."""
    if times == 1:
        return x
    *before, size = x.shape[: axis + 1]
    after = x.shape[axis + 1 :]
    wide = filled(
        (*before, size, times, *after), nn.reshape(x, (*before, size, 1, *after))
    )
    made: Tensor = nn.reshape(wide, (*before, size * times, *after))
    return made


@reads("Resize", since=10)
def resize(
    call: Call,
    x: Tensor,
    roi: Reals | None = None,
    scales: Reals | None = None,
    sizes: Sizes | None = None,
    *,
    mode: str,
    antialias: bool = False,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "asymmetric",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "floor",
) -> Results:
    """Resize axes by scales or to sizes."""
    if call.version < 11:
        roi, scales = None, roi
    over = [axis_of(axis, x.ndim) for axis in axes or range(x.ndim)]
    how = coordinate_transformation_mode
    crops = how == interpolation.CROPPED
    kinds = interpolation.filters(cubic_coeff_a)
    rounds = mode == "nearest" and interpolation.is_rounding(nearest_mode)
    if not (mode in kinds or rounds) or (antialias and rounds):
        raise GraphError(f"{mode=}, {nearest_mode=}, {antialias=} is not supported")
    roi = (roi if crops else None) or (0.0,) * len(over) + (1.0,) * len(over)
    if len(roi) != 2 * len(over):
        raise ShapeError(f"roi {roi} of {len(over)} axes")
    targets = _targets(x, over, scales, sizes, keep_aspect_ratio_policy)
    edges = zip(roi[: len(over)], roi[len(over) :], strict=True)
    y, beyond = x, []
    last = x.ndim - 1
    grows = prod(by for axis, (_, by) in zip(over, targets, strict=True) if axis < last)
    steps = [*zip(over, targets, edges, strict=True)]
    # the last axis alone gathers elements, so while there is least of the others
    steps.sort(key=lambda step: (step[0] == last) != (grows > 1))
    for axis, (count, scale), part in steps:
        if (count, scale, part) == (x.shape[axis], 1, (0, 1)):
            continue
        times = interpolation.repeats(how, nearest_mode, scale) if rounds else 0
        if times:
            y = repeated(y, axis, times)
            continue
        line = interpolation.Line(_whole(x.shape[axis]), _whole(count), scale, part)
        source = line.source(how)
        if rounds:
            y = taken_along(
                call, y, axis, interpolation.nearest(line, how, nearest_mode)
            )
        else:
            shrink = min(scale, 1.0) if antialias else 1.0
            at, weights = interpolation.taps(
                line, source, *kinds[mode], shrink, inside=exclude_outside
            )
            kind = np.dtype(np.float64 if x.spec.dtype == "f64" else np.float32)
            y = nn.resample(y, at, weights.astype(kind), axis)
        if crops:
            outside = (source < 0) | (source > line.size - 1)
            beyond.append(outside.reshape(-1, *[1] * (x.ndim - axis - 1)))
    fill = np.array(extrapolation_value, x.spec.numpy)
    for outside in beyond:
        y = math.where(outside, fill, y)
    return y


@reads("Upsample", since=7)
def upsample(call: Call, x: Tensor, scales: Reals, *, mode: str) -> Results:
    """Resize axes by scales: nearest elements, or linear."""
    call.version = 10
    return resize(call, x, scales, mode=mode)


def _targets(
    x: Tensor,
    over: Sequence[int],
    scales: Reals | None,
    sizes: Sizes | None,
    policy: str,
) -> list[tuple[Extent, float]]:
    """The size that each axis gets, and the ratio, which rounding does not change."""
    given: list[Sequence[Extent | float]] = [each for each in (scales, sizes) if each]
    if [len(each) for each in given] != [len(over)] or (scales and min(scales) <= 0):
        raise ShapeError(f"scales {scales} and sizes {sizes} of {len(over)} axes")
    own = [x.shape[axis] for axis in over]
    if 0 in own:
        raise ShapeError(f"x of {x.shape} has no elements to resize")
    if not sizes:
        return [(_times(n, by), by) for n, by in zip(own, scales or (), strict=True)]
    pairs = list(zip(own, sizes, strict=True))
    ratios = [1.0 if a == b else _whole(b) / _whole(a) for a, b in pairs]
    if policy == "stretch":
        return [(b, by) for (_, b), by in zip(pairs, ratios, strict=True)]
    chosen = {"not_larger": min, "not_smaller": max}.get(policy)
    if chosen is None:
        raise GraphError(f"keep_aspect_ratio_policy={policy!r} is not supported")
    scale = chosen(ratios)
    return [(int(_whole(n) * scale + 0.5), scale) for n in own]


def _times(size: Extent, by: float) -> Extent:
    """A size times a scale, rounded down."""
    return size * int(by) if by == int(by) else int(_whole(size) * by)


def _whole(size: Extent | float) -> int:
    """A known size; ShapeError if it is symbolic."""
    if isinstance(size, Dim):
        raise ShapeError(f"the size {size} has to be known; export a fixed one")
    return int(size)
