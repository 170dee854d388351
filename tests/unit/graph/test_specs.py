"""Sizes that have names, and shapes that come from the operators alone."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.graph import Dim, TensorSpec
from tensorlang.ir import compute
from tensorlang.ops import math, nn, operator, random


def test_sizes_are_computed_with() -> None:
    batch, time = Dim.named("batch"), Dim.named("time")
    assert str(batch * time * 2 + batch + 3) == "2*batch*time+batch+3"
    assert (batch * 2 + 1).at({"batch": 4}) == 9
    assert batch - batch == 0
    assert 2 * batch == batch + batch


def test_a_size_that_is_not_known_is_named() -> None:
    with pytest.raises(ShapeError, match="the size time is not known"):
        Dim.named("time").at({"batch": 1})


def test_a_spec_takes_any_spelling_of_a_type() -> None:
    assert TensorSpec(("batch", 3), "float32") == TensorSpec(("batch", 3), np.float32)
    assert str(TensorSpec(("batch", 3), "bfloat16")) == "bf16[batch, 3]"
    with pytest.raises(ShapeError, match="non-negative integers and names"):
        TensorSpec((3, -1))


def test_a_float_of_numpy_is_a_number() -> None:
    x, scale = graph.input(("batch", 64)), 1 / np.sqrt(64)
    assert type(scale) is np.float64
    for y in (x * scale, scale * x, math.where(x > scale, x, scale)):
        assert str(y.spec) == "f32[batch, 64]"
    said = [str(graph.Graph([x], x * number)) for number in (scale, 0.125)]
    assert said[0] == said[1]
    wide = graph.input(TensorSpec((3,), "float64")) * np.float32(2)
    assert str(wide.spec) == "f64[3]"


def test_nothing_runs_and_nothing_is_built() -> None:
    x = graph.input(("batch", 64, 224, 224))
    y = nn.conv2d(x, graph.input((64, 64, 3, 3)), padding=1, activation="relu")
    assert str(y.spec) == "f32[batch, 64, 224, 224]"
    assert y.node.op is nn.conv2d


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda x: nn.batch_flatten(nn.avg_pool2d(x, 2)), "f32[batch, 588]"),
        (lambda x: nn.reshape(x, (x.shape[0] * 3, -1)), "f32[3*batch, 784]"),
        (lambda x: math.mean(x, (0, 2, 3)), "f32[3]"),
        (lambda x: math.argmax(x, 1), "i64[batch, 28, 28]"),
        (lambda x: x > 0.5, "bool[batch, 3, 28, 28]"),
        (lambda x: 1.0 - 2.0 * x / (x + 1.0) - -x, "f32[batch, 3, 28, 28]"),
        (nn.transpose, "f32[28, 28, 3, batch]"),
        (lambda x: nn.concatenate([x, x], 0), "f32[2*batch, 3, 28, 28]"),
        (
            lambda x: nn.pad(x, ((1, 0), (0, 0), (2, 2), (0, 0))),
            "f32[batch+1, 3, 32, 28]",
        ),
        (lambda x: nn.dropout(x, 0.5, key=graph.key()), "f32[batch, 3, 28, 28]"),
        (lambda x: random.normal(graph.key(), (x.shape[0], 3)), "f32[batch, 3]"),
        (lambda x: random.categorical(graph.key(), x), "i32[batch, 3, 28]"),
        (lambda x: nn.mse(x, x), "f32[]"),
    ],
)
def test_every_kind_of_operator_takes_symbols(make, shape) -> None:
    assert str(make(graph.input(("batch", 3, 28, 28))).spec) == shape


def test_c_a_new_operator_needs_no_further_rule() -> None:
    @operator("test_graph.twice")
    def twice(x, *, times=2):
        rows, columns = x.shape
        return compute((rows, columns * times), lambda i, j: x[i, j % columns])

    y = twice(graph.input(("batch", 5)), times=3)
    assert str(y.spec) == "f32[batch, 15]"
    with pytest.raises(ArgumentError, match=r"test_specs.py:\d+: test_graph.twice of"):
        twice(graph.input((2, 5)), time=3)


def test_an_error_says_where_and_which_shapes() -> None:
    x, w = graph.input(("batch", 1176)), graph.input((3, 7))
    with pytest.raises(
        ShapeError,
        match=r"test_specs.py:\d+: nn.dense of f32\[batch, 1176\], f32\[3, 7\]",
    ):
        nn.dense(x, w)
    with pytest.raises(DTypeError, match="one element type"):
        nn.mse(x, graph.input(TensorSpec(("batch", 1176), "f64")))


def test_sizes_that_happen_to_meet_in_one_sample_are_no_match() -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        graph.input(("batch", 3)) + graph.input((11, 3))


def test_a_size_that_no_polynomial_gives_is_refused() -> None:
    with pytest.raises(ShapeError, match="which is not a sum of products of length"):
        nn.avg_pool1d(graph.input((1, 1, "length")), 3)


def test_out_is_refused() -> None:
    with pytest.raises(ArgumentError, match="memory is planned when it runs"):
        nn.relu(graph.input((3,)), out=np.empty(3, np.float32))


def test_a_symbol_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="write graph"):
        bool(graph.input((1,)))
