"""Frozen weights: what depends on them alone is computed once, and is never stale."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ArgumentError, WeightError
from tensorlang.graph import Context, Network, TensorSpec
from tensorlang.graph.networks.leaves import Weight
from tensorlang.layers import Dense, Model, Sequential
from tensorlang.layers.trainer import Trainer
from tensorlang.ops import math, nn, random

RNG = np.random.default_rng(7)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def weight(array: np.ndarray, path: str) -> Weight:
    spec = TensorSpec(array.shape, array.dtype.name)
    return Weight(spec, path, lambda *_: array)


def images(outputs: int, inputs: int, window: int, size: int) -> Network:
    w, b = (
        weight(floats(outputs, inputs, window, window), "w"),
        weight(floats(outputs), "b"),
    )

    def apply(x):
        return nn.conv2d(x, w, b, padding=window // 2, layout="NHWC", activation="relu")

    return Network(apply, TensorSpec(("batch", size, size, inputs)))


@pytest.mark.parametrize(
    ("outputs", "inputs", "window", "size"),
    [(64, 48, 1, 7), (40, 20, 3, 7), (33, 17, 3, 5), (32, 1, 3, 6), (1, 1, 1, 1)],
)
def test_packed_weights_are_kept_and_give_the_same(outputs, inputs, window, size):
    net, x = images(outputs, inputs, window, size), floats(2, size, size, inputs)
    wanted = net(x)
    net.freeze()
    np.testing.assert_array_equal(net(x), wanted)
    context = Context(net, 2)
    np.testing.assert_array_equal(context(x), wanted)
    if outputs > 32:
        assert context.kept >= 4 * outputs * inputs * window**2
    net.set_weights({"w": 2 * net.weights["w"], "b": net.weights["b"] - 1})
    after = net(x)
    np.testing.assert_array_equal(context(x), after)
    again = images(outputs, inputs, window, size)
    again.set_weights(net.get_weights())
    np.testing.assert_array_equal(after, again(x))


def test_contexts_share_what_is_kept() -> None:
    net = images(64, 32, 3, 7)
    net.freeze()
    one, two = Context(net, 1), Context(net, 3)
    assert one.kept
    assert len(net.edition.kept) == 1
    for context, batch in ((one, 1), (two, 3)):
        x = floats(batch, 7, 7, 32)
        np.testing.assert_array_equal(context(x), net(x))


def test_operators_of_weights_alone_run_once() -> None:
    w = weight(floats(6, 5), "w")

    def apply(x):
        return math.matmul(x, math.exp(nn.transpose(w, (1, 0))) + 1.0) + w[0, 0]

    net = Network(apply, TensorSpec(("batch", 5)))
    x = floats(3, 5)
    wanted, many = net(x), len(Context(net, 3).bound.steps)
    net.freeze()
    context = Context(net, 3)
    assert len(context.bound.steps) < many
    for _ in range(3):
        np.testing.assert_array_equal(context(x), wanted)
    net.set_weights({"w": net.weights["w"] * 0.5})
    np.testing.assert_array_equal(context(x), Network.transform(net, x))
    assert not np.array_equal(context(x), wanted)


def test_a_result_may_depend_on_weights_alone() -> None:
    w = weight(floats(4), "w")
    net = Network(lambda x: (x + w, math.exp(w)), TensorSpec(("batch", 4)))
    net.freeze()
    for _ in range(2):
        _, y = net(floats(2, 4))
        np.testing.assert_allclose(y, np.exp(net.weights["w"]), rtol=1e-6)
        y[:] = 0  # a copy


def test_constants_within_loops_and_branches() -> None:
    w = weight(floats(3, 3), "w")

    def apply(x):
        def body(_, y):
            return math.matmul(y, math.tanh(w)) + math.exp(w)[0]

        y = graph.loop(3, body, x)
        return graph.cond(math.sum(x) > 0.0, lambda: y * math.exp(w)[1], lambda: y)

    net = Network(apply, TensorSpec((2, 3)))
    x = np.abs(floats(2, 3))
    wanted = net(x), net(-x)
    net.freeze()
    np.testing.assert_array_equal(net(x), wanted[0])
    np.testing.assert_array_equal(net(-x), wanted[1])
    net.set_weights({"w": -net.weights["w"]})
    assert not np.array_equal(net(x), wanted[0])


def test_draws_are_not_kept() -> None:

    drawn = graph.trace(
        lambda x, k: x + random.normal(k, (3,)), [TensorSpec((3,)), graph.KeySpec()]
    )
    x = np.zeros(3, np.float32)
    one, two = (drawn(x, random.key(n)) for n in range(2))
    assert not np.array_equal(one, two)


def test_frozen_arrays_are_read_only_and_are_not_trained() -> None:
    model = Model(Sequential(Dense(3)))
    model.compile(TensorSpec(("batch", 4)), train=False)
    with pytest.raises(ValueError, match="read-only"):
        model.network.weights["0.weight"][...] = 0
    with pytest.raises(ArgumentError, match="frozen for inference; compile"):
        Trainer(model.network)
    with pytest.raises(WeightError, match="missing"):
        model.set_params({})
    assert not model.network.weights["0.weight"].flags.writeable


def test_trained_weights_are_never_stale() -> None:
    model = Model(Sequential(Dense(70), Dense(3)))
    model.compile(TensorSpec(("batch", 40)), loss="mse")
    x, t = floats(5, 40), floats(5, 3)
    for _ in range(3):
        before = model(x)
        model.train_one_batch(x, t)
        after = model(x)
        assert not np.array_equal(before, after)
        fresh = Model(Sequential(Dense(70), Dense(3)))
        fresh.compile(
            TensorSpec(("batch", 40)), train=False, weights=model.get_params()
        )
        np.testing.assert_array_equal(after, fresh(x))


def test_threads_use_a_frozen_network_at_once() -> None:
    net, wrong = images(48, 32, 3, 7), []
    net.freeze()
    xs = [floats(n + 1, 7, 7, 32) for n in range(4)]
    wanted = [net(x) for x in xs]

    def work(at):
        context = Context(net, at + 1)
        wrong.extend(
            at for _ in range(20) if not np.array_equal(context(xs[at]), wanted[at])
        )

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_small_weights_that_begin_alike_are_told_apart() -> None:
    a, b = (weight(np.zeros(4, np.float32), name) for name in "ab")

    def apply(x):
        return math.add(x, math.exp(a)), math.add(x, math.exp(b))

    net, x = Network(apply, TensorSpec(("batch", 4))), np.zeros((2, 4), np.float32)
    net.freeze()
    context = Context(net, 2)
    context(x)
    net.set_weights({"a": np.full(4, 1, "f4"), "b": np.full(4, 2, "f4")})
    first, second = context(x)
    np.testing.assert_allclose(first, np.full((2, 4), np.e), rtol=1e-6)
    np.testing.assert_allclose(second, np.full((2, 4), np.e**2), rtol=1e-6)


def test_sums_of_weights_are_each_program_s_own() -> None:
    a, b = weight(floats(8, 16), "a"), weight(floats(16, 8), "b")

    def apply(x):
        return math.matmul(x, math.add(math.matmul(a, b), 1.0))

    net = Network(apply, TensorSpec(("batch", 8)))
    net.freeze()
    contexts = [Context(net, size) for size in (2, 3)]
    first, second = (
        {
            at.ctypes.data
            for _, given in each.bound.once
            for at in given
            if isinstance(at, np.ndarray)
        }
        for each in contexts
    )
    both = {array.ctypes.data for array in net.weights.values()}
    assert first & second <= both
    x = floats(3, 8)
    wanted = x @ (net.weights["a"] @ net.weights["b"] + 1)
    np.testing.assert_allclose(contexts[1](x), wanted, rtol=1e-4, atol=1e-4)
