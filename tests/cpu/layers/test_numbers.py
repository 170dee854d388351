"""The numbers to meet of C, D and E."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.graph import (
    Network,
    TensorSpec,
    gradients,
)
from tensorlang.graph.execution.binding import bind
from tensorlang.layers import (
    SGD,
    AdaGrad,
    Adam,
    AdaMax,
    Conv2D,
    Dense,
    MaxPool2D,
    Model,
    RMSProp,
    Sequential,
    Trainer,
)
from tensorlang.layers.trainer import mse_skipping_nan
from tensorlang.ops import math, nn, random


def f32(*values):
    return np.array(values, np.float32)


def backward(layer, x, dy, weights=None):
    """What a layer gives for x, and the gradient of x for dy."""
    x = np.asarray(x, np.float32)
    spec = TensorSpec(x.shape)

    def whole(x, dy):
        y = layer(x)
        return y, *gradients([y], [x], [dy])

    inner = graph.trace(layer, (spec,))
    made = graph.trace(whole, (spec, inner.outputs[0].spec))
    leaves = {leaf: np.asarray(weights[leaf.path], np.float32) for leaf in made.weights}
    bound = bind(made, {}, leaves)
    np.copyto(bound.inputs[0], x)
    np.copyto(
        bound.inputs[1],
        np.broadcast_to(np.asarray(dy, np.float32), bound.inputs[1].shape),
    )
    bound()
    return bound.outputs


def test_c_dense_11_15() -> None:
    net = Network(Dense(2), TensorSpec(("batch", 3)))
    net.set_weights({"weight": f32([0, 2, 4], [1, 3, 5]), "bias": f32(1, 2)})
    np.testing.assert_array_equal(net.transform(f32([0, 1, 2])), [[11, 15]])


def test_c_conv2d_gradients_with_dilation_2() -> None:
    def layer(x, w):
        y = nn.conv2d(x, w, dilation=2, layout="NHWC")
        return y, *gradients(math.sum(y * y), [x, w])

    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    w = np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2)
    program = graph.trace(layer, (TensorSpec(x.shape), TensorSpec(w.shape)))
    y, dx, dw = program(x, w)
    wanted, wide = np.zeros((1, 2, 2, 2)), np.zeros_like(x)
    for i, j, o, a, b in np.ndindex(2, 2, 2, 2, 2):
        wanted[0, i, j, o] += x[0, i + 2 * a, j + 2 * b, 0] * w[o, 0, a, b]
    narrow = np.zeros_like(w)
    for i, j, o, a, b in np.ndindex(2, 2, 2, 2, 2):
        wide[0, i + 2 * a, j + 2 * b, 0] += 2 * wanted[0, i, j, o] * w[o, 0, a, b]
        narrow[o, 0, a, b] += 2 * wanted[0, i, j, o] * x[0, i + 2 * a, j + 2 * b, 0]
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(dx, wide)
    np.testing.assert_array_equal(dw, narrow)


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        (SGD(lr=1e-3), (5.0000668, -0.10000112, -0.20000224)),
        (
            AdaGrad(lr=1e-3, eps=1e-7, initial=0.1),
            (0.06179592, -0.057095252, -0.059872225),
        ),
        (RMSProp(lr=1e-3, eps=1e-7, alpha=0.9), (1.0091327, -1.0091326, -1.0091326)),
        (AdaMax(lr=1e-3, eps=1e-7), (0.9999907, -0.99999064, -0.99999064)),
        (Adam(lr=1e-3, eps=1e-7), (0.99999064, -0.99999064, -0.99999064)),
        (
            Adam(lr=1e-3, eps=1e-7, epsilon_hat=True),
            (0.99999064, -0.9999898, -0.9999905),
        ),
    ],
    ids=["sgd", "adagrad", "rmsprop", "adamax", "adam", "adam-epsilon-hat"],
)
def test_c_optimizers_of_1000_steps(optimizer, wanted) -> None:
    weight, gradient = np.zeros(3, np.float32), f32(-5, 0.1, 0.2)
    slots = optimizer.begin([weight])
    for step in range(1, 1001):
        optimizer.update([weight], [gradient], slots, step)
    np.testing.assert_allclose(weight, wanted, rtol=2e-5)


def test_d_linear() -> None:
    weights = {"weight": [[1, 2, 3], [4, 5, 6]], "bias": [0.1, 0.2]}
    y, dx = backward(Dense(2), [[1, 2, 3], [4, 5, 6]], 1, weights)
    np.testing.assert_allclose(y, [[14.1, 32.2], [32.1, 77.2]], rtol=1e-6)
    np.testing.assert_array_equal(dx, [[5, 7, 9], [5, 7, 9]])


def test_d_convolution() -> None:
    kernel = np.array([[1, 0.5], [0.2, 0.1]])
    # Juice convolves; a correlation, as everywhere else, has the kernel turned round
    weights = {"weight": kernel[None, None, ::-1, ::-1]}
    x = np.arange(1.0, 10.0).reshape(1, 1, 3, 3)
    y, dx = backward(Conv2D(1, 2, bias=None), x, 1, weights)
    np.testing.assert_allclose(y.ravel(), [7.5, 9.3, 12.9, 14.7], rtol=1e-6)
    assert dx.sum() == pytest.approx(4 * kernel.sum())


def test_d_max_pooling() -> None:
    y, dx = backward(MaxPool2D(2, 1), np.arange(1.0, 10.0).reshape(1, 1, 3, 3), 1)
    np.testing.assert_array_equal(y.ravel(), [5, 6, 8, 9])
    np.testing.assert_array_equal(dx.ravel(), [0, 0, 0, 0, 1, 1, 0, 1, 1])


def test_d_sigmoid() -> None:
    y, dx = backward(nn.sigmoid, [1, -2, -3, 4], [0.4, 0.3, 0.1, 0.2])
    wanted = [0.7310586, 0.11920292, 0.047425874, 0.98201376]
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
    wanted = [0.078644775, 0.031498075, 0.004517666, 0.0035325468]
    np.testing.assert_allclose(dx, wanted, rtol=1e-6)


def test_d_log_softmax() -> None:
    y, _ = backward(nn.log_softmax, [[1, -2], [3.5, 4]], 1)
    wanted = [[-0.04859, -3.04859], [-0.97408, -0.47408]]
    np.testing.assert_allclose(y, wanted, atol=1e-5)


def test_d_mse_skips_labels_that_are_nan() -> None:
    def loss(y, t):
        made = mse_skipping_nan(y, t)
        return made, *gradients(made, [y])

    program = graph.trace(loss, (TensorSpec((4,)), TensorSpec((4,))))
    value, dy = program(f32(1, 2, 3, 4), f32(0, np.nan, 5, np.nan))
    assert value == (1 + 4) / 2
    np.testing.assert_array_equal(dy, [1, 0, -2, 0])


@pytest.mark.parametrize("optimizer", [SGD(lr=0.05, momentum=0.9), Adam(lr=3e-3)])
def test_d_an_mlp_learns_the_sine(optimizer) -> None:
    net = Network(
        Sequential(Dense(50, "tanh"), Dense(50, "tanh"), Dense(1)),
        TensorSpec(("batch", 1)),
    )
    trainer = Trainer(net, loss="mse", optimizer=optimizer)
    rng = np.random.default_rng(0)
    first = []
    for step in range(10_000):
        x = rng.uniform(-np.pi, np.pi, size=(32, 1)).astype(np.float32)
        loss, outputs = trainer.train_minibatch(x, np.sin(x))
        assert outputs.shape == (32, 1)
        first = [*first, loss] if step < 5 else first
        if step > 5 and loss < min(first) / 10:
            return
    pytest.fail(f"the loss fell from {first} to {loss} only")


def test_e_one_adam_step() -> None:
    weight = f32(1)
    adam = Adam(lr=0.1, eps=1e-8)
    adam.update([weight], [f32(0.1)], adam.begin([weight]), 1)
    assert weight[0] == pytest.approx(0.9, abs=1e-6)


def test_e_exponential_decay() -> None:
    from tensorlang.ops.optim import schedules

    rates = SGD(lr=schedules.step_decay(0.1, every=2, factor=0.5))
    assert [rates.rate(i + 1) for i in range(6)] == [
        0.1 * 0.5 ** (i // 2) for i in range(6)
    ]


def test_e_a_compiled_mlp_equals_the_same_in_numpy() -> None:
    model = Model(Sequential(Dense(100, "relu"), Dense(2)))
    model.compile(TensorSpec(("batch", 10)), optimizer=SGD(lr=0.05), key=random.key(4))
    w = {path: array.astype(np.float64) for path, array in model.get_params().items()}
    rng = np.random.default_rng(3)
    for _ in range(50):
        x, t = rng.normal(size=(16, 10)).astype(np.float32), rng.integers(0, 2, 16)
        loss = model.train_one_batch(x, t)
        h = np.maximum(x @ w["0.weight"].T + w["0.bias"], 0)
        y = h @ w["1.weight"].T + w["1.bias"]
        p = np.exp(y - y.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        assert loss == pytest.approx(-np.log(p[np.arange(16), t]).mean(), rel=1e-4)
        dy = (p - np.eye(2)[t]) / 16
        dh = (dy @ w["1.weight"]) * (h > 0)
        for path, gradient in (
            ("1.weight", dy.T @ h),
            ("1.bias", dy.sum(0)),
            ("0.weight", dh.T @ x),
            ("0.bias", dh.sum(0)),
        ):
            w[path] -= 0.05 * gradient
    for path, array in model.get_params().items():
        np.testing.assert_allclose(array, w[path], rtol=1e-3, atol=1e-5)
