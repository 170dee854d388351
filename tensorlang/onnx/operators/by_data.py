"""Operators whose results have as many elements as data tell: NonZero, Unique, NMS.

A program's sizes are known before it runs. So these are computed while it is read, by
NumPy: of constants, and of inputs of the file, which are then part of what a network is
traced and kept for. What they take from computed data is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorlang.errors import ShapeError
from tensorlang.onnx.calls import Call, Operand
from tensorlang.onnx.operators.data_movement import axis_of
from tensorlang.onnx.reading import Number, Results, reads


@reads("NonZero", folds=True)
def nonzero(call: Call, x: Operand) -> Results:
    """The positions of elements other than 0, a column for each."""
    known = call.known(x, "X", small=False)
    return np.array(np.nonzero(np.atleast_1d(known)), np.int64)


@reads("Unique", folds=True)
def unique(
    call: Call, x: Operand, *, axis: int | None = None, sorted: bool = True
) -> Results:
    """The distinct elements or slices, where each is first, where it is, how often."""
    known = call.known(x, "X", small=False)
    at = None if axis is None else axis_of(axis, known.ndim)
    made, first, inverse, counts = np.unique(
        known, return_index=True, return_inverse=True, return_counts=True, axis=at
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        made = np.take(made, order, axis=at or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return made, *(each.astype(np.int64) for each in (first, inverse, counts))


@reads("NonMaxSuppression", folds=True)
def suppressed(  # noqa: PLR0917 - ONNX's inputs
    call: Call,
    boxes: Operand,
    scores: Operand,
    most: Number = 0,
    overlap: Number = 0.0,
    threshold: Number | None = None,
    *,
    center_point_box: bool = False,
) -> Results:
    """Boxes by falling score that overlap no chosen one: batch, class, box."""
    corners = _corners(call.known(boxes, "boxes", small=False), center_point_box)
    heights = call.known(scores, "scores", small=False)
    if heights.ndim != 3 or corners.shape[:2] != heights.shape[::2]:
        raise ShapeError(
            f"scores of shape {heights.shape} for boxes of shape {corners.shape}; they "
            "are [batch, classes, count] and [batch, count, 4]"
        )
    made = [
        (batch, kind, box)
        for batch, of_batch in enumerate(heights)
        for kind, height in enumerate(of_batch)
        for box in _chosen(corners[batch], height, int(most), overlap, threshold)
    ]
    return np.array(made, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """Boxes `[batch, count, 4]` by their lower and upper corners."""
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise ShapeError(f"boxes of shape {boxes.shape}, not [batch, count, 4]")
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        first, second = first - second / 2, first + second / 2
    ends = np.minimum(first, second), np.maximum(first, second)
    return np.concatenate(ends, axis=-1)


def _chosen(
    corners: np.ndarray,
    scores: np.ndarray,
    most: int,
    overlap: float,
    threshold: float | None,
) -> Iterator[int]:
    """The boxes that are chosen, the best first."""
    order = np.argsort(-scores, kind="stable")
    left = order if threshold is None else order[scores[order] > threshold]
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    for _ in range(most):
        if not left.size:
            return
        best, left = left[0], left[1:]
        yield int(best)
        low = np.maximum(corners[best, :2], corners[left, :2])
        high = np.minimum(corners[best, 2:], corners[left, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        left = left[shared <= overlap * (areas[best] + areas[left] - shared)]
