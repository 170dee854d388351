"""Gradients of gradients against differences; checkpoints and rules in control flow."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import GraphError
from tensorlang.graph import TensorSpec, gradients
from tensorlang.ops import math, nn, random

RNG = np.random.default_rng(2)
LABELS = np.array([2, 0, 1])


def numbers(*shape):
    return RNG.uniform(0.2, 0.9, size=shape)


def squared(body):
    """How long the gradient of the first input is, squared; and its gradients."""

    def whole(*inputs):
        first = math.sum(math.square(body(*inputs)))
        length = math.sum(math.square(gradients(first, inputs[:1])[0]))
        return (length, *gradients(length, inputs))

    return whole


def check(body, *shapes) -> None:
    arrays = [numbers(*shape) for shape in shapes]
    specs = [TensorSpec(shape, "float64") for shape in shapes]
    program = graph.inline(graph.trace(squared(body), specs))
    _, *found = program(*arrays)
    for n, array in enumerate(arrays):
        way = RNG.normal(size=array.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [a + step * way if n == at else a for at, a in enumerate(arrays)]
            ends.append(float(program(*moved)[0]))
        slope = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(np.sum(found[n] * way), slope, rtol=1e-4, atol=1e-6)


CASES = {
    "arithmetic": lambda a, b: a * b + a / b - b,
    "broadcast": lambda a, b: a * math.sum(b, 0) / math.mean(b),
    "power": lambda a, b: math.power(a, b) + math.power(b, 3.0),
    "waves": lambda a, b: math.sin(a) * math.cos(b) + math.exp(a) * math.log(b),
    "roots": lambda a, b: math.sqrt(a) * math.rsqrt(b) + math.reciprocal(a + b),
    "bent": lambda a, b: math.erf(a) * math.tanh(b) + math.expm1(a) * math.log1p(b),
    "gates": lambda a, b: nn.gelu(a) * nn.silu(b) + nn.sigmoid(a) * nn.softplus(b),
    "gelu by tanh": lambda a, b: nn.gelu(a, "tanh") * b,
    "corners": lambda a, b: nn.relu(a - 0.5) * nn.leaky_relu(b - 0.5, 0.2) + a * a,
    "where": lambda a, b: math.where(math.greater(a, b), a * a, b * a),
    "products": lambda a, b: math.matmul(a, math.sin(b)),
    "einsum": lambda a, b: math.einsum("ij,kj->k", a, math.sin(b)),
    "turned products": lambda a, b: math.matmul(
        a, math.matmul(a, b, transpose_b=True), transpose_a=True, transpose_b=True
    ),
    "dense": lambda a, b: nn.dense(a, b, math.sum(b, 1), activation="tanh"),
    "dense, turned": lambda a, b: nn.dense(a, b, layout="io", activation="gelu"),
    "softmax": lambda a, b: nn.softmax(a) * b + nn.log_softmax(a * b),
    "norms": lambda a, b: (
        nn.layer_norm(a, math.sum(b, 0), math.mean(b, 1)) * nn.rms_norm(a)
    ),
    "norms without weights": lambda a, b: nn.layer_norm(a * b) * nn.rms_norm(b),
    "norms of batches": lambda a, b: (
        nn.batch_norm_train(a, b[0], b[1], b[2], b[0])[0]
        + nn.batch_norm_train(nn.reshape(a, (1, 3, 3)), b[0], b[1])[0]
        + nn.batch_norm(a * b, b[0], b[1], b[2], b[0])
        + nn.batch_norm(a, b[0], b[1])
    ),
    "cross-entropy": lambda a, b: (
        nn.cross_entropy(a * b, LABELS, ignore_index=1)
        + nn.cross_entropy(a, LABELS, "sum", label_smoothing=0.1)
        + nn.cross_entropy(a, LABELS, "none") * nn.mse(a, b)
    ),
    "moves": lambda a, b: nn.transpose(nn.reshape(a, (1, 9))) * nn.reshape(b, (9, 1)),
    "joins": lambda a, b: math.square(nn.concatenate([a, a * b], 1)),
    "pads": lambda a, b: nn.pad(a * b, ((1, 0), (0, 2)), 0.5),
    "sums": lambda a, b: math.cumsum(a * a) * math.mean(b, 1, keepdims=True),
    "errors": lambda a, b: nn.mse(a * a, b) + nn.mse(a, b, "sum"),
    "dropout": lambda a, b: nn.dropout(a * a * b, 0.4, key=random.key(4)),
}


@pytest.mark.parametrize("name", CASES)
def test_of_operators(name) -> None:
    check(CASES[name], (3, 3), (3, 3))


@pytest.mark.parametrize(
    "given", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}]
)
def test_of_convolutions(given) -> None:
    channels = 2 // given.get("groups", 1)

    def body(x, w):
        return nn.avg_pool2d(math.sin(nn.conv2d(x, w, **given)), 2)

    check(body, (2, 2, 8, 8), (4, channels, 3, 3))


def test_through_branches_and_checkpoints() -> None:
    block = graph.checkpoint(lambda a, b: math.sin(math.matmul(a, b)))

    def body(a, b):
        return graph.cond(
            math.greater(math.sum(a), 0.0), lambda: block(a, b) * a, lambda: b
        )

    check(body, (3, 3), (3, 3))


def test_where_there_is_none_one_sentence_says_so() -> None:
    def of(body):
        return graph.trace(squared(body), [TensorSpec((2, 2, 4, 4), "float64")])

    with pytest.raises(
        GraphError, match=r"nn.max_pool2d_grad \(.*without a gradient: give"
    ):
        of(lambda x: nn.max_pool2d(x, 2))
    with pytest.raises(GraphError, match=r"the loop at .*test_second.py:\d+ has no"):
        of(lambda x: graph.loop(2, lambda _, c: math.sin(c), x))
    with pytest.raises(GraphError, match=r"the while_loop at .* has no gradient"):
        of(
            lambda x: graph.while_loop(
                lambda c: math.less(math.sum(c), 9.0), lambda c: c * 2.0, x
            )
        )


# ------------------------------------------- checkpoints and rules, in control flow


def first(body, *arrays):
    """The value of a function's sum, and its gradients."""

    def whole(*inputs):
        loss = math.sum(body(*inputs))
        return (loss, *gradients(loss, inputs))

    specs = [TensorSpec(array.shape, array.dtype) for array in arrays]
    return graph.inline(graph.trace(whole, specs))(*arrays)


