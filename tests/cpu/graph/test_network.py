"""The network apart from its invocation (D)."""

import threading

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ShapeError, WeightError
from tensorlang.graph import (
    Context,
    Network,
    TensorSpec,
    TrainingContext,
    TrainingProgram,
)
from tensorlang.layers import BatchNorm, Dense, Dropout, Layer, Model, Sequential
from tensorlang.ops import nn, random

RNG = np.random.default_rng(2)
ROWS = TensorSpec(("batch", 6))


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def mlp(seed=0, width=5):
    layers = Sequential(Dense(width, "relu"), Dropout(0.5), Dense(3))
    return Network(layers, ROWS, key=random.key(seed))


def by_hand(net, x):
    w = net.weights
    h = np.maximum(x @ w["0.weight"].T + w["0.bias"], 0)
    return h @ w["2.weight"].T + w["2.bias"]


def test_d_one_network_any_batch() -> None:
    net = mlp()
    assert net.specs == (ROWS,)
    assert str(net.outputs[0]) == "f32[batch, 3]"
    for batch in (1, 2, 17):
        x = floats(batch, 6)
        np.testing.assert_allclose(
            net.transform(x), by_hand(net, x), rtol=1e-5, atol=1e-6
        )


def test_d_several_contexts_of_one_network_at_once() -> None:
    net, wrong = mlp(), []
    xs = [floats(n + 1, 6) for n in range(6)]

    def work(at):
        context = Context(net, at + 1)
        for _ in range(50):
            got = context.transform(xs[at])
            wrong.extend([at] * (not np.allclose(got, by_hand(net, xs[at]), atol=1e-5)))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_d_all_contexts_see_the_weights_change() -> None:
    net = mlp()
    one, two = Context(net, 1), Context(net, 2)
    net.set_weights({path: array + 1 for path, array in net.get_weights().items()})
    for context, batch in ((one, 1), (two, 2)):
        x = floats(batch, 6)
        np.testing.assert_allclose(context(x), by_hand(net, x), rtol=1e-5, atol=1e-5)


def test_d_a_context_has_its_batch() -> None:
    with pytest.raises(
        ShapeError, match=r"x0 is f32\[batch, 6\] with {'batch': 4}, not of"
    ):
        Context(mlp(), 4).transform(floats(5, 6))


def test_d_networks_are_swapped_while_running() -> None:
    first, second = mlp(0, 5), mlp(1, 9)
    x = floats(4, 6)
    context = Context(first, 4)
    context.transform(x)
    context.swap(second)
    np.testing.assert_allclose(
        context.transform(x), by_hand(second, x), rtol=1e-5, atol=1e-6
    )
    other = Network(Sequential(Dense(4)), ROWS)
    with pytest.raises(ShapeError, match="cannot replace"):
        context.swap(other)


def test_d_a_swap_never_mixes_what_another_thread_computes() -> None:
    x, nets = floats(20, 6), (mlp(0, width=4), mlp(1, width=9))
    context, wanted = Context(nets[0], 20), [net(x).tolist() for net in nets]
    found, done = [], threading.Event()

    def use() -> None:
        while not done.is_set():
            found.append(context(x).tolist())

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        context.swap(nets[turn % 2])
    done.set()
    for thread in threads:
        thread.join()
    assert found
    assert all(each in wanted for each in found)


def test_d_weights_by_path_with_exact_errors() -> None:
    net = mlp()
    kept = net.get_weights()
    wrong = dict(kept, **{"9.weight": np.zeros(3), "0.bias": np.zeros(4, np.float32)})
    del wrong["2.bias"]
    with pytest.raises(WeightError) as found:
        net.set_weights(wrong)
    assert str(found.value) == (
        "weight '2.bias' is missing; weight '9.weight' is not used; "
        "weight '0.bias' is float32[5], not float32[4]"
    )
    for path, array in net.weights.items():
        np.testing.assert_array_equal(array, kept[path])
    with pytest.raises(WeightError, match=r"float32.5., not float64.5."):
        net.set_weights(dict(kept, **{"0.bias": np.zeros(5)}))


def test_d_a_network_from_weights() -> None:
    first = mlp()
    layers = Sequential(Dense(5, "relu"), Dropout(0.5), Dense(3))
    second = Network(layers, ROWS, key=random.key(5), weights=first.get_weights())
    x = floats(4, 6)
    np.testing.assert_array_equal(first.transform(x), second.transform(x))


