"""What all five systems got wrong in dropout."""

import math

import numpy as np
import pytest

from tensorlang.graph import Network, TensorSpec, TrainingContext, TrainingProgram
from tensorlang.layers import Dense, Dropout, Sequential
from tensorlang.ops import nn, random


def context(layers, batch, width, seed=0):
    net = Network(layers, TensorSpec(("batch", width)), key=random.key(seed))

    def loss(y, t):
        return nn.mse(y, t, "sum")

    spec = TensorSpec(("batch", net.outputs[0].shape[-1]))
    program = TrainingProgram(net, loss, [spec])
    return net, TrainingContext(program, {"batch": batch})


def drawn(made, x):
    made.run(x, np.zeros((len(x), made.bound.outputs[1].shape[-1]), np.float32))
    return made.outputs[0].copy()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_mean_stays_and_the_rate_is_the_rate(rate) -> None:
    x = np.ones((1000, 1000), np.float32)
    _, made = context(Dropout(rate), 1000, 1000)
    y = drawn(made, x)
    kept = np.count_nonzero(y) / y.size
    sigma = math.sqrt(rate * (1 - rate) / y.size)
    assert abs(kept - (1 - rate)) < 5 * sigma
    assert abs(y.mean() - 1) < 5 * sigma / (1 - rate)
    np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)


def test_rate_0_and_eval_mode_are_the_identity() -> None:
    x = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    net, made = context(Dropout(0.0), 8, 32)
    np.testing.assert_array_equal(drawn(made, x), x)
    net, _ = context(Dropout(0.9), 8, 32)
    np.testing.assert_array_equal(net.transform(x), x)


def test_two_layers_never_share_a_mask_and_steps_do_not() -> None:
    x = np.ones((64, 64), np.float32)
    _, made = context(Sequential(Dropout(0.5), Dropout(0.5)), 64, 64)
    first, second = drawn(made, x), drawn(made, x)
    both = np.count_nonzero(first) / first.size  # one mask would keep a half
    assert abs(both - 0.25) < 0.05
    assert not np.array_equal(first, second)


def test_the_keys_value_matters_and_not_where_it_lies() -> None:
    x = np.ones((8, 32), np.float32)
    (_, a), (_, b), (_, c) = (context(Dropout(0.5), 8, 32, seed) for seed in (1, 1, 2))
    first = drawn(a, x)
    np.testing.assert_array_equal(first, drawn(b, x))
    assert not np.array_equal(first, drawn(c, x))


def test_the_gradient_has_the_same_mask() -> None:
    width = 64
    net, made = context(Sequential(Dense(width), Dropout(0.5)), 1, width)
    net.weights["0.weight"][...] = 0
    net.weights["0.bias"][...] = 1
    y = drawn(made, np.ones((1, width), np.float32))
    # the loss is the sum of y^2, so its gradient for the bias is 2 y / (1 - rate)
    np.testing.assert_allclose(made.gradients["0.bias"], 4 * y[0], rtol=1e-6)
    assert 0 < np.count_nonzero(y) < width
