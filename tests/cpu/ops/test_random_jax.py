"""Whole draws against JAX itself, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ops import random

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jax.config.update("jax_enable_x64", True)

FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = ((), (0,), (10, 0), (1,), (1001,), (3, 5, 7))
JAX_IMPLS = ("threefry2x32", "threefry4x32", "philox4x32", "philox2x32")


def jax_key(seed=7, impl="threefry2x32"):
    return jax.random.key(seed, impl=impl)


def same(ours, theirs):
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert ours.tobytes() == theirs.tobytes()


def ulps(ours, theirs):
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    kind = f"i{ours.itemsize}"
    order = [
        np.where(v < 0, -(v & np.iinfo(kind).max), v)
        for v in (ours.view(kind).astype("i8"), theirs.view(kind).astype("i8"))
    ]
    return np.abs(order[0] - order[1]).max(initial=0)


@pytest.mark.parametrize("impl", JAX_IMPLS)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_bits(impl, dtype):
    for shape in SHAPES:
        ours = random.bits(random.key(42, impl=impl), shape, dtype)
        same(ours, jax.random.bits(jax_key(42, impl), shape, dtype))


@pytest.mark.parametrize("impl", JAX_IMPLS)
def test_key_split_and_fold_in(impl):
    key, theirs = random.key(42, impl=impl), jax_key(42, impl)
    same(random.key_data(key), jax.random.key_data(theirs))
    children = random.split(key.clone(), (3, 2))
    same(
        random.key_data(children), jax.random.key_data(jax.random.split(theirs, (3, 2)))
    )
    for data in (0, 1, 123, 2**32 - 1):
        folded = jax.random.fold_in(theirs, data)
        same(random.key_data(random.fold_in(key, data)), jax.random.key_data(folded))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.3, 7.7), (5, 10), (0.1, 0.3)])
def test_uniform(dtype, bounds):
    for shape in SHAPES if bounds == (0.0, 1.0) else [(1001,)]:
        ours = random.uniform(random.key(7), shape, dtype, *bounds)
        same(ours, jax.random.uniform(jax_key(), shape, dtype, *bounds))


@pytest.mark.parametrize("p", [0.0, 1e-7, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_bernoulli(p):
    ours = random.bernoulli(random.key(7), p, (1001,))
    same(ours, jax.random.bernoulli(jax_key(), np.float32(p), (1001,)))


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_randint(dtype):
    info = np.iinfo(dtype)
    ranges = [(3, 100), (0, 1), (0, 64)]
    if info.bits < 64:
        ranges.append((int(info.min), int(info.max) + 1))
    for low, high in ranges:
        ours = random.randint(random.key(7), (1001,), low, high, dtype)
        same(ours, jax.random.randint(jax_key(), (1001,), low, high, dtype))


def test_randint_below_zero():
    ours = random.randint(random.key(7), (1001,), -70000, 1234567)
    same(ours, jax.random.randint(jax_key(), (1001,), -70000, 1234567, "int32"))


@pytest.mark.parametrize("n", [0, 1, 2, 8, 1000, 5000])
def test_permutation_of_numbers(n):
    numbers = jax.numpy.arange(n, dtype="int32")
    same(
        random.permutation(random.key(7), n), jax.random.permutation(jax_key(), numbers)
    )


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_permutation_of_an_array(dtype, axis):
    x = np.arange(60).reshape(5, 4, 3).astype(dtype)
    ours = random.permutation(random.key(7), x, axis=axis)
    same(ours, jax.random.permutation(jax_key(), x, axis=axis))


@pytest.mark.parametrize(("axis", "shape"), [(-1, None), (0, None), (-1, (3, 50))])
def test_categorical(axis, shape):
    logits = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
    ours = random.categorical(random.key(7), logits, axis, shape)
    theirs = jax.random.categorical(jax_key(), logits, axis, shape)
    same(ours, theirs.astype("int32"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["normal", "exponential"])
def test_normal_and_exponential_within_3_ulp(name, dtype):
    for seed in (7, 8):
        ours = getattr(random, name)(random.key(seed), (100_000,), dtype)
        assert (
            ulps(ours, getattr(jax.random, name)(jax_key(seed), (100_000,), dtype)) <= 3
        )


def test_truncated_normal_within_4_ulp():
    ours = random.truncated_normal(random.key(7), -1.0, 2.0, (100_000,))
    assert (
        ulps(
            ours,
            jax.random.truncated_normal(jax_key(), -1.0, 2.0, (100_000,), "float32"),
        )
        <= 4
    )
    assert ours.min() > -1
    assert ours.max() < 2


@pytest.mark.parametrize("name", ["normal", "gumbel", "exponential"])
def test_f64_is_close(name):
    ours = getattr(random, name)(random.key(7), (1000,), "float64")
    theirs = np.asarray(getattr(jax.random, name)(jax_key(), (1000,), "float64"))
    assert np.abs(ours - theirs).max() < 1e-13


def test_gumbel_f32_is_close():
    ours = random.gumbel(random.key(7), (100_000,))
    assert (
        np.abs(
            ours - np.asarray(jax.random.gumbel(jax_key(), (100_000,), "float32"))
        ).max()
        < 2e-6
    )
