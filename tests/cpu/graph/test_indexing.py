"""`x[...]` of symbolic tensors against NumPy's: values, gradients, text, refusals."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import graph, layers
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph import TensorSpec, gradients
from tensorlang.ops import math, nn

RNG = np.random.default_rng(5)
SHAPE = (3, 19, 8)
OPEN = TensorSpec(("batch", "time", 8), "float64")
S = np.s_
# an index, and the shape where the first two sizes are open
CASES = [
    (S[:, 0], "f64[batch, 8]"),
    (S[:, -1], "f64[batch, 8]"),
    (S[:, 1:], "f64[batch, time-1, 8]"),
    (S[:, :-2], "f64[batch, time-2, 8]"),
    (S[:, 4:-3], "f64[batch, time-7, 8]"),
    (S[:, :15], "f64[batch, 15, 8]"),
    (S[:, -15:], "f64[batch, 15, 8]"),
    (S[:, ::-1], "f64[batch, time, 8]"),
    (S[..., 2:5], "f64[batch, time, 3]"),
    (S[..., ::-3], "f64[batch, time, 3]"),
    (S[..., 3], "f64[batch, time]"),
    (S[0], "f64[time, 8]"),
    (S[:, None, :, 1::2], "f64[batch, 1, time, 4]"),
    (S[..., None], "f64[batch, time, 8, 1]"),
    (S[None, 1, ..., -1, None], "f64[1, time, 1]"),
    (S[:, :, 5:2], "f64[batch, time, 0]"),
    (S[:, 0, np.int32(3)], "f64[batch]"),
    (S[[2, 0, -3]], None),
    (np.array([[1, 2], [0, 0]]), "f64[2, 2, time, 8]"),
]


def numbers(*shape):
    return RNG.normal(size=shape)


def traced(body, *specs):
    made = graph.trace(body, specs)
    assert str(graph.parse(str(made))) == str(made)
    return made


@pytest.mark.parametrize(("index", "shape"), CASES)
def test_as_numpy_with_its_gradient(index, shape):
    def body(x):
        y = x[index]
        return y, *gradients(math.sum(y * y), [x])

    x = numbers(*SHAPE)
    back = np.zeros_like(x)
    np.add.at(back, index, 2 * x[index])
    fixed = TensorSpec(SHAPE, "float64")
    for spec in (OPEN, fixed) if shape else (fixed,):
        program = traced(body, spec)
        y, dx = program(x)
        np.testing.assert_array_equal(y, x[index])
        np.testing.assert_array_equal(dx, back)
        assert spec is fixed or str(program.outputs[0].spec) == shape


@st.composite
def indices(draw):
    """An index of NumPy's for an array of three dimensions."""
    bound = st.none() | st.integers(-6, 6)
    step = st.none() | st.integers(-3, 3).filter(bool)
    parts = draw(
        st.lists(st.builds(slice, bound, bound, step) | st.integers(-4, 3), max_size=3)
    )
    for extra in draw(st.lists(st.just(None), max_size=2)):
        parts.insert(draw(st.integers(0, len(parts))), extra)
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), ...)
    return tuple(parts)


@given(indices())
@settings(max_examples=25)
def test_any_index(index):
    x = np.arange(4 * 4 * 5, dtype=np.int32).reshape(4, 4, 5)
    made = graph.trace(lambda x: x[index], [TensorSpec(x.shape, "int32")])
    assert made.outputs[0].shape == x[index].shape
    np.testing.assert_array_equal(made(x), x[index])


def test_what_says_nothing_is_the_tensor_itself():
    x = graph.input(OPEN)
    time = x.shape[1]
    for same in (x[:], x[...], x[:, :, :8], x[0:, :time], x[::1, ..., : 1 << 60]):
        assert same is x
    assert str(x[:, : time - 1].spec) == str(x[:, :-1].spec)
    (node,) = (x[:, : time - 1].node,)
    assert node.args[1:] == ((None, None), (None, -1))