def test_d_shared_weights_have_summed_gradients() -> None:
    shared = Dense(6)
    net = Network(Sequential(shared, shared), ROWS)
    program = TrainingProgram(net, nn.mse, [TensorSpec(("batch", 6))])
    context = TrainingContext(program, {"batch": 4})
    x, t = floats(4, 6), floats(4, 6)
    loss = context.run(x, t)
    w, b = net.weights["0.weight"].astype(float), net.weights["0.bias"].astype(float)
    h = x @ w.T + b
    y = h @ w.T + b
    dy = 2 * (y - t) / y.size
    dh = dy @ w
    assert loss == pytest.approx(float(((y - t) ** 2).mean()), rel=1e-5)
    np.testing.assert_allclose(
        context.gradients["0.weight"], dy.T @ h + dh.T @ x, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(context.gradients["0.bias"], (dy + dh).sum(0), rtol=1e-4)


def test_training_gives_the_outputs_and_the_same_masks_back() -> None:
    net = mlp()
    program = TrainingProgram(net, nn.cross_entropy, [TensorSpec(("batch",), "int64")])
    context = TrainingContext(program, {"batch": 8})
    x, t = floats(8, 6), np.arange(8) % 3
    before = net.states["generator"].copy()
    context.run(x, t)
    after, key = random.split(random.wrap_key_data(before))
    w = net.weights
    h = nn.dense(x, w["0.weight"], w["0.bias"], activation="relu")
    h = nn.dropout(h, 0.5, key=key)
    y = nn.dense(h, w["2.weight"], w["2.bias"])
    np.testing.assert_allclose(context.outputs[0], y, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(net.states["generator"], random.key_data(after))


def test_dropout_draws_anew_at_each_step_and_not_in_use() -> None:
    net = Network(Dropout(0.5), ROWS)
    program = TrainingProgram(net, nn.mse, [ROWS])
    context = TrainingContext(program, {"batch": 50})
    x = np.ones((50, 6), np.float32)

    def mask():
        context.run(x, x)
        return context.outputs[0].copy()

    masks = [mask() for _ in range(3)]
    assert not np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[1], masks[2])
    assert set(np.unique(masks[0])) == {0.0, 2.0}
    np.testing.assert_array_equal(net.transform(x), x)


def test_running_moments_are_states() -> None:
    net = Network(BatchNorm(), ROWS)
    program = TrainingProgram(net, nn.mse, [ROWS])
    context = TrainingContext(program, {"batch": 50})
    x = floats(50, 6) * 3 + 1
    for _ in range(100):
        context.run(x, x)
    np.testing.assert_allclose(net.states["running_mean"], x.mean(0), rtol=1e-3)
    np.testing.assert_allclose(net.states["running_var"], x.var(0, ddof=1), rtol=1e-3)
    got = net.transform(x)
    np.testing.assert_allclose(got.std(0), np.ones(6), rtol=2e-2)


def test_checkpoints_in_training_need_less_and_change_nothing() -> None:
    class Block(Layer):
        def __init__(self, wrap) -> None:
            super().__init__()
            self.first, self.second = Dense(32, "tanh"), Dense(32, "tanh")
            self.drop, self.wrap = Dropout(0.1), wrap

        def apply(self, x):
            return self.wrap(lambda h: self.drop(self.second(self.first(h))))(x)

    x = np.random.default_rng(0).normal(size=(512, 32)).astype(np.float32)
    found = []
    for wrap in (lambda f: f, graph.checkpoint):
        layers = Sequential(*(Block(wrap) for _ in range(6)), Dense(3))
        model = Model(layers).compile(("batch", 32), key=random.key(0))
        losses = [model.train_one_batch(x, np.arange(512) % 3) for _ in range(3)]
        context = model.trainer.context(x, np.arange(512) % 3, outputs=False)
        found.append((losses, context.workspace))
    (usual, much), (again, less) = found
    assert usual == again
    assert less < much / 2


def test_a_function_of_layers_is_written_again_for_training() -> None:
    class Block(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Sequential(Dense(4, "relu"), Dropout(0.5))
            self.again = graph.checkpoint(self.inner)

        def apply(self, x):
            return self.again(x)

    network = Model(Block()).compile(("batch", 4)).network
    assert "nn.dropout_train" in str(network.train.graph)
    assert "nn.dropout_train" not in str(network.use.graph)
