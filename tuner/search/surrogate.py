"""What measurements add to a cost model: a Gaussian process over its residuals.

The logarithm of a time is that of the model's prediction, a constant, and a smooth
function of the knobs (Rasmussen and Williams, "Gaussian processes for machine
learning", 2006, chapter 2), so a model that is off for some values of a knob is
corrected there, and where nothing was measured the model stands.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
_NOISE: Final = 0.02  # standard deviation of the logarithm of a measured time
_LEAST_SPREAD: Final = 0.15  # likewise, of the residuals
_LENGTHS: Final = (0.25, 0.5, 1.0, 2.0)  # in ranges of a knob


class Surrogate:
    """Residuals of measured points, and what they say about others.

    Args:
        places: Points by row, knobs by column: numbers for which distances mean
            something.
        residuals: The logarithm of measured over predicted time of each.
    """

    def __init__(self, places: Floats, residuals: Floats) -> None:
        self._places = places
        self._mean = float(np.median(residuals))
        off = residuals - self._mean
        self._scale = max(float(off.std()), _LEAST_SPREAD)
        fits = [self._fitted(length, off) for length in _LENGTHS]
        _, self._length, self._root, self._weights = max(fits, key=lambda fit: fit[0])

    def _fitted(
        self, length: float, off: Floats
    ) -> tuple[float, float, Floats, Floats]:
        """The logarithm of the likelihood of a length, and the solved system."""
        noise = _NOISE**2 * np.eye(len(off))
        root: Floats = np.linalg.cholesky(self._between(self._places, length) + noise)
        weights: Floats = np.linalg.solve(root.T, np.linalg.solve(root, off))
        likelihood = -0.5 * float(off @ weights) - float(np.log(np.diag(root)).sum())
        return likelihood, length, root, weights

    def _between(self, places: Floats, length: float) -> Floats:
        """Covariances of points and the measured ones."""
        apart = np.zeros((len(places), len(self._places)))
        for column, own in zip(places.T, self._places.T, strict=True):
            apart += np.abs(column[:, None] - own)
        return self._scale**2 * np.exp(-apart / length)

    def at(self, places: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the residuals at points."""
        between = self._between(places, self._length)
        mean = self._mean + between @ self._weights
        explained = np.square(np.linalg.solve(self._root, between.T)).sum(axis=0)
        return mean, np.sqrt(np.maximum(self._scale**2 - explained, 0.0))
