"""Stateful programs made pure: the three programs of B, and what goes with them."""

import pytest

from tensorlang import graph
from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph import KeySpec, TensorSpec, cond, function, loop, read, write
from tensorlang.ops import math, nn

ONE = TensorSpec((1,))
STATE = graph.ref(KeySpec(), "state")


def dropped(x, rate):
    y, after = nn.dropout_train(x, read(STATE), rate)
    write(STATE, after)
    return y


@function
def func1(x):
    return dropped(x, 0.7)


@function
def long_func(x):
    return dropped(dropped(x, 0.7), 0.1)


@function
def func2(x, y):
    return cond(x, lambda: math.add(x, y), lambda: func1(y))


def before_and_after(program) -> str:
    return f"{program}\n\n=>\n\n{graph.thread(program)}\n"


def test_b1_func1(golden) -> None:
    golden(before_and_after(func1.graph(ONE)))


def test_b2_long_func(golden) -> None:
    golden(before_and_after(long_func.graph(ONE)))


def test_b3_func2(golden) -> None:
    golden(before_and_after(func2.graph(ONE, ONE)))


def test_b_a_loop_carries_the_state(golden) -> None:
    def looped(x):
        return loop(3, lambda _, c: func1(c), x)

    golden(before_and_after(graph.trace(looped, (ONE,))))


def test_b_a_while_loop_carries_the_state(golden) -> None:
    def looped(x):
        return graph.while_loop(lambda c: math.sum(c) > 1.0, func1, x)

    golden(before_and_after(graph.trace(looped, (ONE,))))


def test_b_call_sites_are_rewritten_and_functions_once() -> None:
    made = graph.thread(graph.trace(lambda x: func1(func1(x)), (ONE,)))
    first, second = made.nodes
    assert first.graphs[0] is second.graphs[0]
    assert second.args[1] is first.results[1]
    assert not made.stateful


def test_b_a_functions_own_reference_disappears(golden) -> None:
    def summed(x):
        total = graph.ref(x, "total")

        def body(_, c):
            write(total, math.add(read(total), c))
            return c

        loop(4, body, x)
        return read(total)

    golden(before_and_after(graph.trace(summed, (ONE,))))


def test_b_recursion_is_refused_by_name() -> None:
    @function
    def odd(x):
        return cond(x, lambda: even(x), lambda: x)

    @function
    def even(x):
        return odd(func1(x))

    with pytest.raises(
        GraphError, match="odd calls even calls odd: a graph has no rec"
    ):
        odd.graph(ONE)


def test_order_needs_a_function() -> None:
    with pytest.raises(GraphError, match="outside of a function"):
        read(STATE)
    with pytest.raises(GraphError, match="outside of a function"):
        func1(graph.input(ONE))


def test_a_reference_holds_one_spec() -> None:
    with pytest.raises(
        ShapeError, match="state holds key<threefry2x32> and cannot be set to f32"
    ):
        graph.trace(lambda x: write(STATE, x), (ONE,))


def test_branches_give_the_same() -> None:
    with pytest.raises(ShapeError, match=r"not \(f32\[1\]\) in one and \(f32\[2\]\)"):
        graph.trace(
            lambda x: cond(x, lambda: x, lambda: nn.concatenate([x, x])), (ONE,)
        )


def test_a_loop_gives_what_it_takes() -> None:
    with pytest.raises(ShapeError, match="must return the same"):
        graph.trace(lambda x: loop(2, lambda _, c: nn.concatenate([c, c]), x), (ONE,))
