"""Transposed convolutions, bags of embeddings, attention with a cache: PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    SGD,
    Cache,
    Conv1DTranspose,
    Conv2DTranspose,
    Conv3DTranspose,
    EmbeddingBag,
    Layer,
    Model,
    MultiHeadAttention,
)
from tensorlang.ops import random

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def stepped(model, theirs, arrays, truth, *, rate):
    """The losses of a step of both, and whether the weights are the same after it."""
    steps = torch.optim.SGD(theirs.parameters(), lr=rate)
    loss = model.train_one_batch(*arrays, truth)
    y = theirs(*(torch.tensor(array) for array in arrays))
    wanted = torch.nn.functional.mse_loss(y, torch.tensor(truth))
    wanted.backward()
    steps.step()
    assert loss == pytest.approx(wanted.item(), rel=1e-4)
    for name, value in theirs.named_parameters():
        mine = model.get_params()[name]
        np.testing.assert_allclose(mine, value.detach().numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "theirs", "spatial"),
    [
        (Conv1DTranspose, torch.nn.ConvTranspose1d, (9,)),
        (Conv2DTranspose, torch.nn.ConvTranspose2d, (5, 6)),
        (Conv3DTranspose, torch.nn.ConvTranspose3d, (3, 2, 4)),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"groups": 2, "dilation": 2},
    ],
    ids=str,
)
def test_transposed_convolutions(layer, theirs, spatial, options) -> None:
    model = Model(layer(6, 3, **options))
    model.compile(("batch", 4, *spatial), loss="mse", optimizer=SGD(lr=0.1))
    other = theirs(4, 6, 3, **options)
    for name, value in other.named_parameters():
        value.data = torch.tensor(model.get_params()[name])
    x = normal(2, 4, *spatial)
    y = model(x)
    np.testing.assert_allclose(y, other(torch.tensor(x)).detach(), atol=1e-5)
    stepped(model, other, [x], normal(*y.shape), rate=0.1)


def test_a_transposed_convolution_with_channels_last() -> None:
    x = normal(2, 5, 6, 4)
    given = {"stride": 2, "activation": "relu"}
    last = Model(Conv2DTranspose(3, 3, layout="NHWC", **given)).compile(x.shape)
    first = Model(Conv2DTranspose(3, 3, **given)).compile((2, 4, 5, 6))
    first.set_params(last.get_params())
    wanted = first(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(last(x), wanted.transpose(0, 2, 3, 1), atol=1e-5)


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
@pytest.mark.parametrize("count", [1, 7])
def test_bags_of_embeddings(mode, count) -> None:
    model = Model(EmbeddingBag(11, 5, mode))
    model.compile(
        TensorSpec(("batch", count), "int64"), loss="mse", optimizer=SGD(lr=0.5)
    )
    other = torch.nn.EmbeddingBag(11, 5, mode=mode)
    other.weight.data = torch.tensor(model.get_params()["weight"])
    ids = RNG.permuted(np.tile(np.arange(11), (4, 1)), axis=1)[:, :count].copy()
    np.testing.assert_allclose(model(ids), other(torch.tensor(ids)).detach(), atol=1e-6)
    stepped(model, other, [ids], normal(4, 5), rate=0.5)


def test_bags_with_factors() -> None:
    model = Model(EmbeddingBag(11, 5, "sum"))
    model.compile(TensorSpec(("b", 3), "int64"), ("b", 3), train=False)
    ids, factors = RNG.integers(0, 11, (4, 3)), normal(4, 3)
    table = torch.tensor(model.get_params()["weight"])
    wanted = torch.nn.functional.embedding_bag(
        torch.tensor(ids), table, mode="sum", per_sample_weights=torch.tensor(factors)
    )
    np.testing.assert_allclose(model(ids, factors), wanted, atol=1e-6)
    with pytest.raises(ArgumentError, match="mode of EmbeddingBag is mean, sum, max"):
        EmbeddingBag(3, 3, "median")


class Continued(Layer):
    """Attention that continues sequences."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def apply(self, x, keys, values, count):
        return self.inner(x, None, Cache(keys, values, count))