def plain(a, b):
    return math.sin(math.matmul(a, b)) * a


@graph.function
def tripled(a, b):
    """`plain`, whose gradient is said to be three times what it is."""
    return plain(a, b)


@tripled.with_gradient
def _(a, b, dy):
    return tuple(each * 3.0 for each in gradients(plain(a, b), [a, b], [dy]))


FORMS = {
    "a loop": lambda f: lambda a, b: graph.loop(3, lambda _, c: f(c, b), a),
    "a while_loop": lambda f: (
        lambda a, b: graph.while_loop(
            lambda c: math.greater(math.sum(math.square(c)), 0.5), lambda c: f(c, b), a
        )
    ),
    "a branch": lambda f: (
        lambda a, b: graph.cond(
            math.greater(math.sum(a), 0.0), lambda: f(a, b), lambda: a
        )
    ),
    "a branch in a loop": lambda f: (
        lambda a, b: graph.loop(
            3,
            lambda i, c: graph.cond(math.less(i, 2), lambda: f(c, b), lambda: c * 2.0),
            a,
        )
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_checkpoint_in(name) -> None:
    a, b = numbers(4, 4), numbers(4, 4)
    usual = first(FORMS[name](plain), a, b)
    again = first(FORMS[name](graph.checkpoint(plain)), a, b)
    for each, other in zip(usual, again, strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-12)


@pytest.mark.parametrize(("name", "turns"), [("a loop", 3), ("a branch", 1)])
def test_a_gradient_of_ones_own_in(name, turns) -> None:
    a, b = numbers(4, 4), numbers(4, 4)
    wanted = first(FORMS[name](plain), a, b)
    found = first(FORMS[name](tripled), a, b)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1] * 3**turns, rtol=1e-12)


@pytest.mark.parametrize("form", ["body", "checkpoint"])
def test_a_loop_inside_of_a(form) -> None:
    def turns(a, b):
        return graph.loop(3, lambda _, c: plain(c, b), a)

    a, b = numbers(4, 4), numbers(4, 4)
    made = graph.checkpoint(turns) if form == "checkpoint" else graph.function(turns)
    for each, other in zip(first(turns, a, b), first(made, a, b), strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-12)
