"""Layers that infer their shapes (C), and errors that say where."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ArgumentError, GraphError, ShapeError
from tensorlang.graph import TensorSpec
from tensorlang.graph.networks.network import Network
from tensorlang.ir import compute
from tensorlang.layers import (
    Activate,
    AvgPool2D,
    BatchNorm,
    Conv1D,
    Conv2D,
    Conv2DTranspose,
    Dense,
    Dropout,
    Embedding,
    EmbeddingBag,
    Flatten,
    GlobalAvgPool,
    Layer,
    LayerNorm,
    MaxPool2D,
    Model,
    Reshape,
    RMSNorm,
    Sequential,
    initializers,
)
from tensorlang.ops import math, nn, operator

IMAGES = TensorSpec(("batch", 1, 28, 28))


def lenet():
    return Sequential(
        Conv2D(6, 5, padding="same", activation="relu"),
        AvgPool2D(2),
        Conv2D(16, 5, activation="relu"),
        AvgPool2D(2),
        Flatten(),
        Dense(120, "relu"),
        Dense(84, "relu"),
        Dense(10),
    )


def test_c_lenet_without_any_input_size(golden) -> None:
    golden(Model(lenet()).summary(IMAGES))


def test_c_flatten_comes_out_at_400() -> None:
    net = lenet()
    x = graph.input(IMAGES)
    for layer in net.layers[:5]:
        x = layer(x)
    assert str(x.spec) == "f32[batch, 400]"


def test_c_dense_784_400_100_10() -> None:
    net = Sequential(Dense(400, "relu"), Dense(100, "relu"), Dense(10))
    assert net(graph.input((10000, 784))).shape == (10000, 10)


@pytest.mark.parametrize(
    ("layer", "given", "shape"),
    [
        (Conv1D(4, 3, padding=1, stride=2), (8, 3, 10), (8, 4, 5)),
        (Conv2D(4, (3, 1), layout="NHWC"), ("batch", 9, 9, 2), "f32[batch, 7, 9, 4]"),
        (
            Conv2DTranspose(4, 3, stride=2, output_padding=1),
            ("batch", 2, 5, 5),
            "f32[batch, 4, 12, 12]",
        ),
        (EmbeddingBag(9, 7), TensorSpec(("batch", 3), "int64"), "f32[batch, 7]"),
        (MaxPool2D(3, 1), (8, 3, 10, 10), (8, 3, 8, 8)),
        (GlobalAvgPool(), (8, 3, 10, 10), (8, 3, 1, 1)),
        (Reshape(2, -1), ("batch", 6), "f32[batch, 2, 3]"),
        (LayerNorm(), ("batch", "time", 6), "f32[batch, time, 6]"),
        (RMSNorm(), (4, 6), (4, 6)),
        (BatchNorm(), ("batch", 6, 3, 3), "f32[batch, 6, 3, 3]"),
        (Dropout(0.1), (4, 6), (4, 6)),
        (Activate("gelu"), (4, 6), (4, 6)),
        (Dense(7), ("batch", "time", 6), "f32[batch, time, 7]"),
        (
            Embedding(100, 7),
            TensorSpec(("batch", "time"), "int64"),
            "f32[batch, time, 7]",
        ),
    ],
)
def test_every_layer_infers(layer, given, shape) -> None:
    spec = given if isinstance(given, TensorSpec) else TensorSpec(given)
    made = graph.trace(layer, (spec,)).outputs[0].spec
    assert (str(made) if isinstance(shape, str) else made.shape) == shape


class Residual(Layer):
    """A block with a connection around it."""

    def __init__(self, width) -> None:
        super().__init__()
        self.norm = LayerNorm()
        self.steps = [Dense(width, "relu"), Dense(width)]

    def apply(self, x):
        h = self.norm(x)
        for step in self.steps:
            h = step(h)
        return x + h


def test_c_skip_connections_and_names() -> None:
    net = Network(Sequential(Residual(6), Residual(6)), TensorSpec(("batch", 6)))
    assert list(net.weights) == [
        f"{n}.{name}"
        for n in (0, 1)
        for name in (
            "norm.weight",
            "norm.bias",
            "steps.0.weight",
            "steps.0.bias",
            "steps.1.weight",
            "steps.1.bias",
        )
    ]


def test_c_a_layer_in_two_places_has_one_weight() -> None:
    shared = Dense(6)
    net = Network(
        Sequential(shared, Activate("relu"), shared), TensorSpec(("batch", 6))
    )
    assert sorted(net.weights) == ["0.bias", "0.weight"]
    assert "shared" in Model(Sequential(shared, shared)).summary((3, 6))


def test_c_a_layer_in_two_places_has_one_shape() -> None:
    shared = Dense(5)
    with pytest.raises(
        ShapeError,
        match=r"'1.0' .*Dense has a weight of f32\[5, 6\].*here it would be f32",
    ):
        Sequential(shared, Sequential(shared))(graph.input((3, 6)))


def test_c_a_new_operator_in_sequential_needs_no_further_rule() -> None:
    @operator("test_shapes.pairs")
    def pairs(x):
        rows, columns = x.shape
        return compute((rows, columns // 2), lambda i, j: x[i, 2 * j] + x[i, 2 * j + 1])

    net = Sequential(Dense(12), pairs, Dense(3))
    assert str(net(graph.input(("batch", 5))).spec) == "f32[batch, 3]"
    assert net.layers[2].weight("weight", (3, 6), initializers.Zeros()).shape == (3, 6)


def test_a_wrong_shape_at_layer_7_says_so() -> None:
    layers = [Dense(8) for _ in range(7)]
    net = Sequential(*layers, Conv2D(3, 3))
    with pytest.raises(
        ShapeError,
        match=r"layer '7' \(.*test_shapes.py:\d+\): Conv2D.*not f32\[batch, 8\]",
    ):
        net(graph.input(("batch", 4)))
    wrong = Sequential(*layers[:2], lambda x: math.add(x, graph.input((3, 9))))
    with pytest.raises(ShapeError, match=r"math.add of f32\[batch, 8\], f32\[3, 9\]"):
        wrong(graph.input(("batch", 4)))


def test_a_size_that_a_weight_needs_has_to_be_known() -> None:
    with pytest.raises(
        ShapeError, match=r"Dense needs a weight of shape \(3, features\)"
    ):
        Dense(3)(graph.input(("batch", "features")))


def test_two_layers_of_one_name() -> None:
    first, second = Dense(3), Dense(3)
    with pytest.raises(GraphError, match=r"two weights are named 'weight'"):
        Network(lambda x: second(first(x)), TensorSpec(("batch", 3)))


def test_names_that_there_are_not() -> None:
    with pytest.raises(ArgumentError, match=r"no activation 'rule'; there is relu"):
        Dense(3, "rule")(graph.input((2, 2)))
    with pytest.raises(ArgumentError, match=r"Sequential: 3 at 1 is not a layer"):
        Sequential(Dense(3), 3)
    with pytest.raises(GraphError, match=r"call model.compile"):
        Model(Dense(3))(np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("width", [16, 400])
def test_initializers_are_values(width) -> None:
    from tensorlang.ops import random

    assert initializers.GlorotUniform() == initializers.Scaled()
    for begin, deviation in (
        (initializers.GlorotNormal(), (2 / (width + 300)) ** 0.5),
        (initializers.GlorotUniform(), (2 / (width + 300)) ** 0.5),
        (initializers.HeUniform(), (2 / width) ** 0.5),
        (initializers.HeNormal(), (2 / width) ** 0.5),
        (initializers.Uniform(-3, 3), 3**0.5),
    ):
        drawn = begin(random.key(0), (300, width), np.float32)
        assert drawn.dtype == np.float32
        assert abs(drawn.std() / deviation - 1) < 0.05
        assert abs(drawn.mean()) < 0.1 * deviation


def test_a_custom_activation_is_any_function() -> None:
    layer = Dense(4, activation=lambda x: nn.relu(x) * 2.0)
    assert layer(graph.input((2, 3))).shape == (2, 4)


def test_a_convolution_of_an_open_number_of_channels_is_refused() -> None:
    images = TensorSpec(("batch", "channels", 8, 8))
    with pytest.raises(ShapeError, match=r"Conv2D needs a weight .* these sizes as"):
        Model(Conv2D(6, 5)).compile(images)
