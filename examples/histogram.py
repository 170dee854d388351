"""An operator of one's own: how often each number occurs.

    python examples/histogram.py
    tlang tune examples.histogram:histogram --shape 100000

Every bin looks at all elements, so it needs no atomic update, and runs in vectors as it
stands; that is meant for few bins. `examples/embedding_grad.py` adds where indices say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import ir
from tensorlang.ops import operator
from tensorlang.ops.signature import Integers


@operator("my.histogram")
def histogram(x: Integers, *, bins: int = 16) -> Any:
    """counts[bins], int64, of the elements 0 to bins - 1; others are not counted."""
    k = ir.reduce_axis(x.shape[0], "k")

    def count(b: ir.Expr) -> ir.Reduction:
        return ir.sum(x[k].equal(b.cast(x.dtype)).cast("i64"), k)

    return ir.compute((bins,), count)


def main() -> None:
    """Numbers of which some are outside, against NumPy."""
    x = np.random.default_rng(0).integers(-3, 40, 100_000, dtype=np.int32)
    expected = np.bincount(x[x >= 0], minlength=32)[:32]
    print(f"32 bins: {(histogram(x, bins=32) == expected).all()}")


if __name__ == "__main__":
    main()
