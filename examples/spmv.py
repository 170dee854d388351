"""A custom operator: sparse matrix (CSR) times vector.

    python examples/spmv.py
    tlang tune examples.spmv:spmv --shape 10001,200000,200000,10000

Row i has the elements `starts[i]` up to `starts[i + 1]`, so the extent of the reduction
depends on i. Source: Saad, "Iterative Methods for Sparse Linear Systems", 2003, 3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import graph, ir
from tensorlang.ops import math, nn, operator
from tensorlang.ops.spec.signature import Floats, Integers


def samples(starts: Any, columns: Any, values: Any, x: Any) -> None:
    """Valid row offsets that use all elements, for checks and tuning."""
    del columns, x
    starts[:] = np.sort(starts % (len(values) + 1))
    starts[:1], starts[-1:] = 0, len(values)


@operator(
    "my.spmv",
    sizes="starts.0 >= 2 and columns.0 == values.0",
    indices={"columns": "x.0"},
    samples=samples,
)
def spmv(starts: Integers, columns: Integers, values: Floats, x: Floats) -> Any:
    """y[i], the sum of `values[p] * x[columns[p]]` over the elements p of row i."""

    def row(i: ir.Expr) -> ir.Reduction:
        first = starts[i].cast("i64")
        k = ir.reduce_axis(starts[i + 1].cast("i64") - first, "k")
        column = columns[first + k].cast("i64")
        return ir.sum(values[first + k] * x[column], k)

    return ir.compute((starts.shape[0] - 1,), row)


@operator("my.whole")
def whole(x: Floats) -> Any:
    """Integers stored as floats, as int64."""
    return ir.compute(x.shape, lambda i: x[i].cast("i64"))


@graph.gradient_of(spmv)
def gradient(dy: Any, starts: Any, columns: Any, values: Any, x: Any) -> Any:
    """The gradients of values and x; an element's row is found by a running count."""
    marks = nn.pad(values * 0.0, ((0, 1),))[:, None]
    marks = nn.embedding_grad(dy[1:, None] * 0.0 + 1.0, starts[1:-1], marks)
    rows = whole(math.cumsum(marks[:-1, 0]))
    dys = dy[rows]
    dx = nn.embedding_grad((values * dys)[:, None], columns, x[:, None])
    return None, None, dys * x[columns], dx[:, 0]


def main() -> None:
    """A matrix with a density of one tenth, compared with float64."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((300, 200)) * (rng.random((300, 200)) < 0.1)
    starts = np.append(0, np.count_nonzero(dense, axis=1).cumsum())
    columns, values = np.nonzero(dense)[1], dense[dense != 0].astype(np.float32)
    x = rng.standard_normal(200, dtype=np.float32)
    error = np.abs(spmv(starts, columns, values, x) - dense @ x).max()
    print(f"largest error {error:.1e}")


if __name__ == "__main__":
    main()
