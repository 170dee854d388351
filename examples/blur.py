"""A custom operator: a 5x5 binomial blur, as two separable passes.

    python examples/blur.py
    tlang tune examples.blur:blur --shape 1080x1920

Source: Burt and Adelson, "The Laplacian Pyramid as a Compact Image Code", 1983.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import ir
from tensorlang.ops import operator
from tensorlang.ops.spec.signature import Floats

TAPS = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)


@operator("my.blur")
def blur(x: Floats) -> Any:
    """[h, w] to [h - 4, w - 4], without padding."""
    h, w = x.shape

    def across(i: ir.Expr, j: ir.Expr) -> Any:
        return sum(c * x[i, j + n] for n, c in enumerate(TAPS))

    def down(i: ir.Expr, j: ir.Expr) -> Any:
        return sum(c * rows[i + n, j] for n, c in enumerate(TAPS))

    rows = ir.compute((h, w - 4), across, "rows")
    return ir.compute((h - 4, w - 4), down, "y")


def main() -> None:
    """An image, compared with float64."""
    x = np.random.default_rng(0).random((270, 480), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (5, 5))
    expected = np.einsum("hwij,i,j->hw", windows, TAPS, TAPS)
    print(f"largest error {np.abs(blur(x) - expected).max():.1e}")


if __name__ == "__main__":
    main()
