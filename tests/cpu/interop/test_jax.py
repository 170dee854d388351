"""Our operators as JAX's: values and gradients, also under jit."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="the extra interop is not installed")

from tensorlang.errors import ArgumentError, KeyReuseError  # noqa: E402
from tensorlang.interop import jax as ours  # noqa: E402
from tensorlang.ops import nn, random  # noqa: E402

RNG = np.random.default_rng(2)


def given(*shapes):
    return [RNG.normal(size=shape).astype(np.float32) for shape in shapes]


def conv(x, w, b):
    y = jax.lax.conv_general_dilated(x, w, (2, 2), [(1, 1), (1, 1)])
    return y + b[:, None, None]


def norm(x, w, b):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jax.numpy.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


CASES = {
    "dense": (ours.dense, lambda x, w, b: x @ w.T + b, [(3, 4), (5, 4), (5,)]),
    "dense without bias": (ours.dense, lambda x, w: x @ w.T, [(3, 4), (5, 4)]),
    "conv2d": (
        lambda *arrays: ours.conv2d(*arrays, stride=2, padding=1),
        conv,
        [(2, 3, 6, 5), (4, 3, 3, 3), (4,)],
    ),
    "layer_norm": (ours.layer_norm, norm, [(4, 6), (6,), (6,)]),
    "relu": (ours.relu, jax.nn.relu, [(5, 3)]),
    "gelu": (ours.gelu, lambda x: jax.nn.gelu(x, approximate=False), [(5, 3)]),
    "silu": (ours.silu, jax.nn.silu, [(5, 3)]),
    "softmax": (ours.softmax, jax.nn.softmax, [(5, 3)]),
    "log_softmax": (ours.log_softmax, jax.nn.log_softmax, [(5, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name) -> None:
    op, theirs, shapes = CASES[name]
    arrays = given(*shapes)
    wanted = theirs(*arrays)
    weights = given(wanted.shape)[0]
    np.testing.assert_allclose(op(*arrays), wanted, rtol=1e-4, atol=1e-5)
    at = tuple(range(len(arrays)))
    ways = [jax.grad(lambda *a, f=f: (f(*a) * weights).sum(), at) for f in (op, theirs)]
    own, other = jax.jit(ways[0])(*arrays), ways[1](*arrays)
    for mine, peer in zip(own, other, strict=True):
        np.testing.assert_allclose(mine, peer, rtol=1e-3, atol=1e-4)


def test_dropout_by_key() -> None:
    (x,) = given((50, 4))
    key = random.key(3)
    y, back = jax.vjp(lambda x: ours.dropout(x, 0.3, key=key), x)
    np.testing.assert_array_equal(y, nn.dropout(x, 0.3, key=random.key(3)))
    ones = np.ones_like(x)
    np.testing.assert_array_equal(
        back(ones)[0], nn.dropout(ones, 0.3, key=random.key(3))
    )
    with pytest.raises(KeyReuseError):
        ours.dropout(x, 0.3, key=key)


def test_an_option_that_is_none() -> None:
    with pytest.raises(ArgumentError, match=r"gelu takes x and approximate.*axis"):
        ours.gelu(np.ones(3, np.float32), axis=0)


def test_under_vmap() -> None:
    x, w = given((4, 2, 6), (3, 6))
    np.testing.assert_allclose(
        jax.vmap(lambda row: ours.dense(row, w))(x), x @ w.T, rtol=1e-5, atol=1e-6
    )
    slopes = jax.vmap(jax.grad(lambda row: ours.gelu(row).sum()))(x)
    wanted = jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum())(x)
    np.testing.assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-5)
