"""The gradient of an embedding: repeats add up, a bad index is a fault."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError, KernelError
from tensorlang.ir import run, show
from tensorlang.runtime import build

# rows, width, positions
SIZES = [(5, 70, 9), (4, 64, 3), (3, 5, 40), (1, 1, 1), (7, 129, 0), (2, 17, 50)]


def reference(rows, index, dy):
    """In float32 and in order: repeats of an index are added one by one."""
    dw = np.zeros((rows, dy.shape[1]), np.float32)
    np.add.at(dw, index, dy)
    return dw


def given(rows, width, positions):
    rng = np.random.default_rng(positions)
    dy = rng.standard_normal((positions, width), dtype=np.float32)
    return dy, rng.integers(0, rows, positions)


@pytest.mark.parametrize("size", SIZES)
def test_repeated_indices_add_up_in_order(load, results, size):
    example = load("embedding_grad")
    dy, index = given(*size)
    func = example.embedding_grad(*size[:2])
    dw = np.full(size[:2], np.nan, np.float32)
    for scheduled in (func, example.by_columns(func).function):
        for (found,) in results(scheduled, dy, index, dw):
            np.testing.assert_array_equal(found, reference(size[0], index, dy))


def test_many_repeats(load):
    example = load("embedding_grad")
    kernel = build(example.by_columns(example.embedding_grad(3, 200)).function)
    dy, index = given(3, 200, 20_000)
    dw = np.empty((3, 200), np.float32)
    kernel(dy, index, dw)
    np.testing.assert_array_equal(dw, reference(3, index, dy))


@pytest.mark.parametrize("bad", [-1, 4, 1 << 40, -(1 << 62)])
def test_a_bad_index_is_a_fault_and_writes_nothing(load, bad):
    example = load("embedding_grad")
    func = example.by_columns(example.embedding_grad(4, 70)).function
    dy, index = given(4, 70, 6)
    index[3] = bad
    fence = np.full((12, 70), 7, np.float32)
    with pytest.raises(KernelError, match="embedding_grad"):
        build(func)(dy, index, fence[4:8])
    kept = np.arange(6) != 3
    np.testing.assert_array_equal(fence[4:8], reference(4, index[kept], dy[kept]))
    assert (fence[:4] == 7).all()
    assert (fence[8:] == 7).all()
    with pytest.raises(InterpreterError):
        run(func, dy, index, fence[4:8].copy())


def test_scheduled_embedding_text(load, golden):
    example = load("embedding_grad")
    golden(show(example.by_columns(example.embedding_grad(10, 100)).function) + "\n")
