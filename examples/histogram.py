"""A custom operator: a histogram of integers.

    python examples/histogram.py
    tlang tune examples.histogram:histogram --shape 100000

Every bin scans all elements, so no atomic updates are needed and the loop vectorises;
suitable for few bins. For scatter-adds see `examples/embedding_grad.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import ir
from tensorlang.ops import operator
from tensorlang.ops.spec.signature import Integers


@operator("my.histogram")
def histogram(x: Integers, *, bins: int = 16) -> Any:
    """counts[bins], int64, of the elements 0 to bins - 1; others are ignored."""
    k = ir.reduce_axis(x.shape[0], "k")

    def count(b: ir.Expr) -> ir.Reduction:
        return ir.sum(x[k].equal(b.cast(x.dtype)).cast("i64"), k)

    return ir.compute((bins,), count)


def main() -> None:
    """Integers, some out of range, compared with NumPy."""
    x = np.random.default_rng(0).integers(-3, 40, 100_000, dtype=np.int32)
    expected = np.bincount(x[x >= 0], minlength=32)[:32]
    print(f"32 bins: {(histogram(x, bins=32) == expected).all()}")


if __name__ == "__main__":
    main()
