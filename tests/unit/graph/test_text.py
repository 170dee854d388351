"""Programs as text: what is printed is read back, and what cannot be says why."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang import graph
from tensorlang.errors import (
    KeyReuseError,
    ParseError,
    ShapeError,
    TensorlangError,
)
from tensorlang.graph import KeySpec, Network, TensorSpec, TrainingProgram
from tensorlang.layers import (
    BatchNorm,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Sequential,
)
from tensorlang.ops import math, nn, random

THREE = TensorSpec((3,))


def trace(body, *specs):
    return graph.trace(body, specs, name="program")


def everything(x, key):
    left, right = random.split(key)
    y = graph.loop(3, lambda _, c: math.add(math.sin(c), x), x)
    y = graph.while_loop(
        lambda c: math.less(math.sum(math.square(c)), 100.0),
        lambda c: math.multiply(c, 1.5),
        y,
    )
    y = graph.cond(
        math.greater(math.sum(y), np.float32(0.1)),
        lambda: nn.dropout(y, 0.5, key=left),
        lambda: math.negative(y),
    )
    z = graph.let("z", math.add(y, np.arange(3, dtype="f4") / 3))
    (gradient,) = graph.gradients(math.sum(math.square(z)), [x])
    return z, gradient, random.fold_in(right, 3)


STATE = graph.ref(KeySpec(), "state")


@graph.function
def drawn(x):
    y, after = nn.dropout_train(x, graph.read(STATE), 0.7)
    graph.write(STATE, after)
    return y


@graph.checkpoint
def kept(x):
    return math.sin(drawn(x))


def capturing(x, y):
    return graph.function(lambda a: math.add(a, y))(x)


def local(x):
    place = graph.ref(x, "held")
    graph.write(place, math.sin(graph.read(place)))
    return graph.read(place)


def network(train):
    layers = Sequential(
        Conv2D(4, 3, "relu"), BatchNorm(), Flatten(), Dropout(0.3), Dense(3)
    )
    net = Network(layers, TensorSpec(("batch", 1, 8, 8)))
    if not train:
        return net.program
    truths = (TensorSpec(("batch",), "int64"),)
    return TrainingProgram(net, nn.cross_entropy, truths).graph


def odd(x):
    """Words that could be taken for others."""
    named = graph.let("return", x)
    wide = graph.let("n", math.add(named, np.float32(np.nan)))
    picked = math.where(np.array([True, False, True]), wide, named)
    return math.clip(picked, -np.inf, None)


PROGRAMS = {
    "forms": lambda: trace(everything, THREE, KeySpec()),
    "state": lambda: trace(lambda x: drawn(drawn(x)), THREE),
    "threaded": lambda: graph.thread(trace(lambda x: drawn(kept(x)), THREE)),
    "checkpoint": lambda: trace(kept, THREE),
    "captures": lambda: trace(capturing, THREE, THREE),
    "a reference of its own": lambda: trace(local, THREE),
    "sizes": lambda: trace(
        lambda x: nn.reshape(x, (x.shape[0] * 2, -1)), TensorSpec(("n", 6))
    ),
    "odd names": lambda: trace(odd, TensorSpec(("n", 3))),
    "a tuple of one": lambda: trace(lambda x: (math.sin(x),), THREE),
    "a key that stands there": lambda: trace(
        lambda x: nn.dropout(x, 0.5, key=random.key(3)), THREE
    ),
    "use": lambda: network(train=False),
    "training": lambda: network(train=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_read_back(name) -> None:
    program = PROGRAMS[name]()
    again = graph.parse(str(program))
    assert str(again) == str(program)
    assert [node.id for node in again.nodes] == [node.id for node in program.nodes]
    assert [v.spec for v in again.outputs] == [v.spec for v in program.outputs]
    assert [w.path for w in again.weights] == [w.path for w in program.weights]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "u1", "?"])
def test_constants_have_the_same_bits(dtype) -> None:
    data = np.random.default_rng(0).normal(size=7).astype(dtype)
    if dtype in ("f4", "f8", "f2"):
        data[:3] = np.nan, np.inf, -np.inf
        data[3] = np.finfo(dtype).tiny / 4  # a denormal
    (held,) = graph.parse(str(graph.Graph([], graph.constant(data)))).outputs
    np.testing.assert_array_equal(held.data, data)
    assert held.data.dtype == data.dtype


HEAD = "graph g(x: f32[3], k: key<threefry2x32>) -> f32[3] {\n"
WRONG = {
    "": "expected 'graph'",
    "graph g() -> f32[3] {": "not an argument|expected",
    HEAD + "  %0 = math.sin(y)\n  return %0\n}": "line 2, .*: y is undefined|y",
    HEAD + "  %0 = math.sine(x)\n  return %0\n}": r"line 2: .*math\.sine",
    HEAD + "  %0 = os.system(x)\n  return %0\n}": r"line 2: .*os\.system",
    HEAD + "  %0 = math.matmul(x, f32[2](1, 2))\n  return %0\n}": r"line 2: .*matmul",
    HEAD + "  %0, %1 = math.sin(x)\n  return %0\n}": "gives 1 results, not 2",
    HEAD + "  %0 = math.sum(x)\n  return %0\n}": r"g gives \(f32\[\]\), not what",
    HEAD + "  return f32[3](1, 2)\n}": r"2 numbers do not fill f32\[3\]",
    HEAD + "  return f32[100](...)\n}": r"omits .* the numbers of f32\[100\]",
    HEAD + "  return u8[3](1, 2, 300)\n}": "300 is not representable as uint8",
    HEAD + '  %0 = nn.softmax(x, axis=<"object">)\n  return %0\n}': "omits a value",
    HEAD + "  x = math.sin(x)\n  return x\n}": "x is already defined",
    HEAD + "  %0 = math.add(x)\n  return %0\n}": "line 2, column 8: math.add: .*'b'",
    HEAD + "  return x\n} more": "'more' follows the program",
    HEAD + "  return x; import os\n}": "';' is not a token",
    HEAD + "  return x\n": "expected '}', not 'the end of the text'",
    HEAD + "  %0 = k[0]\n  return x\n}": "k has no element 0",
    HEAD + "  write s(x)\n  return x\n}": "s is not a reference",
    HEAD + "  %0 = for(x, count=2) { take (i: i64[])\n return x }\n  return %0\n}": (
        "the programs of this for do not fit"
    ),
    "custom function f(x: f32[]) -> f32[] { return x }\n" + HEAD: "is a Python",
    "(" * 100: "more than 60 brackets|expected",
    "graph " + "g" * 1000: "a token of 1000 characters",
    '@"\\x"': r"expected 'graph'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_program_says_where(text) -> None:
    with pytest.raises(TensorlangError, match=WRONG[text]) as caught:
        graph.parse(text)
    assert "\n" not in str(caught.value)


def test_a_program_that_cannot_be_is_refused_as_when_it_is_written() -> None:
    twice = (
        HEAD + "  %0 = nn.dropout(x, 0.5, key=k)\n  %1 = nn.dropout(%0, 0.5, key=k)\n"
    )
    with pytest.raises(KeyReuseError, match="the key 'k' is drawn from"):
        graph.parse(twice + "  return %1\n}")
    with pytest.raises(ShapeError, match=r"line 2: .*math.add of f32\[3\], f32\[2\]"):
        graph.parse(HEAD + "  %0 = math.add(x, f32[2](1, 2))\n  return %0\n}")


def test_what_is_left_out_is_said() -> None:
    @graph.function
    def own(x):
        return math.sin(x)

    @own.with_gradient
    def _(x, dy):
        return math.multiply(dy, x)

    with pytest.raises(ParseError, match="a custom gradient is a Python function"):
        graph.parse(str(trace(own, THREE)))
    large = trace(lambda x: math.add(x, np.ones(100, "f4")), TensorSpec((100,)))
    with pytest.raises(ParseError, match=r"the numbers of f32\[100\]"):
        graph.parse(str(large))


def test_deep_and_long_texts_end_soon() -> None:
    deep = HEAD + "  %0 = if(x) {\n" * 10_000
    with pytest.raises(ParseError, match="more than 60 brackets are open"):
        graph.parse(deep)
    with pytest.raises(ParseError, match="the limit is 4194304"):
        graph.parse(" " * (1 << 23))
    with pytest.raises(TensorlangError):
        graph.parse(f"graph g(x: f32[{'n*' * 150}n]) -> f32[3] {{ return x }}")


TEXTS = [str(make()) for make in PROGRAMS.values()]


@settings(max_examples=150)
@given(st.data())
def test_a_broken_text_is_an_error_of_ours(data) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    at = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(at, min(at + 8, len(text))))
    put = data.draw(
        st.one_of(st.text(max_size=4), st.sampled_from(["(", "}", "x", "%0", "9", "="]))
    )
    with suppress(TensorlangError):
        graph.parse(text[:at] + put + text[end:])


@pytest.mark.parametrize("values", ["0", "", "x0, x0"])
def test_a_name_stands_for_one_value(values) -> None:
    text = str(trace(lambda x: graph.let("y", math.sin(x)), THREE))
    assert re.search(r" let\([^)]+\)", text)
    with pytest.raises(ParseError, match="let takes one value"):
        graph.parse(re.sub(r"let\([^)]*\)", f"let({values})", text))


def test_a_parsed_program_runs_and_has_gradients() -> None:
    again = graph.parse(str(trace(math.sin, THREE)))
    (gradient,) = graph.gradients(math.sum(again.outputs[0]), again.inputs)
    assert graph.Graph(again.inputs, gradient).nodes


def test_a_parsed_program_is_a_network_with_its_weights() -> None:
    net = Network(Sequential(Dense(4, "relu"), Dense(3)), TensorSpec(("batch", 8)))
    again = Network(graph.parse(str(net.program)), *net.specs, weights=net.weights)
    assert str(again.program) == str(net.program)
    assert again.outputs == net.outputs
    with pytest.raises(
        ShapeError, match=r"network takes f32\[batch, 8\], not f32\[3\]"
    ):
        graph.parse(str(net.program))(graph.input((3,)))
