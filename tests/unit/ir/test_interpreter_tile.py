"""A GPU tile: 128x128x32 by 256 threads through shared memory, with all checks."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, run
from tensorlang.ir.text.parser import parse

# each thread computes 8x8 elements; k in steps of 8 through two shared tiles
TILE = """
def tile(x: f32[m, 32], w: f32[128, 32], y: Out[f32[m, 128]], *, m: i64):
    for b in bound(m // 128, "block.x"):
        xs = alloc(f32[8, 128], scope="shared")
        ws = alloc(f32[8, 128], scope="shared")
        for ty in bound(16, "thread.y"):
            for tx in bound(16, "thread.x"):
                acc = alloc(f32[8, 8], scope="register")
                for i in range(8):
                    for j in unrolled(8):
                        acc[i, j] = 0.0
                for k0 in range(4):
                    for load in range(4):
                        row: i64 = ty * 8 + tx // 8 * 4 + load
                        xs[tx % 8, row] = x[b * 128 + row, k0 * 8 + tx % 8]
                        ws[tx % 8, row] = w[row, k0 * 8 + tx % 8]
                    {first}
                    for k in range(8):
                        for i in range(8):
                            for j in range(8):
                                a: f32 = xs[k, ty * 8 + i]
                                acc[i, j] = fma(a, ws[k, tx * 8 + j], acc[i, j])
                    {second}
                for i in range(8):
                    for j in range(8):
                        y[b * 128 + ty * 8 + i, tx * 8 + j] = acc[i, j]
"""
WITH = 'barrier("block")'


def tile(first=WITH, second=WITH):
    return parse(TILE.replace("{first}", first).replace("{second}", second))


def operands(blocks):
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, (128 * blocks, 32)).astype("f4")
    w = rng.integers(-4, 5, (128, 32)).astype("f4")
    return x, w, np.zeros((128 * blocks, 128), "f4")


def test_tile_of_256_threads_runs_with_all_checks():
    x, w, y = operands(2)
    report = run(tile(), x, w, y)
    assert (y == x @ w.T).all()
    assert report.barriers == 8
    assert report.steps < 10_000  # lanes, not threads one after the other


@pytest.mark.parametrize("missing", ["first", "second"])
def test_tile_without_a_barrier_is_a_race(missing):
    with pytest.raises(InterpreterError, match=r"race: [xw]s.*thread"):
        run(tile(**{missing: "pass"}), *operands(1))


def test_tile_without_a_barrier_and_without_the_check_runs_on():
    x, w, y = operands(1)
    run(tile(first="pass"), x, w, y, checks=ALL_CHECKS - {"race"})
    assert (y == x @ w.T).all()  # in lock-step, which no machine promises
