"""Programs on arrays: the same to the bit as the operators called one by one."""

import re
import threading

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
from tensorlang.graph import KeySpec, TensorSpec, cond, loop, read, while_loop, write
from tensorlang.ops import math, nn, random

RNG = np.random.default_rng(0)
VECTOR = TensorSpec(("n",))
STATE = graph.ref(KeySpec(), "state")


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def images():
    x, w = graph.input(("batch", 1, 28, 28)), graph.input((6, 1, 5, 5), "w")
    key = graph.key()
    h = nn.conv2d(x, w, padding="same", activation="relu")
    h = nn.reshape(nn.avg_pool2d(h, 2), (x.shape[0] * 6, -1))
    return graph.Graph([x, w, key], nn.dropout(h, 0.5, key=key))


def by_hand(x, w, key):
    h = nn.conv2d(x, w, padding="same", activation="relu")
    return nn.dropout(nn.reshape(nn.avg_pool2d(h, 2), (6 * len(x), -1)), 0.5, key=key)


def test_one_program_serves_every_batch() -> None:
    program, w = images(), floats(6, 1, 5, 5)
    for batch in (1, 4, 7):
        x = floats(batch, 1, 28, 28)
        got = program(x, w, random.key(batch))
        np.testing.assert_array_equal(got, by_hand(x, w, random.key(batch)))


def test_results_are_the_callers_own() -> None:
    program, w = images(), floats(6, 1, 5, 5)
    first = program(floats(2, 1, 28, 28), w, random.key(0))
    kept = first.copy()
    program(floats(2, 1, 28, 28), w, random.key(1))
    np.testing.assert_array_equal(first, kept)


def test_memory_is_used_again() -> None:
    x = graph.input((1000,))
    y = x
    for _ in range(10):
        y = math.sin(y)
    program = graph.Graph([x], y)
    program(floats(1000))
    (bound,) = program.bound.values()
    assert bound.workspace == 2 * 4000 + 32  # ten results in the memory of two


def test_programs_run_in_threads() -> None:
    program, w = images(), floats(6, 1, 5, 5)
    xs = [floats(3, 1, 28, 28) for _ in range(4)]
    wrong = []

    def work(at):
        for _ in range(20):
            got = program(xs[at], w, random.key(at))
            if not np.array_equal(got, by_hand(xs[at], w, random.key(at))):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def dropped(x):
    y, after = nn.dropout_train(x, read(STATE), 0.7)
    write(STATE, after)
    return y


@graph.function
def func1(x):
    return dropped(x)


def test_b3_the_branch_that_draws_nothing_returns_the_state_it_was_given() -> None:
    def func2(x, y):
        return cond(x, lambda: math.add(x, y), lambda: func1(y))

    one = np.ones(1, np.float32)
    spec = TensorSpec((1,))
    program = graph.thread(graph.trace(func2, (spec, spec)))
    y, state = program(one, one * 5, random.key(3))
    np.testing.assert_array_equal(y, [6])
    np.testing.assert_array_equal(random.key_data(state), [0, 3])
    y, state = program(one * 0, one * 5, random.key(3))
    wanted, after = nn.dropout_train(one * 5, random.key(3), 0.7)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(random.key_data(state), random.key_data(after))


def test_b_a_loop_draws_anew_at_each_turn() -> None:
    program = graph.thread(
        graph.trace(lambda x: loop(5, lambda _, c: func1(c) * 0.5 + 1.0, x), (VECTOR,))
    )
    got, state = program(np.ones(64, np.float32), random.key(3))
    wanted, key = np.ones(64, np.float32), random.key(3)
    for _ in range(5):
        wanted, key = nn.dropout_train(wanted, key, 0.7)
        wanted = math.add(math.multiply(wanted, 0.5), 1.0)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(random.key_data(state), random.key_data(key))


def test_loops_count_and_compare() -> None:
    turns = graph.input(TensorSpec((), "int64"), "turns")
    x = graph.input(VECTOR)
    product = loop(turns, lambda _, c: c * 2.0, x)
    program = graph.Graph([turns, x], product)
    np.testing.assert_array_equal(program(np.int64(3), np.ones(2, np.float32)), [8, 8])
    np.testing.assert_array_equal(program(np.int64(0), np.ones(2, np.float32)), [1, 1])
    grown = graph.Graph(
        [x], while_loop(lambda c: math.sum(c) < 100.0, lambda c: c + c, x)
    )
    np.testing.assert_array_equal(grown(np.ones(6, np.float32)), np.full(6, 32.0))


def test_a_loop_may_swap_what_it_carries() -> None:
    a, b = graph.input(VECTOR, "a"), graph.input(VECTOR, "b")
    program = graph.Graph([a, b], loop(3, lambda _, a, b: (b, a), a, b))
    first, second = program(np.zeros(2, np.float32), np.ones(2, np.float32))
    assert (first[0], second[0]) == (1, 0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda k: random.normal(k, (5,)),
        lambda k: random.permutation(k, 9),
        lambda k: random.permutation(k, np.arange(9)),
        lambda k: random.uniform(random.fold_in(k, 7), (3,)),
        lambda k: random.randint(random.split(k, (2, 2))[1][0], (4,), 0, 9),
        lambda k: random.categorical(k, np.zeros((4, 3), np.float32)),
        lambda k: random.bernoulli(k, 0.3, (9,)),
    ],
)
def test_draws_are_those_of_the_operators(draw) -> None:
    key = graph.key()
    program = graph.Graph([key], draw(key))
    for seed in (0, 1):
        np.testing.assert_array_equal(program(random.key(seed)), draw(random.key(seed)))


def test_arguments_that_do_not_fit() -> None:
    program, w = images(), floats(6, 1, 5, 5)
    x = floats(2, 1, 28, 28)
    with pytest.raises(ArgumentError, match=re.escape("takes 3 arguments (x, w, key)")):
        program(x, w)
    with pytest.raises(ShapeError, match=r"w is f32.6, 1, 5, 5., not of shape"):
        program(x, floats(5, 1, 5, 5), random.key(0))
    with pytest.raises(DTypeError, match=r"x is f32.*not float64"):
        program(x.astype(np.float64), w, random.key(0))
    with pytest.raises(ArgumentError, match="key is key<threefry2x32>, not 3"):
        program(x, w, 3)
    used = random.key(0)
    program(x, w, used)
    with pytest.raises(KeyReuseError):
        program(x, w, used)
    with pytest.raises(GraphError, match=r"make it pure with graph.thread"):
        func1.graph(VECTOR)(x)
    a, b = graph.input(VECTOR, "a"), graph.input(VECTOR, "b")
    with pytest.raises(ShapeError, match=r"is f32.n., not of shape .3,., where n = 2"):
        graph.Graph([a, b], nn.concatenate([a, b]))(floats(2), floats(3))


def test_a_forgotten_input_is_named() -> None:
    x, y = graph.input((2,), "x"), graph.input((2,), "y")
    forgetful = graph.Graph([x], x + y)
    with pytest.raises(
        GraphError, match=r"needs y, .* not one of its inputs; add it to"
    ):
        forgetful(np.ones(2, np.float32))
