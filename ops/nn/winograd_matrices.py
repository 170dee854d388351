"""The transforms of Winograd's convolutions F(2, 3) and F(4, 3), and what they lose.

A line of m results of a window of 3 is A^T [(G w) * (B^T x)], an element-wise product
of m + 2 numbers (Winograd, 1980; Lavin and Gray, "Fast algorithms for convolutional
neural networks", 2016). For images the three transforms apply to columns, then rows.

Lines are polynomials, evaluated at points and at infinity. F(2, 3) has the points 0, 1
and -1, F(4, 3) has 0, and plus and minus sqrt(2) and its reciprocal, which lose a third
of what the usual 1 and 2 do (Alam et al., "Winograd convolution for deep neural
networks: efficient point selection", 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

Matrix = tuple[tuple[float, ...], ...]
WINDOW: Final = 3
_UNIT: Final = 2.0**-24  # half the distance from 1 to the next f32
_ROUNDINGS: Final = 24  # of the six one-dimensional transforms, at most 4 each


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices of F(m, 3).

    Attributes:
        outputs: m.
        image: B^T, (m + 2) by (m + 2).
        weight: G, (m + 2) by 3.
        result: A^T, m by (m + 2).
        tolerance: The error that is declared, relative to a result or the mean one,
            whichever is larger: ten times and more what random images show.
    """

    outputs: int
    image: Matrix
    weight: Matrix
    result: Matrix
    tolerance: float

    @property
    def points(self) -> int:
        """Numbers along one side of a transformed tile."""
        return self.outputs + WINDOW - 1

    @property
    def growth(self) -> float:
        """How much larger than the plain sum's largest products the terms are.

        |A^T| (|G| |w|) (|B^T| |x|) for both dimensions, over max |w| max |x|, and over
        the window's elements.
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
        """The worst error of an f32 result, over window * max |w| * max |x| summed.

        Each term passes through as many roundings as there are channels, and those of
        the transforms (Higham, "Accuracy and stability of numerical algorithms", §3.1).

        Args:
            channels: That are summed over.
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
