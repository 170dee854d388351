"""Online softmax: near float64, for scores of any size."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir import show
from tensorlang.runtime import build

SHAPES = [(3, 128), (2, 70), (1, 31), (4, 65), (1, 1), (0, 40), (3, 0)]


def reference(x):
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_of_any_size(load, results, shape):
    example = load("online_softmax")
    x = np.random.default_rng(0).standard_normal(shape, np.float32) * 4
    func = example.softmax(*shape)
    for scheduled in (func, example.by_lanes(func).function):
        for (y,) in results(scheduled, x, np.zeros(shape, np.float32)):
            np.testing.assert_allclose(y, reference(x), rtol=4e-6, atol=1e-30)


def test_softmax_of_huge_and_missing_scores(load, results):
    example = load("online_softmax")
    x = np.random.default_rng(1).standard_normal((4, 130), np.float32)
    x[0] += 1e30
    x[1, 5:] = -np.inf
    x[2, ::2] = -np.inf
    x[3] -= 1e4
    func = example.by_lanes(example.softmax(4, 130)).function
    for (y,) in results(func, x, np.zeros_like(x)):
        np.testing.assert_allclose(y, reference(x), rtol=1e-6, atol=1e-30)


def test_threads_do_not_change_softmax(load, results):
    example = load("online_softmax")
    x = np.random.default_rng(2).standard_normal((37, 300), np.float32)
    func = example.by_lanes(example.softmax(37, 300)).function
    _, one, two = results(func, x, np.zeros_like(x))
    np.testing.assert_array_equal(one, two)


def test_scheduled_softmax_text(load, golden):
    example = load("online_softmax")
    golden(show(example.by_lanes(example.softmax(4, 150)).function) + "\n")


def test_softmax_is_computed_in_vectors(load):
    example = load("online_softmax")
    func = example.by_lanes(example.softmax(8, 256)).function
    kernel = build(func, store=False)
    assert "<64 x float> @llvm.fma" in kernel.source
    assert "expf" not in kernel.asm
