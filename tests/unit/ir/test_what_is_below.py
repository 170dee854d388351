"""What is below a node: classes, nodes of a class in order, contents, names."""

from __future__ import annotations

import gc

from tensorlang.ir import Var, f32, i64
from tensorlang.ir.contents import contents, free_vars, names
from tensorlang.ir.integers.known import Known
from tensorlang.ir.nodes import (
    Binary,
    Block,
    Buffer,
    Call,
    Compare,
    Const,
    For,
    If,
    Load,
    Seq,
    Stmt,
    Store,
)
from tensorlang.ir.simplification.rules import Simplifier
from tensorlang.ir.visit import holds, nodes_of, substitute, walk

N, AT = Var("n", i64), Var("i", i64)
X, Y = (Buffer(name, f32, (N,)) for name in "xy")


def copy(guarded: bool = True) -> Stmt:
    """`for i in range(n): if x[i] < x[0]: y[i] = x[i]`."""
    first = Load(X, (Const(0, i64),))
    store = Store(Y, (AT,), Load(X, (AT,)))
    body: Stmt = If(Compare("lt", Load(X, (AT,)), first), store) if guarded else store
    return For(AT, N, "serial", body)


def test_classes_below_a_node() -> None:
    stmt = copy()
    for kind in (For, If, Store, Compare, Load, Buffer, Var, Const):
        assert holds(stmt, kind)
        assert [*nodes_of(stmt, kind)] == [n for n in walk(stmt) if type(n) is kind]
    for other in (Block, Binary, Call):
        assert not holds(stmt, other)
        assert not [*nodes_of(stmt, other)]
    assert not holds(copy(guarded=False), Const)
    assert not holds(Seq(()), Store)


def test_contents_are_those_of_all_statements() -> None:
    held = contents(copy())
    assert held.reads == {X}
    assert held.writes == {Y}
    assert held.bound == (AT,)
    assert free_vars(copy()) == {N}
    assert names(copy()) == {"n", "i", "x", "y"}
    both = Seq((copy(), Store(Y, (N,), Load(Y, (N,)))))
    assert contents(both).reads == {X, Y}
    assert contents(copy()).reads == {X}


def analysed() -> None:
    """Simplify an expression in two scopes."""
    known = Known({N: (0, 9)})
    inner = known.inside({AT: (0, N - 1)}, ())
    simplifier = Simplifier(inner, Simplifier(known), frozenset((AT,)))
    simplifier.visit(substitute((AT * 4 + N) // 4 % 3 + AT, {N: AT + 1}))


def test_analyses_are_freed_without_the_garbage_collector() -> None:
    def count() -> int:
        return sum(isinstance(each, (Known, Simplifier)) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = count()
        analysed()
        assert count() == before
    finally:
        gc.enable()