@pytest.mark.parametrize(
    "given",
    [
        {"causal": True, "rotary": 10_000.0},
        {"causal": True, "groups": 2, "rotary": 100.0},
        {"causal": "lower_right", "window": 3},
        {"causal": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("parts", [(1,) * 7, (4, 1, 2), (7,)], ids=str)
def test_attention_with_a_cache_is_that_of_whole_sequences(given, parts) -> None:
    capacity, batch, width = 9, 3, 24
    layer = MultiHeadAttention(width, 4, **given)
    whole = Model(layer).compile(("batch", "time", width), key=random.key(0))
    x = normal(batch, sum(parts), width)
    shared = layer.groups * layer.depth
    keys, values = np.zeros((2, batch, capacity, shared), np.float32)
    first, made = 0, []
    for new in parts:
        model = Model(Continued(MultiHeadAttention(width, 4, **given)))
        model.compile(
            ("batch", new, width),
            ("batch", capacity, shared),
            ("batch", capacity, shared),
            TensorSpec(("batch",), "int64"),
            train=False,
            weights={f"inner.{k}": v for k, v in whole.get_params().items()},
        )
        count = np.full(batch, first)
        y, keys, values = model(x[:, first : first + new], keys, values, count)
        first += new
        # without a causal mask, a query sees what is known so far
        known = x if given["causal"] else x[:, :first]
        wanted = whole(known)[:, first - new : first]
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
        made.append(y)


def test_sequences_of_a_batch_continue_at_their_own_positions() -> None:
    given = {"causal": True, "rotary": 10_000.0}
    model = Model(Continued(MultiHeadAttention(8, 2, **given)))
    specs = ("b", 1, 8), ("b", 5, 8), ("b", 5, 8), TensorSpec(("b",), "int64")
    model.compile(*specs, train=False)
    x = normal(2, 6, 8)
    keys, values = np.zeros((2, 2, 5, 8), np.float32)
    together, count = [], np.array([0, 0])
    for at in range(6):  # the last position sees the latest five
        y, keys, values = model(x[:, at : at + 1], keys, values, count)
        together.append(y)
        count += 1
    late, count = np.zeros((2, 1, 5, 8), np.float32), np.array([0])
    alone = []
    for at in range(6):
        y, *late = model(x[1:, at : at + 1], *late, count)
        alone.append(y)
        count += 1
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a[1:], b, atol=1e-6)


def test_rotary_attention_is_that_of_pytorch() -> None:
    model = Model(MultiHeadAttention(16, 2, causal=True, rotary=10_000.0))
    model.compile(("batch", "time", 16), loss="mse", key=random.key(0))
    x = normal(2, 7, 16)
    w = {name: torch.tensor(value) for name, value in model.get_params().items()}
    angles = torch.arange(7.0)[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)

    def heads(name, turned):
        y = torch.tensor(x) @ w[f"{name}.weight"].T + w[f"{name}.bias"]
        y = y.unflatten(-1, (2, 8)).transpose(1, 2)
        a, b = y.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1) if turned else y

    y = torch.nn.functional.scaled_dot_product_attention(
        heads("query", True), heads("key", True), heads("value", False), is_causal=True
    )
    wanted = y.transpose(1, 2).flatten(-2) @ w["result.weight"].T + w["result.bias"]
    np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-5)
    truth = normal(*x.shape)
    losses = [model.train_one_batch(x, truth) for _ in range(3)]
    assert losses[2] < losses[0]


def test_attention_that_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match="heads have an even size"):
        MultiHeadAttention(6, 2, rotary=10_000.0)
    with pytest.raises(ArgumentError, match="base is positive"):
        MultiHeadAttention(8, 2, rotary=-1.0)
    for new in (4, "time"):
        with pytest.raises(ShapeError, match="a cache of no fewer"):
            Model(Continued(MultiHeadAttention(8, 2))).compile(
                ("b", new, 8), ("b", 3, 8), ("b", 3, 8), TensorSpec(("b",), "int64")
            )
