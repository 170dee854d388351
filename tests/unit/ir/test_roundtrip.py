"""Text and tree say the same: `parse(show(f)) == f` on random verified functions."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorlang.ir import nodes
from tensorlang.ir.digest import digest
from tensorlang.ir.nodes import Function, Let, Param, Seq, Store, Var
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk

STEADY = settings(
    max_examples=200,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@STEADY
@given(data=st.data())
def test_random_functions_print_and_parse_back(programs, data):
    func = data.draw(programs.functions())
    verify(func)
    text = show(func)
    again = parse(text)
    assert again == func
    assert show(again) == text
    assert digest(again) == digest(func)


@STEADY
@given(data=st.data())
def test_runnable_functions_are_verified(programs, data):
    func = data.draw(programs.functions(runnable=True))
    verify(func)
    kinds = {node.kind for node in walk(func) if isinstance(node, nodes.For)}
    assert kinds <= {"serial", "unrolled"}


@STEADY
@given(data=st.data())
def test_random_expressions_of_every_type_print_and_parse_back(programs, data):
    lanes = data.draw(st.sampled_from([1, 4]))
    dtype = data.draw(st.sampled_from(programs.SCALARS)).vector(lanes)
    scope = programs.Scope((Var("a", dtype.scalar), Var("b", dtype), Var("n")))
    value = data.draw(programs.expressions(dtype, scope, 4))
    assert value.dtype == dtype
    buffer = nodes.Buffer("x", dtype.scalar, (8,))
    place = nodes.Ramp(nodes.as_expr(0), nodes.as_expr(1), 4)
    index = place if lanes == 4 else nodes.as_expr(0)
    a = Let(Var("b", dtype), nodes.splat(nodes.Const(1, dtype.scalar), lanes))
    scalars = (Var("n"), Var("a", dtype.scalar))
    body = Seq((a, Store(buffer, (index,), value)))
    func = Function("f", (Param(buffer, "out"),), scalars, body)
    assert parse(show(func)) == func


def test_the_strategies_reach_every_node_type(programs):
    seen: set[type] = set()

    @settings(STEADY, max_examples=400)
    @given(func=programs.functions())
    def collect(func):
        seen.update(type(node) for node in walk(func))

    collect()
    every = {
        kind
        for kind in vars(nodes).values()
        if isinstance(kind, type) and issubclass(kind, nodes.Node)
    }
    assert every - seen == {nodes.Node, nodes.Expr, nodes.Stmt}
