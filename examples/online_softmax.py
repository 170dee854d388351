"""Softmax of each row in two passes: maximum and normaliser in one reduction.

    python examples/online_softmax.py

The textbook version reads a row three times: for its maximum, for the sum of exp(x -
maximum), and to divide. The first two can be one reduction with a state of two numbers,
since a sum relative to a smaller maximum can be rescaled to a larger one. The state is
a monoid, so `rfactor` splits it into partial results in vector lanes.

Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import numpy as np

from tensorlang import build
from tensorlang.ir import (
    Function,
    as_expr,
    compute,
    function,
    intrinsic,
    placeholder,
    reduce_axis,
    reduction,
)
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import constant


def softmax(rows: int, columns: int) -> Function:
    """y[rows, columns] = exp(x - top) / total over each row of x, f32."""
    x = placeholder((rows, columns), "f32", "x")
    k = reduce_axis(columns, "k")
    top, total = compute(
        (rows,),
        lambda r: reduction("logsumexp", (x[r, k], as_expr(1.0)), k),
        ("top", "total"),
    )
    y = compute(
        (rows, columns),
        lambda i, j: intrinsic("exp", x[i, j] - top[i]) / total[i],
        "y",
    )
    return function("softmax", [x], [y])


def by_lanes(func: Function, lanes: int = 64) -> Schedule:
    """Parallel rows; each reduced in `lanes` parts, then normalised in vectors."""
    s = Schedule(func)
    columns = constant(func.buffers[0].shape[1]) or 0
    lanes = min(lanes, columns)
    if lanes > 1:
        fold(s, columns, lanes)
        _, lane = s.split("j", [None, lanes])
        s.vectorize(lane)
    for block in ("top", "y"):
        s.parallel(s.loops(block)[0])
    return s


def fold(s: Schedule, columns: int, lanes: int) -> None:
    """Partial maxima and sums in registers, and the reduction across them."""
    step, lane = s.split("k", [None, lanes])
    part, partial = s.rfactor("top", lane, axis=1)
    s.cache_write(part, partial, "register", at="r")
    if columns % lanes:  # only the last iteration is partial
        s.partition(step, columns // lanes)
        s.vectorize(f"{lane}_tail")
    s.vectorize(lane)
    s.parallel("r")
    s.vectorize(s.loops("top")[-1])


def main() -> None:
    """512 rows of 4096, compared with float64."""
    kernel = build(by_lanes(softmax(512, 4096)).function)
    x = np.random.default_rng(0).standard_normal((512, 4096), dtype=np.float32) * 9
    expected = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    error = np.abs(kernel(x) / expected - 1).max()
    print(f"largest relative error {error:.1e}")


if __name__ == "__main__":
    main()
