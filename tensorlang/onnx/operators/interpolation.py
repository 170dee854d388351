"""Positions and weights of interpolation along an axis, as in ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.frozen import frozen

Array: TypeAlias = np.ndarray
# maps distances to weights
Filter: TypeAlias = Callable[[Array], Array]
CROPPED: Final = "tf_crop_and_resize"
# coordinates that depend on the scale alone
_LOCAL: Final = ("half_pixel", "half_pixel_symmetric", "asymmetric")
_ROUNDED: Final[Mapping[str, Callable[[Array], Array]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


@frozen
class Line:
    """An axis to be resized."""

    size: int
    count: int  # its size afterwards
    scale: float  # ratio, which rounding of `count` does not change
    roi: tuple[float, float]  # part of it, in terms of its length, that is cropped

    def source(self, how: str) -> Array:
        """The coordinate in the source of each position.

        Raises:
            GraphError: an unknown `coordinate_transformation_mode`.
        """
        at, wide = np.arange(self.count, dtype=np.float64), self.scale * self.size
        whole = (at + 0.5) / self.scale - 0.5
        begin, end = (edge * (self.size - 1) for edge in self.roi)
        middle = self.size / 2 * (1 - self.count / wide) if wide else 0
        steps = wide - 1 or 1
        found = {
            "half_pixel": whole,
            "half_pixel_symmetric": middle + whole,
            "pytorch_half_pixel": whole if wide != 1 else at * 0 - 0.5,
            "asymmetric": at / self.scale,
            "align_corners": at * (self.size - 1) / steps if wide != 1 else at * 0,
            CROPPED: begin + at * (end - begin) / steps
            if wide != 1
            else at * 0 + (begin + end) / 2,
        }
        if how not in found:
            raise GraphError(
                f"attribute coordinate_transformation_mode={how!r} is not supported"
            )
        return found[how]


def _triangle(x: Array) -> Array:
    found: Array = np.maximum(1 - np.abs(x), 0)
    return found


def _cubic(a: float, x: Array) -> Array:
    """Keys, "Cubic convolution interpolation for digital image processing", 1981."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def taps(
    line: Line,
    source: Array,
    filtered: Filter,
    reach: int,
    shrink: float,
    *,
    inside: bool,
) -> tuple[Array, Array]:
    """Positions and weights `[taps, out]`.

    Args:
        line: The axis.
        source: Coordinates in the source.
        reach: The distance up to which it is not 0.
        shrink: The factor of distances: below 1, the filter is wider.
        inside: Whether positions outside of the source have no weight.
    """
    base = np.ceil(source) - 1
    start = int(np.floor(-reach / shrink)) + 1
    offsets = np.arange(start, 2 - start)[:, None]
    weights = filtered((offsets - (source - base)) * shrink)
    at = (base + offsets).astype(np.int64)
    if inside:
        weights = np.where((at < 0) | (at >= line.size), 0, weights)
    total = weights.sum(0)
    return at, weights / np.where(total == 0, 1, total)


def nearest(line: Line, how: str, rounding: str) -> Array:
    """The nearest position of each."""
    found = _ROUNDED[rounding](line.source(how)).clip(0, line.size - 1)
    return found.astype(np.int64)


def repeats(how: str, rounding: str, scale: float) -> int:
    """How often each element is repeated, whatever the size; 0 if it is not alike."""
    if how not in _LOCAL or scale != int(scale):
        return 0
    times, size = int(scale), 3
    found = nearest(Line(size, size * times, scale, (0, 1)), how, rounding)
    return times if (found == np.arange(size * times) // times).all() else 0


def is_rounding(name: str) -> bool:
    """Whether there is such a `nearest_mode`."""
    return name in _ROUNDED


def filters(a: float) -> dict[str, tuple[Filter, int]]:
    """Filters by mode, and the distance up to which they are not 0."""
    return {"linear": (_triangle, 1), "cubic": (partial(_cubic, a), 2)}
