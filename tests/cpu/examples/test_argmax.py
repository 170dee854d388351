"""Argmax taken apart with rfactor: exact, ties to the lowest column, NaN is largest."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir import show
from tensorlang.runtime import build

SHAPES = [(3, 64), (2, 70), (1, 31), (4, 33), (1, 1), (5, 257), (0, 40)]


@pytest.mark.parametrize("shape", SHAPES)
def test_argmax_with_ties_is_exact(load, results, shape):
    example = load("argmax")
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    outs = np.zeros(shape[0], np.float32), np.zeros(shape[0], np.int64)
    func = example.row_argmax(*shape)
    for scheduled in (func, example.by_lanes(func).function):
        for top, at in results(scheduled, x, *outs):
            np.testing.assert_array_equal(at, x.argmax(1))
            np.testing.assert_array_equal(top, x.max(1))


def test_argmax_of_nan_and_infinities(load, results):
    example = load("argmax")
    x = np.random.default_rng(1).standard_normal((4, 100)).astype(np.float32)
    x[0, [70, 90]] = np.nan
    x[1, [3, 40]] = np.inf
    x[2] = -np.inf
    outs = np.zeros(4, np.float32), np.zeros(4, np.int64)
    for top, at in results(
        example.by_lanes(example.row_argmax(4, 100)).function, x, *outs
    ):
        np.testing.assert_array_equal(at, x.argmax(1))
        np.testing.assert_array_equal(top, x.max(1))


def test_scheduled_argmax_text(load, golden):
    example = load("argmax")
    golden(show(example.by_lanes(example.row_argmax(5, 70)).function) + "\n")


def test_argmax_compares_in_vectors(load):
    example = load("argmax")
    func = example.by_lanes(example.row_argmax(8, 256)).function
    kernel = build(func, store=False)
    assert "fcmp ogt <32 x float>" in kernel.source
