"""Packed dense: the same as NumPy on whole and ragged sizes, interpreted and built."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import run
from tensorlang.runtime import build

EXAMPLES = Path(__file__).parents[3] / "examples"
SIZES = [
    (28, 64, 32),
    (30, 50, 40),
    (29, 33, 17),
    (16, 32, 75),
    (3, 5, 7),
    (2, 3, 1),
    (5, 1, 9),
    (1, 1, 1),
]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dense", EXAMPLES / "dense.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dense"] = module
    spec.loader.exec_module(module)
    return module


def whole_numbers(rows: int, columns: int, seed: int) -> np.ndarray:
    """Small enough that float sums of their products are exact in any order."""
    generator = np.random.default_rng(seed)
    return generator.integers(-4, 5, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_any_size_is_exact(example: ModuleType, size: tuple[int, int, int]) -> None:
    m, n, k = size
    func = example.dense(m, n, k)
    scheduled = example.packed(func, example.Tiling(rows=14, depth=32, panels=2))
    x, w = whole_numbers(m, k, 1), whole_numbers(n, k, 2)
    interpreted = np.full((m, n), np.nan, np.float32)
    run(scheduled.function, x, w, interpreted)
    assert (interpreted == x @ w.T).all()
    for threads in (1, 2):
        target = targets.host().with_threads(threads)
        assert (build(scheduled, target, store=False)(x, w) == x @ w.T).all()


def test_large_and_ragged_is_near_float64(example: ModuleType) -> None:
    m, n, k = 150, 210, 530
    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k), np.float32)
    w = generator.standard_normal((n, k), np.float32)
    y = build(example.packed(example.dense(m, n, k)), store=False)(x, w)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.abs(y - exact).max() < 1e-6 * k


def test_the_inner_loop_is_multiply_adds_on_registers(example: ModuleType) -> None:
    if targets.host().vector_bits < 512:
        pytest.skip(
            "needs a processor with 512-bit vectors to have 28 sums in registers"
        )
    kernel = build(example.packed(example.dense(140, 64, 256)), store=False)
    loops = re.split(r"\n(?=\.LBB\S+:)", kernel.asm)
    body = max(loops, key=lambda text: text.count("vfmadd"))
    inner = body[: re.search(r"\n\tj[a-z]+\s+\.LBB", body).end()]  # type: ignore[union-attr]
    assert inner.count("vfmadd") >= 24
    assert "%rsp" not in inner
    assert "%rbp" not in inner


def test_small_scheduled_text(example: ModuleType, golden) -> None:  # type: ignore[no-untyped-def]
    func = example.dense(6, 32, 16)
    scheduled = example.packed(func, example.Tiling(rows=3, depth=8, panels=2))
    golden(f"{scheduled.function}\n\n{scheduled.trace}\n")
