"""Gradients of programs: against differences, through control flow, on request."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import GraphError
from tensorlang.graph import (
    TensorSpec,
    cond,
    gradients,
    loop,
    while_loop,
)
from tensorlang.ir import compute, prod, reduce_axis
from tensorlang.ops import math, nn, operator, random
from tensorlang.ops.spec.signature import Floats, Scalar

RNG = np.random.default_rng(1)
SQUARE = TensorSpec((3, 3), "float64")


def numbers(*shape):
    return RNG.uniform(0.2, 0.9, size=shape)


def with_gradients(body, arrays):
    """The program of a function's sum and its gradients, run on arrays."""

    def whole(*inputs):
        loss = math.sum(body(*inputs))
        return (loss, *gradients(loss, inputs))

    specs = [TensorSpec(array.shape, array.dtype) for array in arrays]
    return graph.trace(whole, specs)


def check(body, *shapes) -> None:
    """The gradients against differences along a random direction, in f64."""
    arrays = [numbers(*shape) for shape in shapes]
    program = with_gradients(body, arrays)
    _, *found = program(*arrays)
    for n, array in enumerate(arrays):
        way = RNG.normal(size=array.shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [a + step * way if n == at else a for at, a in enumerate(arrays)]
            ends.append(float(program(*moved)[0]))
        slope = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(np.sum(found[n] * way), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "body",
    [
        lambda a, b: a * b + a / b - b,
        math.power,
        lambda a, b: math.maximum(a, b) * 2.0 + (1.0 - a),
        lambda a, b: math.where(a > b, a * a, b),
        lambda a, b: math.matmul(a, math.sin(b)),
        lambda a, b: nn.softmax(a) * b,
        lambda a, b: nn.log_softmax(math.tanh(a) + math.sum(b, 0)),
        lambda a, b: nn.gelu(a) * nn.silu(b) + nn.sigmoid(a),
        lambda a, b: nn.layer_norm(a, math.sum(b, 0), math.mean(b, 1)),
        lambda a, b: nn.rms_norm(a, math.max(b, 0)) * b,
        lambda a, b: nn.mse(a, b) * math.var(a),
        lambda a, b: nn.concatenate([a, b, a], 1) * 3.0,
        lambda a, b: nn.transpose(nn.reshape(a, (1, 9))) * nn.reshape(b, (9, 1)),
        lambda a, b: nn.pad(a, ((1, 0), (0, 2))) * math.logsumexp(b),
        lambda a, b: math.square(nn.pad(a, ((1, 0), (0, 2)), math.mean(b))),
        lambda a, b: math.cumsum(a) * math.sqrt(b) + math.exp(a) * math.log(b),
        lambda a, b: nn.batch_norm_train(a, math.sum(b, 0), math.sum(b, 1))[0] * a,
    ],
)
def test_of_operators(body) -> None:
    check(body, (3, 3), (3, 3))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_of_dense_with_its_activation(activation) -> None:
    def body(x, w, b):
        return nn.dense(x, w, b, activation=activation) * x

    check(body, (4, 3), (3, 3), (3,))


@pytest.mark.parametrize("activation", [None, "relu", "sigmoid"])
def test_of_convolutions_with_their_activation(activation) -> None:
    def body(x, w, b):
        y = nn.conv2d(x, w, b, padding=1, stride=2, activation=activation)
        return nn.max_pool2d(y, 2) + nn.avg_pool2d(y, 2)

    check(body, (2, 2, 7, 7), (3, 2, 3, 3), (3,))


def test_of_weights_alone_is_the_same() -> None:
    arrays = [
        numbers(2, 2, 5, 5),
        numbers(3, 2, 3, 3),
        numbers(3),
        numbers(4, 27),
        numbers(4),
    ]

    def loss(x, w, b, v, c):
        h = nn.conv2d(x, w, b, activation="relu")
        return math.sum(nn.dense(nn.batch_flatten(h), v, c) * 0.5)

    specs = [TensorSpec(a.shape, a.dtype) for a in arrays]
    everything = graph.trace(lambda *i: tuple(gradients(loss(*i), i)), specs)
    weights = graph.trace(lambda *i: tuple(gradients(loss(*i), i[1:])), specs)
    assert not any(node.id == "nn.conv2d_grad" for node in weights.nodes)
    for some, same in zip(weights(*arrays), everything(*arrays)[1:], strict=True):
        np.testing.assert_allclose(some, same, rtol=1e-12)


def test_c_n_layers_that_multiply_by_their_number() -> None:
    weights = [graph.input((1,), f"w{n}") for n in range(1, 6)]
    y = graph.input((1,))
    x = y
    for w in weights:
        y = y * w
    program = graph.Graph([x, *weights], [y, *gradients(math.sum(y), weights)])
    numbers = [np.full(1, n, np.float32) for n in range(1, 6)]
    y, *found = program(np.ones(1, np.float32), *numbers)
    assert y == 120
    assert [float(g[0]) for g in found] == [120 / n for n in range(1, 6)]


def test_dropout_goes_back_by_the_same_mask() -> None:
    def body(x, key, state):
        y = nn.dropout(x, 0.5, key=key)
        z, after = nn.dropout_train(x, state, 0.25)
        return (y, z, *gradients(math.sum(y), [x]), *gradients(math.sum(z), [x]), after)

    specs = (TensorSpec((64,)), graph.KeySpec(), graph.KeySpec())
    program = graph.trace(body, specs)
    x = np.ones(64, np.float32)
    y, z, dy, dz, _ = program(x, random.key(0), random.key(1))
    np.testing.assert_array_equal(y, dy)
    np.testing.assert_array_equal(z, dz)
    assert 0 < np.count_nonzero(y) < 64


def test_through_a_loop() -> None:
    check(
        lambda x, w: loop(4, lambda _, c: math.tanh(math.matmul(c, w)), x),
        (3, 3),
        (3, 3),
    )


def test_through_a_loop_that_carries_keys() -> None:
    def body(x, key):
        def turn(_, c, key):
            y, key = nn.dropout_train(c, key, 0.3)
            return y * x, key

        y, _ = loop(3, turn, x, key)
        return (y, *gradients(math.sum(y), [x]))

    program = graph.trace(body, (TensorSpec((50,), "float64"), graph.KeySpec()))
    x = np.full(50, 2.0)
    y, dx = program(x, random.key(0))
    np.testing.assert_allclose(dx, 4 * y / x)  # y is a multiple of x^4


def test_through_a_loop_whose_end_depends_on_data() -> None:
    def body(x, w):
        return while_loop(lambda c: math.sum(c) < 30.0, lambda c: c * w + c, x)

    check(body, (3, 3), (3, 3))


def test_through_branches() -> None:
    for sign in (1.0, -1.0):

        def body(x, w, sign=sign):
            def then():
                return math.multiply(x, w)

            return cond(math.sum(x) * sign > 0.0, then, lambda: math.tanh(w))

        check(body, (3, 3), (3, 3))


def test_through_nested_forms() -> None:
    def body(x, w):
        def turn(_, c):
            return cond(math.sum(c) > 2.0, lambda: c * w, lambda: loop(2, inner, c))

        def inner(_, c):
            return c + math.sin(x)

        return loop(3, turn, x)

    check(body, (3, 3), (3, 3))


def test_a_checkpoint_keeps_its_arguments_only() -> None:
    def block(x, w):
        for _ in range(4):
            x = math.tanh(math.matmul(x, w))
        return x

    x, w = (numbers(64, 64).astype(np.float32) / 16 for _ in range(2))

    def deep(block):
        def whole(x, w):
            y = x
            for _ in range(8):
                y = block(y, w)
            return (math.sum(y), *gradients(math.sum(y), [x, w]))

        spec = TensorSpec((64, 64))
        made = graph.inline(graph.trace(whole, (spec, spec)))
        results = made(x, w)
        (bound,) = made.bound.values()
        return results, bound.workspace

    usual, much = deep(block)
    again, less = deep(graph.checkpoint(block))
    for a, b in zip(usual, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert less < 0.6 * much


def test_a_checkpoint_repeats_its_dropout() -> None:
    @graph.checkpoint
    def block(x, key):
        return nn.dropout(x, 0.5, key=key) * x

    def whole(x, key):
        y = block(x, key)
        return (y, *gradients(math.sum(y), [x]))

    program = graph.trace(whole, (TensorSpec((64,)), graph.KeySpec()))
    y, dx = program(np.ones(64, np.float32), random.key(0))
    np.testing.assert_array_equal(dx, 2 * y)


def test_a_function_with_a_gradient_of_its_own() -> None:
    @graph.function
    def clipped(x, low):
        return math.maximum(x, low)

    @clipped.with_gradient
    def straight_through(_x, _low, dy):
        return dy * 10.0, None

    def whole(x):
        y = clipped(x, graph.constant(np.zeros((), np.float32)))
        return (y, *gradients(math.sum(y), [x]))

    program = graph.inline(graph.trace(whole, (TensorSpec((2,)),)))
    y, dx = program(np.array([-1, 1], np.float32))
    np.testing.assert_array_equal(y, [0, 1])
    np.testing.assert_array_equal(dx, [10, 10])


def test_a_new_operator_has_the_gradient_of_its_name() -> None:
    @operator("test_autodiff.cube")
    def cube(x):
        return compute(x.shape, lambda i: prod(x[i], reduce_axis(3)))

    def whole(x):
        return tuple(gradients(math.sum(cube(x)), [x]))

    said = r"define one, or give it a rule.*a reduction by prod"
    with pytest.raises(GraphError, match=said):
        graph.trace(whole, (TensorSpec((3,)),))

    @operator("test_autodiff.cube_grad")
    def cube_grad(dy, x):
        return compute(x.shape, lambda i: dy[i] * 3.0 * x[i] * x[i])

    x = np.array([1, 2, 3], np.float32)
    (dx,) = graph.trace(whole, (TensorSpec((3,)),))(x)
    np.testing.assert_array_equal(dx, 3 * x**2)

    @graph.gradient_of(cube)
    def rule(dy, _):
        return dy * 7.0

    (dx,) = graph.trace(whole, (TensorSpec((3,)),))(x)
    np.testing.assert_array_equal(dx, [7, 7, 7])


def test_what_does_not_depend_has_zeros() -> None:
    def whole(x, y):
        return tuple(gradients(math.sum(x * x), [x, y]))

    dx, dy = graph.trace(whole, (SQUARE, SQUARE))(np.ones((3, 3)), np.ones((3, 3)))
    np.testing.assert_array_equal(dx, 2 * np.ones((3, 3)))
    np.testing.assert_array_equal(dy, np.zeros((3, 3)))


def test_of_several_numbers_is_refused() -> None:
    with pytest.raises(GraphError, match=r"only a single element has a gradient"):
        graph.trace(lambda x: tuple(gradients(x, [x])), (SQUARE,))


@pytest.mark.parametrize("normed", [(8,), (4, 8), (3, 4, 8)])
def test_a_bias_alone_says_what_is_normed(normed):
    def body(x, bias):
        return math.sin(nn.layer_norm(x, None, bias))

    check(body, (3, 4, 8), normed)


def scaled(name):
    """An operator with a scalar and an array that may be left out, and its rule."""

    @operator(f"tests.autodiff.{name}")
    def op(x: Floats, shift: Floats | None = None, eps: Scalar = 0.5):
        moved = (lambda i: x[i]) if shift is None else lambda i: x[i] + shift[i]
        return compute(x.shape, lambda i: moved(i) * eps, "y")

    return op


def test_a_rule_gives_a_gradient_for_each_array():
    op = scaled("each")

    @graph.gradient_of(op)
    def rule(dy, x, shift=None, eps=0.5):
        del x
        return dy * eps, None if shift is None else dy * eps

    check(lambda x, shift: op(x, shift, 2.0), (5,), (5,))
    check(lambda x, shift: op(x, shift=shift) + shift, (5,), (5,))
    check(op, (5,))
    check(lambda x: op(x, eps=3.0), (5,))


def test_a_rule_that_gives_too_few_is_told():
    op = scaled("few")

    @graph.gradient_of(op)
    def rule(dy, x, shift=None, eps=0.5):
        del x, shift
        return (dy * eps,)

    with pytest.raises(GraphError, match=r"1 gradients for 2 arrays \(x, shift\)"):
        check(op, (5,), (5,))
