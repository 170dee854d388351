"""y = x @ w.T near the processor's peak, using only public primitives.

    python examples/dense.py [threads]

Both matrices are packed so that the innermost loops read memory sequentially: `w` in
strips of 32 columns, transposed in registers, `x` in panels of 13 rows. A tile of 13 x
32 accumulators stays in 26 vector registers for the whole reduction and is written
once. Panels are blocked to fit in the L2 cache together with a strip. Remainders are
split off and get smaller tiles, so no reduction loop contains a condition.

Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorlang import build, targets
from tensorlang.ir import Function, compute, function, placeholder, reduce_axis, sum
from tensorlang.ir.contents import blocks, loops
from tensorlang.scheduling import Schedule

LANES = 16
COLUMNS = 2 * LANES


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiling: a tile's rows, the packing depth, panels per block."""

    rows: int = 13
    depth: int = 256
    panels: int = 6


def dense(m: int, n: int, k: int) -> Function:
    """y[m, n] = the sum over k of x[m, k] * w[n, k], all f32."""
    x = placeholder((m, k), "f32", "x")
    w = placeholder((n, k), "f32", "w")
    r = reduce_axis(k, "k")
    y = compute((m, n), lambda i, j: sum(x[i, r] * w[j, r], r), "y")
    return function("dense", [x, w], [y])


def packed(func: Function, tiling: Tiling | None = None) -> Schedule:
    """The schedule of `dense` of any size; matrix-vector products stay plain."""
    tiling = tiling or Tiling()
    s = Schedule(func)
    if len(_loops(s, "y")) < 3 or 1 in map(partial(_extent, s), _loops(s, "y")):
        return s
    _pack_w(s, tiling)
    _pack_x(s, tiling)
    for deep in _cut(s, "y", "k", tiling.depth):
        for tall in _cut(s, deep, "i", tiling.rows):
            for part in _cut(s, tall, "j", COLUMNS):
                _tile(s, part, tiling)
    return s


def _pack_w(s: Schedule, tiling: Tiling) -> None:
    """Strips of 32 columns, consecutive for each step of the reduction."""
    copy, strip = s.cache_read("y", "w", "global")
    s.transform_layout(
        strip,
        f"lambda n, k: (k // {tiling.depth}, n // {COLUMNS}, k % {tiling.depth}, "
        f"n % {COLUMNS})",
    )
    n, k = _loops(s, copy)
    if _extent(s, n) < COLUMNS or _extent(s, k) < LANES:
        return
    whole = _cut(s, _cut(s, copy, n, COLUMNS)[0], k, LANES)[0]
    n, k = sorted(_loops(s, whole))
    n_0, n_1, n_2 = s.split(n, [None, COLUMNS // LANES, LANES])
    k_0, k_1 = s.split(k, [None, LANES])
    s.reorder(n_0, k_0, n_1, n_2, k_1)
    s.parallel(n_0)
    s.tensorize(n_2, "copy_by_columns_16x16xf32")


def _pack_x(s: Schedule, tiling: Tiling) -> None:
    """Panels of a tile's rows; a row's block of the reduction is contiguous."""
    copy, panel = s.cache_read("y", "x", "global")
    s.transform_layout(
        panel,
        f"lambda m, k: (k // {tiling.depth}, m // {tiling.rows}, m % {tiling.rows}, "
        f"k % {tiling.depth})",
    )
    rows, k = _loops(s, copy)
    _, lanes = s.split(k, [None, LANES])
    s.parallel(rows)
    s.vectorize(lanes)


def _cut(s: Schedule, block: str, axis: str, size: int) -> list[str]:
    """Partition a nest along a loop; return the blocks of whole tiles and the rest."""
    around = _loops(s, block)
    loop = next(name for name in around if name.startswith(axis))
    whole = _extent(s, loop) // size * size
    if whole in (0, _extent(s, loop)):
        return [block]
    s.reorder(loop, *(name for name in around if name != loop))
    before = {b.name for b in blocks(s.function)}
    s.partition(loop, whole)
    return [block, next(b.name for b in blocks(s.function) if b.name not in before)]


def _tile(s: Schedule, block: str, tiling: Tiling) -> None:
    """Cache blocks around a register tile, for one nest over (k, i, j)."""
    i, j, k = sorted(_loops(s, block))
    rows = min(tiling.rows, _extent(s, i))
    k_0, k_1 = s.split(k, [None, min(tiling.depth, _extent(s, k))])
    i_0, i_1, i_2 = s.split(i, [None, _panels(_extent(s, i) // rows, tiling), rows])
    j_0, j_1, j_2 = s.split(j, [None, min(2, -(-_extent(s, j) // LANES)), LANES])
    nest = next(b for b in blocks(s.function) if b.name == block)
    if nest.init is not None:  # it continues from the sums of the previous part
        s.reorder(k_0, i_0, j_0, i_1, k_1, i_2, j_1, j_2)
    else:
        s.reorder(i_0, j_0, i_1, k_0, k_1, i_2, j_1, j_2)
    write, _ = s.cache_write(block, "y", "register", at=i_1, accumulate=True)
    for name in (i_2, j_1):
        s.unroll(name)
    s.vectorize(j_2)
    row, column = _loops(s, write)[-2:]
    column_0, column_1 = s.split(column, [None, LANES])
    for name in (row, column_0):
        s.unroll(name)
    s.vectorize(column_1)
    s.parallel(j_0)


def _panels(panels: int, tiling: Tiling) -> int:
    """Row panels per block: a divisor, to avoid conditions, or all of them."""
    options = range(min(panels, tiling.panels), tiling.panels // 2, -1)
    return next((n for n in options if panels % n == 0), panels)


def _loops(s: Schedule, block: str) -> list[str]:
    """The names of the loops around a block, outermost first."""
    return [
        loop.var.name
        for loop in loops(s.function)
        if any(b.name == block for b in blocks(loop))
    ]


def _extent(s: Schedule, name: str) -> int:
    loop = next(loop for loop in loops(s.function) if loop.var.name == name)
    return int(loop.extent.value)  # type: ignore[attr-defined]


def main() -> None:
    """Build 1024 x 1024 x 1024, check it, and print its speed."""
    size, threads = 1024, int(sys.argv[1]) if len(sys.argv) > 1 else 1
    target = targets.host().with_threads(threads)
    kernel = build(packed(dense(size, size, size)), target)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    y = kernel(x, w)
    error = np.abs(y - x.astype(np.float64) @ w.T.astype(np.float64)).max()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        kernel(x, w, out=y)
        times.append(time.perf_counter() - start)
    rate = 2 * size**3 / sorted(times)[10] / 1e9
    print(f"{rate:.0f} GFLOP/s with {threads} threads, largest error {error:.1e}")


if __name__ == "__main__":
    main()
