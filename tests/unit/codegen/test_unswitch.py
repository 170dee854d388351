"""Conditions that are the same in all turns of a loop stand before it."""

from tensorlang.codegen.simt.unswitch import unswitch_loops
from tensorlang.ir.nodes import For, If
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import walk

TEXT = """
def f(x: f32[100, n], y: Out[f32[100]], *, n: i64, m: i64):
    for t in bound(128, "thread.x"):
        for k in range(n):
            if {}:
                y[t] = x[t, k]
"""


def inside_loops(cond):
    func = unswitch_loops(parse(TEXT.format(cond)))
    serial = [node for node in walk(func) if isinstance(node, For) and not node.thread]
    assert len(serial) == 1
    return any(isinstance(node, If) for node in walk(serial[0]))


def test_a_guard_of_threads_is_asked_once():
    assert not inside_loops("t < 100")
    assert not inside_loops("t < m")


def test_what_a_turn_decides_is_asked_in_each():
    assert inside_loops("k < m")


def test_what_a_turn_may_change_is_asked_in_each():
    assert inside_loops("y[t] < 1.0")
