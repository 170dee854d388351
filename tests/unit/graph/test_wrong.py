"""A wrong network gives one sentence that says where."""

import re

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    KeyReuseError,
    ShapeError,
)
from tensorlang.graph import Graph, KeySpec, TensorSpec
from tensorlang.layers import Dense, Dropout, Layer, Model, Sequential
from tensorlang.ops import math, nn, random

ROWS = TensorSpec(("batch", 4))


def sentence(found) -> str:
    text = str(found.value)
    assert "\n" not in text
    return text


def test_a_shape_says_what_it_was_asked_with() -> None:
    with pytest.raises(ShapeError) as found:
        nn.dense(graph.input(ROWS), graph.input((3, 5)))
    assert re.search(
        r"test_wrong.py:\d+: nn.dense of f32\[batch, 4\], f32\[3, 5\], "
        r"with sample sizes batch = 11: "
        r"nn.dense: x of shape \(11, 4\) does not end in the 5 inputs",
        sentence(found),
    )


def test_a_wrong_type() -> None:
    with pytest.raises(DTypeError) as found:
        Sequential(Dense(3), lambda x: math.matmul(x, np.ones((3, 2))))(
            graph.input(ROWS)
        )
    assert "math.matmul of f32[batch, 3], f64[3, 2]" in sentence(found)
    with pytest.raises(DTypeError, match=r"layer '0' .*nn.dense takes f32"):
        Sequential(Dense(3))(graph.input(TensorSpec(("batch", 4), "int32")))


def test_a_key_that_two_layers_draw_from() -> None:
    class Twice(Layer):
        def apply(self, x, key):
            return nn.dropout(nn.dropout(x, 0.5, key=key), 0.5, key=key)

    layer = Sequential(Twice())
    with pytest.raises(KeyReuseError) as found:
        graph.trace(layer, (ROWS, KeySpec()))
    assert len(re.findall(r"layer '0' \(", sentence(found))) == 2


def test_a_cyclic_graph() -> None:
    x = graph.input(ROWS)
    first = nn.relu(x)
    second = nn.sigmoid(first)
    first.node.args = (second,)  # no call can do that; a faulty pass might
    with pytest.raises(GraphError) as found:
        Graph([x], second)
    assert re.search(r"nn.relu .* needs the result of nn.sigmoid", sentence(found))


def test_a_recursive_stateful_function() -> None:
    place = graph.ref(KeySpec(), "state")

    @graph.function
    def again(x):
        y, after = nn.dropout_train(x, graph.read(place), 0.5)
        graph.write(place, after)
        return graph.cond(math.sum(y), lambda: again(y), lambda: y)

    with pytest.raises(GraphError) as found:
        again.graph(ROWS)
    assert "again calls again: a graph has no recursion" in sentence(found)


def test_a_layer_that_gives_no_tensor() -> None:
    with pytest.raises(Exception, match=r"a program returns values") as found:
        Model(Sequential(Dense(3), lambda _: "three")).compile(ROWS)
    sentence(found)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0])
def test_a_rate_that_drops_everything_is_refused_where_it_is_used(rate) -> None:
    with pytest.raises(ArgumentError, match=r"layer '1' .*0 <= rate < 1"):
        Model(Sequential(Dense(3), Dropout(rate))).compile(ROWS, key=random.key(0))


def test_a_branch_is_a_function() -> None:
    x = graph.input(ROWS)
    said = r"test_wrong.py:\d+: a branch of graph.cond is a function, such as lambda: x"
    for branches in ((x, x), (lambda: x, x), (lambda: x, 2.0)):
        with pytest.raises(ArgumentError, match=said + ".* math.where") as found:
            graph.cond(math.sum(x) > 0.0, *branches)
        sentence(found)


def test_a_loop_goes_on_by_one_number() -> None:
    x = graph.input(ROWS)
    several = (
        r"test_wrong.py:\d+: the condition of graph.while_loop has one element, not "
    )
    with pytest.raises(ShapeError, match=several + r"bool\[batch, 4\]"):
        graph.while_loop(lambda c: c < 3.0, lambda c: c + 1.0, x)
    with pytest.raises(ShapeError, match=several + r"f32\[\], f32\[\]"):
        graph.while_loop(lambda c: (math.sum(c),) * 2, lambda c: c + 1.0, x)
    with pytest.raises(ShapeError, match=r"count of graph.loop has one element"):
        graph.loop(graph.input(TensorSpec((3,), "int64")), lambda _, c: c, x)


@pytest.mark.parametrize("count", [2.5, -1, True, graph.input((), "n")])
def test_a_loop_takes_a_whole_number_of_turns(count) -> None:
    with pytest.raises(ArgumentError, match=r"is a non-negative integer, not"):
        graph.loop(count, lambda _, c: c, graph.input(ROWS))


@pytest.mark.parametrize(
    ("of", "wrt", "said"),
    [
        (math.sum, lambda x: x, "wrt is a list of values"),
        (math.sum, lambda _: [3], r"wrt is a list of values .*, not \[3\]"),
        (lambda _: 3, lambda x: [x], "of is a list of values"),
    ],
)
def test_gradients_are_of_values_in_lists(of, wrt, said):
    def body(x):
        return graph.gradients(of(x), wrt(x))[0]

    with pytest.raises(ArgumentError, match=said):
        graph.trace(body, [graph.TensorSpec((2,), "float32")])


def test_what_is_no_function_or_has_no_specs_is_not_traced():
    with pytest.raises(ArgumentError, match="a function is traced, not 3"):
        graph.trace(3, [])
    with pytest.raises(ArgumentError, match="specs is a list of specs of the inputs"):
        graph.trace(lambda x: x, graph.TensorSpec((2,), "float32"))


def test_a_model_of_something_else_than_a_layer():
    with pytest.raises(ArgumentError, match="a model is made of a layer, not of 3"):
        Model(3)