def test_rows_and_other_short_words():
    x = graph.input((2, 3, 4))
    first, second = x
    assert first.shape == second.shape == (3, 4)
    assert x.T.shape == (4, 3, 2)
    assert x.reshape(6, -1).shape == x.reshape((6, 4)).shape == (6, 4)
    with pytest.raises(TypeError, match="the number of rows is symbolic"):
        first, second = graph.input(OPEN)


def test_slices_of_slices_of_open_sizes():
    x = numbers(2, 80, 8)
    made = traced(lambda x: x[:, 20:-30][:, 3:] * 2.0, OPEN)
    np.testing.assert_array_equal(made(x), x[:, 23:-30] * 2.0)
    assert str(made.outputs[0].spec) == "f64[batch, time-53, 8]"
    with pytest.raises(ShapeError, match=r"time-5\d is negative for time = 30"):
        made(numbers(2, 30, 8))


def test_a_gradient_does_not_keep_what_was_sliced():
    def body(x):
        y = math.square(math.sin(x * 2.0)[:, :4])
        return gradients(math.sum(y), [x])[0]

    made = traced(body, OPEN)
    (back,) = (node for node in made.nodes if node.id == "nn.slice_grad")
    assert back.args[1].node.id == "zeros"


def test_a_second_gradient():
    def body(x):
        first = math.sum(math.square(x[:, ::-2] * x[:, 1::2]))
        length = math.sum(math.square(gradients(first, [x])[0]))
        return length, gradients(length, [x])[0]

    made = traced(body, TensorSpec((3, 6), "float64"))
    x, way = numbers(3, 6), numbers(3, 6)
    _, found = made(x)
    ends = [float(made(x + step * way)[0]) for step in (1e-6, -1e-6)]
    slope = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(np.sum(found * way), slope, rtol=1e-5)


def test_in_a_layer_that_trains():
    class Last(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)

        def apply(self, x):
            return self.dense(x[:, -1, 1:])

    model = layers.Model(Last())
    model.compile(
        TensorSpec(("batch", 5, 4)),
        train=True,
        optimizer=layers.SGD(lr=0.1),
        loss="cross_entropy",
    )
    x = RNG.normal(size=(6, 5, 4)).astype(np.float32)
    labels = np.arange(6) % 3
    losses = [float(model.train_one_batch(x, labels)) for _ in range(20)]
    assert losses[-1] < losses[0]
    moved = x.copy()
    moved[:, :-1] = moved[:, :, 0:1] = 7
    np.testing.assert_array_equal(model(moved), model(x))


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        (S[:, :, 8], "dimension 2 has size 8"),
        (S[:, :, -9], "dimension 2 has size 8"),
        (S[1, 2, 3, 4], "there are 3 dimensions, not 4"),
        (S[1.0], "consists of integers, slices, None"),
        (S[0:1.5], "consists of integers, slices, None"),
        ("a", "consists of integers, slices, None"),
        (True, "True and False are not indices"),
        (S[::0], "a step must not be 0"),
        (S[..., ...], "'...' may appear only once"),
        (S[:, [0, 1]], "must be the only index; it selects rows"),
        (np.array([True, False]), "mask depends on data; see math.where"),
        (np.array([0.5]), "indices are integers"),
        ([-1], "the size batch is symbolic: use non-negative indices"),
    ],
)
def test_what_is_no_index(index, complaint):
    x = graph.input(OPEN)
    with pytest.raises(ArgumentError, match=re.escape(complaint)) as found:
        x[index]
    assert "test_indexing.py" in str(found.value)


def test_steps_along_an_open_size_are_refused():
    with pytest.raises(ShapeError, match="give these sizes as numbers"):
        graph.input(OPEN)[:, ::2]
    with pytest.raises(ArgumentError, match="there are 4 rows"):
        graph.input((4, 2))[[4]]
    with pytest.raises(ArgumentError, match="begin has 4 numbers"):
        nn.slice(graph.input(OPEN), (0, 0, 0, 0), None)
