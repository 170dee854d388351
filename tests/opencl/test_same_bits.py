"""OpenCL and LLVM give the same bits: random streams, dropout, strict floats."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang.ops import math, nn, optim, random

RNG = np.random.default_rng(5)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 0.5, 2.5, -2.5]
)


def words(array):
    raw = np.ascontiguousarray(array)
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[raw.dtype.itemsize]
    return raw.view(kind)


def assert_same(call):
    here, there = call("llvm"), call("opencl")
    for a, b in zip(np.atleast_1d(here), np.atleast_1d(there), strict=True):
        assert (np.isnan(a) & np.isnan(b) | (words(a) == words(b))).all()


@pytest.mark.parametrize("stream", ["jax", "packed"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_bits(dtype, stream):
    key = random.key(7)
    for shape, offset in (((1000,), 0), ((13, 37), 0), ((5,), 12345)):
        here, there = (
            random.bits(
                key.clone(), shape, dtype, stream=stream, offset=offset, target=target
            )
            for target in ("llvm", "opencl")
        )
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["uniform", "normal", "exponential", "gumbel"])
def test_floats(name, dtype):
    key = random.key(11)
    draw = getattr(random, name)
    here, there = (
        draw(key.clone(), (1003,), dtype, target=target)
        for target in ("llvm", "opencl")
    )
    np.testing.assert_array_equal(words(here), words(there))


def test_integers_bernoulli_and_batches_of_keys():
    keys = random.split(random.key(1), 6)
    for call in (
        lambda t: random.randint(random.key(3), (999,), -5, 1000, target=t),
        lambda t: random.bernoulli(random.key(4), 0.3, (999,), target=t),
        lambda t: random.bits(keys.clone(), (6, 33), target=t),
        lambda t: random.key_data(random.split(random.key(5), 40)) + 0 * len(t),
    ):
        np.testing.assert_array_equal(call("llvm"), call("opencl"))


def test_dropout_and_its_gradient():
    x = RNG.normal(size=(33, 65)).astype(np.float32)
    for rate in (0.1, 0.5):
        for op in (nn.dropout, nn.dropout_grad):
            here, there = (
                op(x, rate, key=random.key(9), target=t) for t in ("llvm", "opencl")
            )
            np.testing.assert_array_equal(words(here), words(there))


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
@pytest.mark.parametrize(
    "op",
    [math.exp, math.log, math.tanh, math.sin, math.sqrt, math.erf, nn.gelu, nn.sigmoid],
    ids=lambda op: op.id,
)
def test_functions_of_one_number(op, dtype):
    with np.errstate(over="ignore"):
        x = np.concatenate([SPECIAL, RNG.normal(size=300) * 4]).astype(dtype)
    here, there = op(x, target="llvm"), op(x, target="opencl")
    same = (words(here) == words(there)) | (np.isnan(here) & np.isnan(there))
    assert same.all(), (x[~same], here[~same], there[~same])


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
@pytest.mark.parametrize(
    "op",
    [math.add, math.multiply, math.divide, math.minimum, math.maximum],
    ids=lambda op: op.id,
)
def test_functions_of_two_numbers(op, dtype):
    with np.errstate(over="ignore"):
        a, b = (v.ravel().astype(dtype) for v in np.meshgrid(SPECIAL, SPECIAL))
    here, there = op(a, b, target="llvm"), op(a, b, target="opencl")
    same = (words(here) == words(there)) | (np.isnan(here) & np.isnan(there))
    assert same.all(), (a[~same], b[~same], here[~same], there[~same])


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_whole_numbers_wrap(dtype):
    info = np.iinfo(dtype)
    ends = [info.min, info.max, 0, 1, info.max // 2 + 3]
    a, b = (v.ravel().astype(dtype) for v in np.meshgrid(ends, ends))
    for op in (math.add, math.subtract, math.multiply, math.minimum):
        np.testing.assert_array_equal(op(a, b, target="opencl"), op(a, b))


def test_adam_is_to_the_bit():
    start = [RNG.normal(size=1001).astype(np.float32) for _ in range(4)]
    start[3] = np.abs(start[3])
    results = []
    for target in ("llvm", "opencl"):
        param, grad, m, v = (array.copy() for array in start)
        optim.adam(param, grad, m, v, step=3, lr=1e-3, target=target)
        results.append((param, m, v))
    for here, there in zip(*results, strict=True):
        np.testing.assert_array_equal(words(here), words(there))
