"""f32 products as bf16 products: error bounds, special values, when they are chosen."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ops import nn
from tensorlang.ops.kernels import building
from tensorlang.ops.nn.bf16_parts import LARGEST, SPLITS, Split
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs
from tensorlang.workload import Workload

AMX = ("amx_tile", "amx_bf16")
MACHINE = str(Path(__file__).parents[3] / "data/machines/zen5.json")
FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl")
TARGET = targets.Target(
    cpu="intel-graniterapids-m173",
    features=(*FEATURES, "avx512_bf16", *AMX),
    vector_bits=512,
    vector_registers=32,
    l1_bytes=48 << 10,
    l2_bytes=2 << 20,
)
SPLIT = pytest.mark.parametrize("split", SPLITS, ids=lambda s: f"x{len(s.products)}")
F32 = 2.0**-24


def workload(m: int, n: int, k: int, tolerance: float | None) -> Workload:
    return nn.dense.workload((m, k), (n, k), tolerance=tolerance)


def dense(x: np.ndarray, w: np.ndarray, split: Split, target: targets.Target):
    """The layer by an algorithm."""
    return kernel_of((len(x), *w.shape), split, target)(x, w)


@cache
def kernel_of(sizes: tuple[int, int, int], split: Split, target: targets.Target):
    """An algorithm's kernel, by the meaning of its instructions."""
    name = f"bf16x{len(split.products)}"
    tiles = "amx_bf16" in target.features
    knobs = Knobs(pinned={"products": "tiles"} if tiles else {})
    s = building.schedule(nn.dense, workload(*sizes, split.error), target, name, knobs)
    assert ("tdpbf16ps" in str(s.function)) == tiles, s.declined
    return build(s.function, target, store=False, by_meaning=True)


def scales(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.abs(x).astype("f8") @ np.abs(w).astype("f8").T


@SPLIT
def test_bounds_of_single_products(split: Split) -> None:
    """Of the significands that lose most, and of random ones."""
    rng = np.random.default_rng(0)
    worst = [1 + m * 2.0**-9 + s * 2.0**-17 for m in (1, 2, 3) for s in (-1, 0, 1)]
    some = np.float32([*worst, 2 - 2.0**-23, *rng.uniform(1, 2, 200)])
    some = np.concatenate([some, -some, some * 2.0**40, some * 2.0**-40])
    x, w = some[:, None].astype("f4"), some[::-1, None].astype("f4")
    error = np.abs(dense(x, w, split, targets.host()) - x.astype("f8") @ w.T)
    relative = error / scales(x, w)
    assert relative.max() <= split.error + len(split.products) * F32
    assert relative.max() >= split.error / 8 or len(split.products) == 6


@SPLIT
@pytest.mark.parametrize("power", [0, -40, 55])
def test_bounds_of_sums(split: Split, power: int) -> None:
    """Scales that differ by column of the operands, and sums that cancel."""
    rng = np.random.default_rng(power + 99)
    x, w = (rng.standard_normal((n, 80)).astype("f4") for n in (33, 40))
    spread = (2.0 ** rng.integers(-8, 9, 80)).astype("f4")
    x, w = x * spread * np.float32(2.0**power), w / spread
    x[:, 40:] = -x[:, :40]
    w[:, 40:] = w[:, :40] + rng.standard_normal((40, 40)).astype("f4") * 1e-5
    error = np.abs(dense(x, w, split, TARGET) - x.astype("f8") @ w.astype("f8").T)
    assert (error / scales(x, w)).max() <= split.error + 16 * F32


@SPLIT
def test_infinities_and_nan_are_those_of_f32(split: Split) -> None:
    inf, nan = np.inf, np.nan
    special = [inf, -inf, nan, 0.0, -0.0, 1.0, -1.5, 1 + 2.0**-20, 1e-40, -1e-45, 3e38]
    x = np.ones((len(special), 48), np.float32)
    x[:, 5] = special
    w = np.float32(np.broadcast_to(x, x.shape))
    w = np.concatenate([w, np.zeros((3, 48), "f4")])
    w[-2:, 5], w[-1, 7] = inf, -inf
    with np.errstate(all="ignore"):
        expected = (x[:, None] * w[None]).sum(2)
    got = dense(x, w, split, TARGET)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(np.isinf(got), infinite)
    np.testing.assert_array_equal(got[infinite], expected[infinite])


@SPLIT
def test_small_numbers_and_large_ones(split: Split) -> None:
    """A factor may be off by 2**-125; numbers that bf16 lacks are not infinite."""
    x = np.float32([[1e-40], [2.0**-126], [3 * 2.0**-120], [2.0**-100 * 1.2345]])
    w = np.float32([[1.0], [2.0**60], [-(2.0**100)]])
    error = np.abs(dense(x, w, split, TARGET) - x.astype("f8") @ w.astype("f8").T)
    limit = split.error + len(split.products) * F32
    assert (error <= limit * scales(x, w) + 2.0**-125 * np.abs(w.T)).all()
    large = np.float32([[3.4e38], [LARGEST], [-3.399e38]])
    one = np.float32([[1.0], [0.5]])
    exact = large.astype("f8") @ one.T
    assert (
        np.abs(dense(large, one, split, TARGET) - exact) <= limit * abs(exact)
    ).all()


@pytest.mark.parametrize(
    ("tolerance", "name"),
    [
        (None, "direct"),
        (0.0, "direct"),
        (2.0**-24, "direct"),
        (2.0**-21, "bf16x6"),
        (2.0**-16, "bf16x4"),
        (2.0**-15, "bf16x3"),
        (0.1, "bf16x3"),
    ],
)
def test_the_fewest_products_that_are_allowed(tolerance, name, monkeypatch) -> None:
    monkeypatch.setenv("TENSORLANG_MACHINE", MACHINE)
    of = workload(1024, 1024, 1024, tolerance)
    assert building.preferred(nn.dense, of, TARGET) == name
    without = dataclasses.replace(TARGET, features=FEATURES)
    assert building.preferred(nn.dense, of, without) == "direct"


@pytest.mark.parametrize("size", [(1, 1024, 1024), (4, 256, 256), (16, 16, 16)])
def test_only_where_they_are_faster(size, monkeypatch) -> None:
    monkeypatch.setenv("TENSORLANG_MACHINE", MACHINE)
    of = workload(*size, 0.1)
    assert building.preferred(nn.dense, of, TARGET) == "direct"
