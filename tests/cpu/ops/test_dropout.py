"""Dropout: its mask, its gradient, its threaded state, its arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import KeyReuseError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import nn, random

RATES = (0.0, 0.1, 0.25, 0.5, 0.9, 1 - 2**-20)
DTYPES = ("f32", "bf16", "f16", "f64")


def normal(dtype, *shape):
    values = np.random.default_rng(0).standard_normal(shape)
    return values.astype(DType(dtype).numpy)


def expected(x, rate, key, stream="jax"):
    """Dropout in plain NumPy on a uniform of the same key."""
    uniform = random.uniform(key, x.shape, stream=stream)
    keep = uniform < np.float32(1 - rate)
    with np.errstate(over="ignore"):
        scaled = x / np.asarray(1 - rate).astype(x.dtype)
    return np.where(keep, scaled, np.zeros((), x.dtype))


def same(a, b):
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("stream", ["jax", "packed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", RATES)
def test_forward_backward_and_threaded_agree(rate, dtype, stream):
    x, key = normal(dtype, 33, 31), random.key(7)
    after, second = random.split(key.clone())
    y = nn.dropout(x, rate, key=key, stream=stream)
    same(y, expected(x, rate, key.clone(), stream))
    same(nn.dropout_grad(x, rate, key=key, stream=stream), y)
    y, state = nn.dropout_train(x, key.clone(), rate, stream=stream)
    same(y, nn.dropout(x, rate, key=second, stream=stream))
    assert (random.key_data(state) == random.key_data(after)).all()
    assert state.states == "fresh"


@pytest.mark.parametrize("size", [0, 1, 5, 63, 64, 65, 4097, 70001])
@pytest.mark.parametrize("stream", ["jax", "packed"])
def test_odd_sizes(size, stream):
    x = normal("f32", size)
    y = nn.dropout(x, 0.3, key=random.key(7), stream=stream)
    same(y, expected(x, 0.3, random.key(7), stream))


def test_nothing_is_dropped_at_rate_0():
    x = np.array([1.5, -0.0, np.inf, np.nan, 1e-45], np.float32)
    assert nn.dropout(x, 0.0, key=random.key(0)).tobytes() == x.tobytes()


def test_what_is_dropped_is_zero_whatever_it_was():
    x = np.full(1000, np.nan, np.float32)
    y = nn.dropout(x, 0.5, key=random.key(0))
    assert 400 < np.count_nonzero(y == 0) < 600
    assert not np.signbit(y[y == 0]).any()


def test_the_share_that_is_dropped():
    x = np.ones(1 << 20, np.float32)
    for rate in (0.1, 0.5, 0.75):
        dropped = np.mean(nn.dropout(x, rate, key=random.key(3)) == 0)
        assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / x.size)


def test_a_batch_of_keys_masks_each_row():
    x = normal("f32", 5, 7, 9)
    keys = random.split(random.key(3), 5)
    y = nn.dropout(x, 0.5, key=keys)
    for row, values, key in zip(y, x, keys, strict=True):
        same(row, nn.dropout(values, 0.5, key=key.clone()))
    same(nn.dropout_grad(x, 0.5, key=keys), y)
    with pytest.raises(KeyReuseError):
        nn.dropout(x, 0.5, key=keys)


def test_the_gradient_replays_a_used_key_and_uses_none_up():
    x, key = normal("f32", 100), random.key(3)
    nn.dropout_grad(x, 0.5, key=key)
    y = nn.dropout(x, 0.5, key=key)
    same(nn.dropout_grad(x, 0.5, key=key), y)
    with pytest.raises(
        KeyReuseError, match=r"key was drawn from at .*test_dropout\.py"
    ):
        nn.dropout(x, 0.5, key=key)


def test_a_chain_of_threaded_states():
    x = np.ones(64, np.float32)
    state, masks = random.key(0), set()
    for _ in range(20):
        used = state
        y, state = nn.dropout_train(x, state, 0.5)
        masks.add(y.tobytes())
    assert len(masks) == 20
    with pytest.raises(KeyReuseError):
        nn.dropout_train(x, used, 0.5)


def test_a_failed_call_consumes_nothing():
    x, key = np.ones(4, np.float32), random.key(0)
    for bad in (
        lambda: nn.dropout(x, 1.5, key=key),
        lambda: nn.dropout(x, 0.5, key=key, out=np.ones(5, np.float32)),
        lambda: nn.dropout(x.astype(int), 0.5, key=key),
        lambda: nn.dropout(x, 0.5, key=key, stream="fast"),
    ):
        with pytest.raises(ValueError, match=r"nn\.dropout"):
            bad()
    nn.dropout(x, 0.5, key=key)


# -------------------------------------------------------------------------- arrays


def test_out_may_be_x():
    x = normal("f32", 1000)
    y = nn.dropout(x.copy(), 0.5, key=random.key(3))
    assert nn.dropout(x, 0.5, key=random.key(3), out=x) is x
    same(x, y)


def test_strided_arrays_in_and_out():
    x = normal("f32", 31, 33)
    y = nn.dropout(np.ascontiguousarray(x.T), 0.5, key=random.key(3))
    out = np.zeros((31, 33), np.float32)
    nn.dropout(x.T, 0.5, key=random.key(3), out=out.T)
    assert (y == out.T).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch_tensors_in_and_out(dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.arange(1, 17, dtype=getattr(torch, dtype))
    y = nn.dropout(x, 0.5, key=random.key(0))
    assert y.dtype == x.dtype
    assert y.tolist() == [0, 0, 6, 8, 0, 12, 14, 0, 0, 20, 0, 24, 0, 0, 0, 0]
    out = torch.empty_like(x)
    assert nn.dropout(x, 0.5, key=random.key(0), out=out) is out
    assert torch.equal(out, y)


def test_jax_arrays_in_and_out():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    x = jax.numpy.arange(1.0, 17.0, dtype="float32")
    y = nn.dropout(x, 0.5, key=random.key(0))
    assert isinstance(y, jax.Array)
    keep = jax.random.bernoulli(jax.random.key(0), np.float32(0.5), (16,))
    assert (y == jax.numpy.where(keep, x / 0.5, 0)).all()
