"""Sorting networks: their exchanges, and whole rows by the interpreter."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.math.sort_networks import merging, sorting

RNG = np.random.default_rng(4)


def exchanged(values, masks):
    """The values after all steps: the lower position keeps the smaller one."""
    values = np.array(values)
    places = np.arange(values.shape[-1])
    for mask in masks:
        other = values[..., places ^ mask]
        low = np.minimum(values, other)
        values = np.where(places < places ^ mask, low, np.maximum(values, other))
    return values


def test_blocks_of_zeros_and_ones_are_sorted():  # and with them all others
    every = np.array(list(product((0, 1), repeat=16)))
    np.testing.assert_array_equal(exchanged(every, sorting(16)), np.sort(every))


@pytest.mark.parametrize("size", [2, 32, 128])
def test_sizes_of_blocks(size):
    values = RNG.permutation(size)
    np.testing.assert_array_equal(exchanged(values, sorting(size)), np.arange(size))
    runs = np.sort(RNG.permutation(2 * size).reshape(2, size))
    low = np.minimum(runs[0], runs[1][::-1])
    np.testing.assert_array_equal(exchanged(low, merging(size)), np.arange(size))


@pytest.mark.parametrize("name", ["math.sort", "math.argsort"])
@pytest.mark.parametrize("length", [5, 8, 9, 16, 17, 64, 65, 129, 600])
def test_rows(name, length):
    op = find(name)
    workload = op.workload((2, length), dtypes="f32")
    x = RNG.integers(-9, 9, (2, length)).astype("f4")
    x[0, 3:5] = np.nan
    ordered = name == "math.argsort"
    result = np.full((2, length), -1, "i8" if ordered else "f4")
    run(op.function(workload, "network"), x, result, **op.sizes(workload))
    wanted = np.argsort(x, kind="stable") if ordered else np.sort(x)
    np.testing.assert_array_equal(result, wanted)


def network_of(name, length, dtype):
    op = find(name)
    return op.algorithms["network"], op.workload((3, length), dtypes=dtype)


def test_positions_leave_room_for_keys_of_32_bits():
    for name, dtype, suits in (
        ("math.sort", "f64", True),
        ("math.argsort", "i32", True),
        ("math.argsort", "bf16", True),
        ("math.argsort", "f64", False),
        ("math.argsort", "i64", False),
    ):
        network, workload = network_of(name, 100, dtype)
        assert network.suits(workload, frozenset()) == suits


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_networks_are_chosen_where_they_take_fewer_steps(bits):
    target = replace(targets.host(), vector_bits=bits)

    def chosen(name, length, dtype):
        network, workload = network_of(name, length, dtype)
        return network.faster(workload, target, ())

    assert chosen("math.sort", 100, "f32")
    assert chosen("math.sort", 1 << 20, "f32") == (bits == 512)
    assert chosen("math.sort", 1 << 20, "f64") == (bits == 512)
    assert not chosen("math.sort", 1 << 28, "f32")
    assert not chosen("math.sort", 2, "f32")  # ranked
    assert chosen("math.argsort", 1 << 14, "i32") == (bits == 512)
    assert not chosen("math.argsort", 1 << 20, "i32")  # by radix: few bytes of keys


@pytest.mark.parametrize("bits", [128, 512])
def test_short_rows_are_sorted_by_radix_where_that_takes_fewer_steps(bits):
    target = replace(targets.host(), vector_bits=bits)

    def chosen(name, length, dtype):
        op = find(name)
        workload = op.workload((3, length), dtypes=dtype)
        radix = op.algorithms["radix"]
        return radix.suits(workload, ()) and radix.faster(workload, target, ())

    assert chosen("math.argsort", 150, "f64") == (bits == 128)
    assert chosen("math.argsort", 150, "i8") == (bits == 128)
    assert not chosen("math.argsort", 4, "i8")
    assert not chosen("math.argsort", 300, "f64")  # as the definition does


@pytest.mark.parametrize("name", ["math.sort", "math.argsort"])
@pytest.mark.parametrize("length", [1, 2, 100])
def test_short_rows_by_radix(name, length):
    op = find(name)
    workload = op.workload((2, length), dtypes="i16")
    x = RNG.integers(-900, 9, (2, length)).astype("i2")
    ordered = name == "math.argsort"
    result = np.full((2, length), -1, "i8" if ordered else "i2")
    run(op.function(workload, "radix"), x, result, **op.sizes(workload))
    wanted = np.argsort(x, kind="stable") if ordered else np.sort(x)
    np.testing.assert_array_equal(result, wanted)
