"""Deep expressions of launches: named in parts, and the same results."""

import numpy as np
import pytest

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.depth import DEEPEST, bind_deep
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Buffer, Expr, If, Let, Load, Select, Store, Var, While
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import children, walk

HEAD = """
def f(x: f32[n], k: i32[n], y: Out[f32[n]], *, n: i64):
    for b in bound(n, "block.x"):
        for t in bound(1, "thread.x"):
"""
X = np.random.default_rng(3).normal(size=8).astype("f4")
K = np.array([3, 1, 4, 1, 5, 2, 6, 7], "i4")


def chain(start, step, times):
    text = start
    for number in range(times):
        text = step.format(text, number)
    return text


def levels(node):
    below = [levels(c) for c in children(node) if not isinstance(c, Buffer)]
    return max(below, default=0) + isinstance(node, Expr)


def deepest(func):
    nodes = (node for node in walk(func.body) if isinstance(node, (Let, Store, If)))
    return max(levels(part) for n in nodes for part in children(n) if of_values(part))


def of_values(part):
    return isinstance(part, Expr)


def lets(func):
    return [node for node in walk(func) if isinstance(node, Let)]


def results(func):
    y = np.zeros(8, "f4")
    run(func, X, K, y, n=8)
    return y


def assert_same(body):
    func = parse(HEAD + body)
    made = bind_deep(func, Names(func))
    verify(made)
    np.testing.assert_array_equal(results(made), results(func))
    return made


def test_what_is_not_deep_stays_as_it_is():
    func = parse(HEAD + f"            y[b] = {chain('x[b]', '({} + {}.0)', 20)}")
    assert bind_deep(func, Names(func)) == func


@pytest.mark.parametrize(
    ("start", "step"),
    [
        ("x[b]", "({} * 0.5 + {}.0)"),
        ("x[b]", "max({}, x[(b + {}) % n])"),
        ("x[b]", "(x[b] - {} * 0.25)"),
        ("cast(f32, k[b])", "({} + 0.5 * {}.0)"),
    ],
)
def test_deep_values_are_named_in_parts(start, step):
    made = assert_same(f"            y[b] = {chain(start, step, 50)}")
    assert deepest(made) <= DEEPEST + 1
    assert 2 <= len(lets(made)) <= 6


def test_conditions_and_indices():
    index = chain("cast(i64, k[b])", "(({} + {}) % n)", 40)
    cond = chain("x[b]", "({} * 0.5 + {}.0)", 40)
    body = f"""            if {cond} > 3.0:
                y[b] = x[{index}]
            else:
                y[b] = 0.0
"""
    made = assert_same(body)
    assert deepest(made) <= DEEPEST + 1
    # what only one branch needs stands there
    (choice,) = [node for node in walk(made) if isinstance(node, If)]
    assert any(isinstance(node, Let) for node in walk(choice.then))


def test_arms_read_only_where_they_are_chosen():
    arm = chain("x[b]", "({} * 0.5 + x[(b + {}) % n])", 40)
    made = assert_same(f"            y[b] = select(k[b] > i32(2), {arm}, x[b] * 2.0)")
    first, *rest = lets(made)
    assert first.var.name == "chosen"
    parts = [let.value for let in rest if let.var.name.startswith("part")]
    assert parts
    assert all(isinstance(part, Select) and part.cond == first.var for part in parts)


def test_choices_in_choices():
    text = chain(
        "x[b]", "select(k[(b + {1}) % n] > i32(2), {0} * 0.5, x[b] + {1}.0)", 40
    )
    made = assert_same(f"            y[b] = {text}")
    assert deepest(made) <= DEEPEST + 1
    guards = {let.var for let in lets(made) if let.var.name.startswith("chosen")}
    for let in lets(made):
        if let.var in guards or not any(isinstance(n, Load) for n in walk(let.value)):
            continue
        assert isinstance(let.value, Select)
        assert isinstance(let.value.cond, Var)
        assert let.value.cond in guards


def test_arms_that_read_nothing_are_named_without_the_condition():
    arm = chain("cast(f32, b)", "({} * 0.5 + {}.0)", 40)
    made = assert_same(f"            y[b] = select(k[b] > i32(2), {arm}, 2.0)")
    assert not any(let.var.name.startswith("chosen") for let in lets(made))


def test_what_the_host_computes_has_no_names():
    size = chain("n", "({} + {} - 1)", 40)
    func = parse(f"""
def f(y: Out[f32[n]], *, n: i64):
    for b in bound({size} - {size} + n, "block.x"):
        for t in bound(1, "thread.x"):
            y[b] = 1.0
""")
    assert bind_deep(func, Names(func)) == func


def test_a_condition_that_is_asked_again():
    cond = chain("y[b]", "({} * 0.5 + {}.0)", 40)
    body = f"""            y[b] = 0.0
            while {cond} < 80.0:
                y[b] = y[b] * 2.0 + 1.0e12
"""
    made = assert_same(body)
    loops = [node for node in walk(made) if isinstance(node, While)]
    assert [levels(loop.cond) for loop in loops] == [2]
