"""Attention that programs write out: one operator, and with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.graph import Network, TensorSpec
from tensorlang.ops import math, nn

RNG = np.random.default_rng(5)
SWAP = (0, 1, 3, 2)
LOW = np.finfo(np.float32).min
SEEN = np.tri(9, 13, dtype=bool)
BIAS = RNG.normal(size=(4, 1, 13)).astype(np.float32)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def weighted(scores, v):
    return math.matmul(nn.softmax(scores), v)


def product(q, k):
    return math.matmul(q, nn.transpose(k, SWAP))


def scaled_both(q, k, v):
    root = np.array([0.5], np.float32)
    keys = math.multiply(nn.transpose(k, SWAP), root)
    return weighted(math.matmul(math.multiply(q, 0.5), keys), v)


def divided(q, k, v):
    return weighted(math.divide(product(q, k), 4.0), v)


def flattened_keys(q, k, v):
    batch, heads, n, depth = k.shape
    rows = nn.reshape(k, (batch * heads, n, depth))
    keys = nn.reshape(nn.transpose(rows, (0, 2, 1)), (batch, heads, depth, n))
    return weighted(math.multiply(0.25, math.matmul(q, keys)), v)


def other_order(q, k, v):
    keys = nn.transpose(nn.transpose(k, (2, 0, 1, 3)), (1, 2, 3, 0))
    return weighted(math.matmul(q, keys), v)


def computed_keys(q, k, v):
    return weighted(math.matmul(q, math.sin(nn.transpose(k, SWAP))), v)


def flags(q, k, v):
    scores = math.matmul(q, k, transpose_b=True)
    return math.matmul(nn.softmax(scores), nn.transpose(v, SWAP), transpose_b=True)


def chosen(q, k, v):
    return weighted(math.where(SEEN, product(q, k), -np.inf), v)


def added(q, k, v):
    hidden = math.where(SEEN[None, None], np.float32(0), LOW)
    return weighted(math.add(hidden, math.multiply(product(q, k), 0.25)), v)


def twice(q, k, v):
    scores = math.add(product(q, k), BIAS)
    return weighted(math.where(SEEN, scores, float(LOW)), v)


def padded_first(q, k, v):
    """Rows in which `where` replaces what padding hides already."""
    padding = np.where(np.arange(13) < 4, LOW, np.float32(0))
    scores = math.add(product(q, k), padding)
    return weighted(math.where(SEEN, scores, float(LOW)), v)


def guarded(q, k, v):
    seen = SEEN & (np.arange(9) != 3)[:, None]
    low = math.where(seen, np.float32(0), np.float32(-np.inf))
    share = nn.softmax(math.add(product(q, k), low))
    return math.matmul(math.where(math.isnan(share), np.float32(0), share), v)


FUSED = (scaled_both, divided, flattened_keys, other_order, computed_keys, flags)
FUSED += (chosen, added, twice, padded_first, guarded)


def shapes(*lead):
    return (*lead, 9, 8), (*lead, 13, 8), (*lead, 13, 7)


def network(apply, given):
    return Network(apply, *map(TensorSpec, given))


def ids(net):
    return [node.id for node in net.program.nodes]


def same(net, apply, arrays):
    wanted = apply(*arrays)
    np.testing.assert_allclose(net(*arrays), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("apply", FUSED)
def test_forms_of_exporters(apply):
    net = network(apply, shapes("batch", 4))
    assert ids(net).count("nn.attention") == 1
    assert "nn.softmax" not in ids(net)
    for batch in (1, 3):
        same(net, apply, [floats(*shape) for shape in shapes(batch, 4)])


def test_transposed_keys_are_read_as_they_were():
    for apply in (scaled_both, flattened_keys, other_order):
        assert "nn.transpose" not in ids(network(apply, shapes(2, 4)))


@pytest.mark.parametrize("lead", [(), (6,), (2, 3, 4), (1, 2, 3, 2)])
@pytest.mark.parametrize("mask", [None, (13,), (9, 13)])
def test_other_ranks(lead, mask):
    bias = None if mask is None else floats(*mask)

    def apply(q, k, v):
        scores = math.matmul(q, k, transpose_b=True)
        return weighted(scores if bias is None else math.add(scores, bias), v)

    net = network(apply, shapes(*lead))
    assert "nn.attention" in ids(net)
    same(net, apply, [floats(*shape) for shape in shapes(*lead)])


def test_factors_that_are_known_at_the_call():
    def apply(q, k, v, scale):
        return weighted(math.divide(product(q, k), scale), v)

    net = network(apply, [*shapes(2, 4), (1,)])
    assert "nn.attention" in ids(net)
    arrays = [floats(*shape) for shape in shapes(2, 4)]
    same(net, apply, [*arrays, np.array([3.0], np.float32)])


def other_axis(q, k, v):
    return math.matmul(nn.softmax(product(q, k), 2), v)


def used_twice(q, k, v):
    share = nn.softmax(product(q, k))
    return math.add(math.matmul(share, v), math.sum(share))


def weak_mask(q, k, v):
    return weighted(math.where(SEEN, product(q, k), -100.0), v)


def nan_to_one(q, k, v):
    share = nn.softmax(product(q, k))
    return math.matmul(math.where(math.isnan(share), np.float32(1), share), v)


def scaled_after_mask(q, k, v):
    return weighted(math.multiply(math.add(product(q, k), BIAS), 0.5), v)


def no_softmax(q, k, v):
    return math.matmul(product(q, k), v)


LEFT = (other_axis, used_twice, weak_mask, nan_to_one, scaled_after_mask, no_softmax)


@pytest.mark.parametrize("apply", LEFT)
def test_what_is_left_as_it_is(apply):
    given = shapes(1, 4)
    net = network(apply, given)
    assert "nn.attention" not in ids(net)
    same(net, apply, [floats(*shape) for shape in given])


def test_weights_that_are_a_result():
    def apply(q, k, v):
        share = nn.softmax(product(q, k))
        return share, math.matmul(share, v)

    assert "nn.attention" not in ids(network(apply, shapes(2, 4)))
