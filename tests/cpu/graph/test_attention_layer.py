"""Multi-head attention and group norm as layers, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.graph import TensorSpec
from tensorlang.layers import GroupNorm, Model, MultiHeadAttention
from tensorlang.ops import random

torch = pytest.importorskip("torch")
WIDTH, HEADS = 24, 4


def built(layer, *shape):
    return Model(layer).compile(TensorSpec(("batch", *shape)), key=random.key(0))


@pytest.mark.parametrize(
    ("groups", "causal"), [(4, False), (2, True), (1, "lower_right")]
)
def test_attention_is_that_of_its_weights(groups, causal):
    layer = MultiHeadAttention(WIDTH, HEADS, groups=groups, causal=causal)
    model = built(layer, 9, WIDTH)
    x = np.random.default_rng(0).standard_normal((3, 9, WIDTH), np.float32)
    weights = {name: torch.tensor(w) for name, w in model.get_params().items()}

    def dense(name, value):
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def heads(name, count):
        parts = dense(name, torch.tensor(x)).unflatten(-1, (count, -1))
        return parts.transpose(1, 2)

    y = torch.nn.functional.scaled_dot_product_attention(
        heads("query", HEADS),
        heads("key", groups),
        heads("value", groups),
        is_causal=bool(causal),
        enable_gqa=True,
    )
    wanted = dense("result", y.transpose(1, 2).flatten(-2))
    np.testing.assert_allclose(model(x), wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_group_norm_is_that_of_pytorch():
    model = built(GroupNorm(3), 6, 5)
    x = np.random.default_rng(0).standard_normal((2, 6, 5), np.float32)
    wanted = torch.nn.functional.group_norm(torch.tensor(x), 3)
    np.testing.assert_allclose(model(x), wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_sizes_that_do_not_divide():
    with pytest.raises(ArgumentError, match="multiple of the next"):
        MultiHeadAttention(24, 5)
    with pytest.raises(ArgumentError, match="multiple of the next"):
        MultiHeadAttention(24, 4, groups=3)


def test_masks_that_are_none():
    for causal in ("x", None, [True], 2):
        with pytest.raises(ArgumentError, match="True, False or 'lower_right', not"):
            MultiHeadAttention(24, 4, causal=causal)
    for window in (0, -3, 2.5):
        with pytest.raises(ArgumentError, match="window of MultiHeadAttention is an"):
            MultiHeadAttention(24, 4, causal=True, window=window)
