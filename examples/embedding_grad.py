"""The gradient of an embedding: rows of dy scatter-added by index, with repeats.

    python examples/embedding_grad.py

Two positions may refer to the same row of the table, so positions must not run in
parallel: their axis is `ordered`. Columns are independent, so they become the outer
loop, over threads and vector lanes. No atomics are needed, and the sums equal those of
a plain loop bit for bit.
"""

from __future__ import annotations

import numpy as np

from tensorlang import build
from tensorlang.ir import Function, parse
from tensorlang.scheduling import Schedule


def embedding_grad(rows: int, width: int) -> Function:
    """dw[rows, width] = the sum of dy[p, :] over positions p with index[p] == row.

    An index outside the table raises fault 1, and nothing is written for it.
    """
    return parse(f"""
def embedding_grad(dy: f32[n, {width}], index: i64[n],
                   dw: Out[f32[{rows}, {width}]], *, n: i64):
    for r in range({rows}):
        for z in range({width}):
            with block("clear", vr=spatial({rows}, r), vz=spatial({width}, z)):
                dw[vr, vz] = 0.0
    for p in range(n):
        for c in range({width}):
            with block("add", vp=ordered(n, p), vc=spatial({width}, c)):
                row: i64 = index[vp]
                inside: bool = (row >= 0) & (row < {rows})
                evaluate(check(inside, 1))
                if inside:
                    dw[row, vc] = dw[row, vc] + dy[vp, vc]
""")


def by_columns(func: Function, lanes: int = 64) -> Schedule:
    """Parallel strips of columns outermost; positions in order inside."""
    s = Schedule(func)
    s.parallel("r")
    _, lane = s.split("z", [None, lanes])
    s.vectorize(lane)
    strip, lane = s.split("c", [None, lanes])
    s.reorder(strip, "p", lane)
    s.vectorize(lane)
    s.parallel(strip)
    return s


def main() -> None:
    """A table of 1000 rows, 5000 positions."""
    kernel = build(by_columns(embedding_grad(1000, 72)).function)
    rng = np.random.default_rng(0)
    index = rng.integers(0, 1000, 5000)
    dy = rng.standard_normal((5000, 72), dtype=np.float32)
    dw = np.empty((1000, 72), np.float32)
    kernel(dy, index, dw)
    expected = np.zeros((1000, 72))
    np.add.at(expected, index, dy)
    print(f"largest error {np.abs(dw - expected).max():.1e}")


if __name__ == "__main__":
    main()
