"""Transposes through shared memory: right, coalesced, without bank conflicts."""

import re

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import InterpreterError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Barrier, Const, Let, Load, Ramp, Seq, Store, seq
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import substitute, transform, walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import schedule
from tensorlang.schedules.simt.generic import generic
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.targets import get

GPU = get("cuda:sm_80")
TURNED = """
def turned(x: f32[3, m, n], b: f32[3, n, m], y: Out[f32[3, n, m]], *, m: i64, n: i64):
    for a in range(3):
        for i in range(n):
            for j in range(m):
                with block("y", va=spatial(3, a), vi=spatial(n, i), vj=spatial(m, j)):
                    y[va, vi, vj] = x[va, vj, vi] + b[va, vi, vj]
"""


def transposed():
    op = find("nn.transpose")
    return lower(schedule(op, op.default, GPU, "direct", Knobs()).function, GPU)


@pytest.mark.parametrize("shape", [(1, 1), (33, 7), (64, 128), (40, 100)])
def test_transposes_have_no_bank_conflicts(shape):
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    y = np.full(shape[::-1], np.nan, "f4")
    report = run(transposed(), x.reshape(-1), y.reshape(-1), n0=shape[0], n1=shape[1])
    np.testing.assert_array_equal(y, x.T)
    (tile,) = report.bank_conflicts
    assert report.bank_conflicts[tile] == 0
    assert (tile == "x_shared") == (shape == (64, 128))


def test_neighbouring_threads_touch_neighbours():
    func = transposed()
    lets = {node.var: node.value for node in walk(func) if isinstance(node, Let)}
    found = [
        substitute(node.indices[0], lets)
        for node in walk(func)
        if isinstance(node, Load | Store) and node.buffer.name in ("x", "y")
    ]
    wide = [index for index in found if isinstance(index, Ramp)]
    assert len(wide) == 3
    assert len(found) == len(wide) + 2
    for index in found:
        lanes = index.lanes if index in wide else 1
        first = index.base if index in wide else index
        assert place(first, thread=5) - place(first, thread=4) == lanes


def place(index, thread):
    """The value of an index where all variables but the thread are 3."""
    values = {
        var: Const(thread if re.fullmatch(r"thread(_\d)?", var.name) else 3, var.dtype)
        for var in free_vars(index)
    }
    return simplify(substitute(index, values)).value


def test_only_what_is_turned_goes_through_shared_memory():
    s = Schedule(parse(TURNED), GPU)
    generic(s, Knobs())
    x, b = (np.random.default_rng(0).normal(size=t) for t in ((3, 41, 35), (3, 35, 41)))
    x, b, y = x.astype("f4"), b.astype("f4"), np.zeros((3, 35, 41), "f4")
    arrays = (x.reshape(-1), b.reshape(-1), y.reshape(-1))
    report = run(lower(s.function, GPU), *arrays, m=41, n=35)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1) + b)
    assert list(report.bank_conflicts.values()) == [0]


def test_sides_that_are_known_to_be_short():
    text = TURNED.replace("[3, m, n]", "[3, 12, n]").replace("[3, n, m]", "[3, n, 12]")
    text = text.replace("range(m)", "range(12)").replace("(m, j)", "(12, j)")
    s = Schedule(parse(text.replace("m: i64, ", "")), GPU)
    generic(s, Knobs())
    x, b = (np.random.default_rng(0).normal(size=t) for t in ((3, 12, 35), (3, 35, 12)))
    x, b, y = x.astype("f4"), b.astype("f4"), np.zeros((3, 35, 12), "f4")
    arrays = (x.reshape(-1), b.reshape(-1), y.reshape(-1))
    report = run(lower(s.function, GPU), *arrays, n=35)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1) + b)
    assert list(report.bank_conflicts.values()) == [0]


@pytest.mark.parametrize("side", [64, 65])
def test_the_barriers_are_needed(side):
    func = transposed()
    assert sum(isinstance(node, Barrier) for node in walk(func)) == 2

    def without(node):
        if not isinstance(node, Seq):
            return node
        return seq(*(s for s in node.stmts if not isinstance(s, Barrier)))

    x, y = np.zeros(side * side, "f4"), np.zeros(side * side, "f4")
    with pytest.raises(InterpreterError, match=r"race|written"):
        run(transform(func, without), x, y, n0=side, n1=side)
