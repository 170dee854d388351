"""CUDA and LLVM give the same bits: random streams, dropout, Adam, strict floats."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang.ops import math, nn, optim, random

RNG = np.random.default_rng(5)
TARGETS = ("llvm", "cuda")
FLOATS = ["float16", ml_dtypes.bfloat16, "float32", "float64"]
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 0.5, 2.5, -2.5]
)


def words(array):
    raw = np.ascontiguousarray(array)
    return raw.view(f"u{raw.dtype.itemsize}")


def assert_same(here, there):
    if here.dtype.kind in "iub":
        np.testing.assert_array_equal(here, there)
        return
    same = (words(here) == words(there)) | (np.isnan(here) & np.isnan(there))
    assert same.all(), (here[~same], there[~same])


@pytest.mark.parametrize("stream", ["jax", "packed"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(
    ("shape", "offset"), [((1000,), 0), ((13, 37), 0), ((5,), 12345)]
)
def test_bits(shape, offset, dtype, stream):
    given = {"stream": stream, "offset": offset}
    assert_same(
        *(
            random.bits(random.key(7), shape, dtype, target=target, **given)
            for target in TARGETS
        )
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["uniform", "normal", "exponential", "gumbel"])
def test_floats(name, dtype):
    draw = getattr(random, name)
    assert_same(*(draw(random.key(11), (1003,), dtype, target=t) for t in TARGETS))


def test_integers_coins_orders_and_batches_of_keys():
    keys = random.split(random.key(1), 6)
    for call in (
        lambda t: random.randint(random.key(3), (999,), -5, 1000, target=t),
        lambda t: random.bernoulli(random.key(4), 0.3, (999,), target=t),
        lambda t: random.permutation(random.key(6), 257, target=t),
        lambda t: random.bits(keys.clone(), (6, 33), target=t),
    ):
        assert_same(*map(call, TARGETS))


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("op", [nn.dropout, nn.dropout_grad], ids=lambda op: op.id)
def test_dropout_and_its_gradient(op, rate):
    x = RNG.normal(size=(33, 65)).astype(np.float32)
    assert_same(*(op(x, rate, key=random.key(9), target=t) for t in TARGETS))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op",
    [math.exp, math.log, math.tanh, math.sin, math.sqrt, math.erf, nn.gelu, nn.sigmoid],
    ids=lambda op: op.id,
)
def test_functions_of_one_number(op, dtype):
    with np.errstate(over="ignore"):
        x = np.concatenate([SPECIAL, RNG.normal(size=300) * 4]).astype(dtype)
    assert_same(*(op(x, target=target) for target in TARGETS))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op",
    [math.add, math.multiply, math.divide, math.minimum, math.maximum],
    ids=lambda op: op.id,
)
def test_functions_of_two_numbers(op, dtype):
    with np.errstate(over="ignore"):
        a, b = (v.ravel().astype(dtype) for v in np.meshgrid(SPECIAL, SPECIAL))
    assert_same(*(op(a, b, target=target) for target in TARGETS))


def test_adam():
    start = [np.abs(RNG.normal(size=1001)).astype(np.float32) for _ in range(4)]
    results = []
    for target in TARGETS:
        held = [array.copy() for array in start]
        optim.adam(*held, step=3, lr=1e-3, target=target)
        results.append(held)
    for here, there in zip(*results, strict=True):
        assert_same(here, there)
