"""Radix sort: every bit right, equal keys in their old order."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir import parse, run, show
from tensorlang.runtime import build

SIZES = [0, 1, 2, 3, 16, 17, 100]


def sorted_by(kernel, keys):
    out, order = np.zeros_like(keys), np.zeros(len(keys), np.int64)
    kernel(keys, out, order)
    return out, order


@pytest.mark.parametrize("size", SIZES)
def test_sorting_few_keys(load, results, size):
    example = load("radix_sort")
    keys = np.random.default_rng(size).integers(0, 1 << 32, size, dtype=np.uint32)
    keys[: size // 2] = keys[size - size // 2 :]  # some are equal
    outs = np.zeros_like(keys), np.zeros(size, np.int64)
    func = example.parallel(example.radix_sort(chunks=4)).function
    for found, order in results(func, keys, *outs):
        np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
        np.testing.assert_array_equal(found, np.sort(keys))


@pytest.mark.parametrize("high", [1, 5, 1 << 16, 1 << 32])
def test_sorting_many_keys_is_stable(load, high):
    example = load("radix_sort")
    kernel = build(example.parallel(example.radix_sort()).function)
    keys = np.random.default_rng(0).integers(0, high, 100_003, dtype=np.uint32)
    found, order = sorted_by(kernel, keys)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(found, keys[order])


def test_the_interpreter_checks_that_chunks_are_disjoint(load):
    """The same moves without a place a chunk: chunks then write over each other."""
    example = load("radix_sort")
    text = show(example.parallel(example.radix_sort(chunks=2)).function)
    broken = text.replace("next_0[0] = next_0[0] + here", "next_0[0] = next_0[0]")
    assert broken != text
    keys = np.arange(8, dtype=np.uint32)
    outs = np.zeros_like(keys), np.zeros(8, np.int64)
    with pytest.raises(InterpreterError):
        run(parse(broken), keys, *outs)


def test_scheduled_sort_text(load, golden):
    example = load("radix_sort")
    golden(show(example.parallel(example.radix_sort(chunks=2)).function) + "\n")
