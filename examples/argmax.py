"""Argmax of each row, with the reduction split into partial results by `rfactor`.

    python examples/argmax.py

The state is a pair (value, index), so partial results combine like those of a sum. Here
32 of them are computed in vector lanes, and a second reduction across the lanes gives
the row's result. Ties go to the lowest index, as in NumPy, by definition of the reducer
and independent of the order.

Suriana et al., "Parallel associative reductions in Halide", 2017.
"""

from __future__ import annotations

import numpy as np

from tensorlang import build
from tensorlang.ir import Function, argmax, compute, function, placeholder, reduce_axis
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import constant


def row_argmax(rows: int, columns: int) -> Function:
    """top[rows] f32 and its lowest column at[rows] i64 of x[rows, columns] f32."""
    x = placeholder((rows, columns), "f32", "x")
    k = reduce_axis(columns, "k")
    top, at = compute((rows,), lambda i: argmax(x[i, k], k, k), ("top", "at"))
    return function("row_argmax", [x], [top, at])


def by_lanes(func: Function, lanes: int = 32) -> Schedule:
    """Parallel rows; `lanes` partial results per row in registers."""
    s = Schedule(func)
    columns = constant(func.buffers[0].shape[1]) or 0
    if columns < lanes:
        s.parallel("i")
        return s
    step, lane = s.split("k", [None, lanes])
    part, partial = s.rfactor("top", lane, axis=1)
    s.cache_write(part, partial, "register", at="i")
    if columns % lanes:  # only the last iteration is partial
        s.partition(step, columns // lanes)
        s.vectorize(f"{lane}_tail")
    s.vectorize(lane)
    s.parallel("i")
    row, across = s.loops("top")
    s.vectorize(across)
    s.parallel(row)
    return s


def main() -> None:
    """512 rows of 4096, compared with NumPy."""
    kernel = build(by_lanes(row_argmax(512, 4096)).function)
    x = np.random.default_rng(0).integers(-99, 99, (512, 4096)).astype(np.float32)
    top, at = kernel(x)
    right = (at == x.argmax(1)).all() and (top == x.max(1)).all()
    print(f"{len(x)} rows, ties to the lowest column: {'right' if right else 'wrong'}")


if __name__ == "__main__":
    main()
