"""What measurements add to a cost model: a Gaussian process over its residuals.

The logarithm of a time is that of the model's prediction, a constant, and a smooth
function of the knobs (Rasmussen and Williams, "Gaussian processes for machine
learning", 2006, chapter 2), so a model that is off for some values of a knob is
corrected there, and where nothing was measured the model stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
_NOISE: Final = 0.02  # standard deviation of the logarithm of a measured time
_LEAST_SPREAD: Final = 0.15  # likewise, of the residuals
_ALONE: Final = 1 << 18  # products of numbers that BLAS leaves to one thread
LENGTHS: Final = (0.25, 0.5, 1.0, 2.0)  # in ranges of a knob


class Surrogate:
    """Residuals of measured points, and what they say about others.

    Args:
        apart: Distances of the measured points.
        residuals: The logarithm of measured over predicted time of each.
        lengths: Lengths of the smooth function; the likeliest is taken.

    Attributes:
        spread: The standard deviation of the residuals.
        length: The length.
    """

    def __init__(
        self, apart: Floats, residuals: Floats, lengths: Sequence[float] = LENGTHS
    ) -> None:
        self._mean = float(median(residuals.tolist()))  # NumPy's imports numpy.ma
        off = residuals - self._mean
        self.spread: float = max(float(off.std()), _LEAST_SPREAD)
        fits = [(*self._fitted(apart, length, off), length) for length in lengths]
        _, self._root, self._weights, self.length = max(fits, key=lambda fit: fit[0])

    def _fitted(
        self, apart: Floats, length: float, off: Floats
    ) -> tuple[float, Floats, Floats]:
        """The logarithm of the likelihood of a length, and the solved system."""
        noise = _NOISE**2 * np.eye(len(off))
        root = np.linalg.inv(
            np.linalg.cholesky(self._covariance(apart, length) + noise)
        )
        whitened = root @ off
        likelihood = -0.5 * float(whitened @ whitened) + float(
            np.log(np.diag(root)).sum()
        )
        return likelihood, root, whitened @ root

    def _covariance(self, apart: Floats, length: float) -> Floats:
        found: Floats = self.spread**2 * np.exp(-apart / length)
        return found

    def between(self, apart: Floats) -> Floats:
        """Covariances of points (rows) and the measured ones, of their distances."""
        return self._covariance(apart, self.length)

    def mean(self, between: Floats) -> Floats:
        """Means of the residuals at points."""
        explained: Floats = (between * self._weights).sum(axis=1)  # in this thread
        return self._mean + explained

    def error(self, between: Floats) -> Floats:
        """Standard deviations of the residuals at points, at most `spread`."""
        rows = max(_ALONE // self._root.size, 1)
        pieces = (between[at : at + rows] for at in range(0, len(between), rows))
        sums = [np.square(piece @ self._root.T).sum(axis=1) for piece in pieces]
        explained = np.concatenate(sums)
        return np.sqrt(np.maximum(self.spread**2 - explained, 0.0))
