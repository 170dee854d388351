"""The transforms of Winograd's convolutions F(2, 3) and F(4, 3), and their accuracy.

A line of m results with a window of 3 is A^T [(G w) * (B^T x)], an elementwise product
of m + 2 numbers (Winograd, 1980; Lavin and Gray, "Fast algorithms for convolutional
neural networks", 2016). For images the three transforms apply to columns, then rows.

Lines are polynomials, evaluated at points and at infinity. F(2, 3) uses the points 0, 1
and -1, F(4, 3) uses 0, +-sqrt(2) and +-1/sqrt(2), whose error is a third of that of the
usual points +-1 and +-2 (Alam et al., "Winograd convolution for deep neural networks:
efficient point selection", 2022).
"""

from __future__ import annotations

from math import sqrt
from typing import Final

from tensorlang.frozen import frozen

Matrix = tuple[tuple[float, ...], ...]
WINDOW: Final = 3
_UNIT: Final = 2.0**-24  # unit roundoff of f32
_ROUNDINGS: Final = 24  # of the six one-dimensional transforms, at most 4 each


@frozen
class Transforms:
    """The matrices of F(m, 3)."""

    outputs: int  # m
    image: Matrix  # B^T, (m + 2) by (m + 2)
    weight: Matrix  # G, (m + 2) by 3
    result: Matrix  # A^T, m by (m + 2)
    # declared error, relative to the result or to the mean result, whichever is larger:
    # at least ten times that of random images
    tolerance: float

    @property
    def points(self) -> int:
        """Side of a transformed tile, m + 2."""
        return self.outputs + WINDOW - 1

    @property
    def growth(self) -> float:
        """Growth of the terms relative to the largest products of the direct sum.

        |A^T| (|G| |w|) (|B^T| |x|) for both dimensions, divided by max |w| max |x| and
        by the number of window elements.
        """
        terms = [
            sum(map(abs, weight)) * sum(map(abs, image))
            for weight, image in zip(self.weight, self.image, strict=True)
        ]
        line = max(
            sum(abs(a) * term for a, term in zip(row, terms, strict=True))
            for row in self.result
        )
        return (line / WINDOW) ** 2

    def bound(self, channels: int) -> float:
        """Bound on the f32 error, relative to window * max |w| * max |x| summed.

        Each term is rounded once per channel and by the transforms (Higham, "Accuracy
        and stability of numerical algorithms", §3.1).

        Args:
            channels: Number of channels summed over.
        """
        return (channels + _ROUNDINGS) * _UNIT * self.growth


def _four() -> Transforms:
    root, half = sqrt(2), sqrt(2) / 2
    image = (
        (1, 0, -5 / 2, 0, 1, 0),
        (0, -half, -1 / 2, root, 1, 0),
        (0, half, -1 / 2, -root, 1, 0),
        (0, -root, -2, half, 1, 0),
        (0, root, -2, -half, 1, 0),
        (0, 1, 0, -5 / 2, 0, 1),
    )
    weight = (
        (1, 0, 0),
        (1 / 6, root / 6, 1 / 3),
        (1 / 6, -root / 6, 1 / 3),
        (-2 / 3, -root / 3, -1 / 3),
        (-2 / 3, root / 3, -1 / 3),
        (0, 0, 1),
    )
    result = (
        (1, 1, 1, 1, 1, 0),
        (0, root, -root, half, -half, 0),
        (0, 2, 2, 1 / 2, 1 / 2, 0),
        (0, 2 * root, -2 * root, half / 2, -half / 2, 1),
    )
    return Transforms(4, image, weight, result, 2.0**-12)


F2: Final = Transforms(
    2,
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, 1)),
    2.0**-14,
)
F4: Final = _four()
TRANSFORMS: Final = {2: F2, 4: F4}
