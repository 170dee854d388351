"""Contractions with lanes along the reduction: right for all sizes and types."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import parse
from tensorlang.ops import find, nn
from tensorlang.runtime import build
from tensorlang.schedules.generic import generic
from tensorlang.scheduling import Knobs, Schedule

DENSE = find("nn.dense")


def product(m, n, k):
    """y = x @ w.T over `m` rows: a number or the name of a size."""
    size = f", *, {m}: i64" if isinstance(m, str) else ""
    return parse(f"""
def f(x: f32[{m}, {k}], w: f32[{n}, {k}], y: Out[f32[{m}, {n}]]{size}):
    for i in range({m}):
        for j in range({n}):
            for k in range({k}):
                with block(
                    "y", vi=spatial({m}, i), vj=spatial({n}, j), vk=reduction({k}, k)
                ):
                    reduce(sum, y[vi, vj], x[vi, vk] * w[vj, vk])
""")


def scheduled(m, n, k, **pinned):
    s = Schedule(product(m, n, k), targets.get("llvm"))
    generic(s, Knobs(pinned=pinned))
    return s


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("open_rows", [False, True])
def test_tiles_of_any_size(seed, open_rows):
    draw = random.Random(seed)
    m, n, k = draw.randint(2, 20), draw.randint(1, 40), draw.randint(16, 90)
    sides = {name: draw.choice((1, 2, 3, 4, 5, 6, 8)) for name in ("rows", "columns")}
    pinned = {f"dot_{name}": side for name, side in sides.items()}
    rows = "m" if open_rows else m
    s = scheduled(rows, n, k, lanes_along="depth", **pinned)
    assert n == 1 or not any("dots" in str(each) for each in s.declined), s.declined
    x, w = np.random.default_rng(seed).standard_normal((2, 90, 90), np.float32)
    x, w = x[:m, :k].copy(), w[:n, :k].copy()
    expected = x.astype(np.float64) @ w.T
    np.testing.assert_allclose(build(s.function)(x, w), expected, atol=1e-4)


@pytest.mark.parametrize("m", [2, 3, 5, 8])
@pytest.mark.parametrize(
    ("dtype", "close"),
    [
        (np.float32, 1e-5),
        (np.float64, 1e-12),
        (np.float16, 2e-3),
        (ml_dtypes.bfloat16, 2e-2),
    ],
)
def test_few_rows_of_each_type(m, dtype, close):
    x, w = np.random.default_rng(m).standard_normal((2, 300, 300))
    x, w, b = x[:m].astype(dtype), w[:37].astype(dtype), w[0, :37].astype(dtype)
    expected = np.tanh(x.astype("f8") @ w.astype("f8").T / 16 + b.astype("f8"))
    made = nn.dense((x / 16).astype(dtype), w, b, activation="tanh")
    np.testing.assert_allclose(made.astype("f8"), expected, atol=close * 4)


def test_few_rows_have_kernels_of_their_own_and_many_share_one():
    shapes = [(m, 300) for m in (2, 8, 9, 300)] + [(2, 4, 300), (3, 3, 300)]
    found = [
        DENSE.traced(DENSE.workload(shape, (64, 300))).function.params[0].buffer.shape
        for shape in shapes
    ]
    rows = [str(shape[0]) for shape in found]
    assert rows == ["2", "8", "n0", "n0", "8", "n0"]


@pytest.mark.parametrize(("m", "along"), [(2, "depth"), (8, "depth"), (200, "columns")])
def test_few_rows_add_up_lanes_and_many_transpose(m, along):
    knobs = Knobs()
    generic(Schedule(product(m, 64, 512), targets.get("llvm")), knobs)
    assert knobs.values["lanes_along"] == along
