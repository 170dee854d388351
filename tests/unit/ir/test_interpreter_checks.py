"""Each check finds its fault, and without the check the same program is not caught."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, run
from tensorlang.ir.text.parser import parse

# (check, the start of the message, program over x: i32[8] and y: i32[8])
FAULTS = [
    (
        "bounds",
        r"x\[8\] is out of bounds: dimension 0 has extent 8 \(at i=7\)",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in range(8):
        y[i] = x[i + 1]
""",
    ),
    (
        "bounds",
        r"block b: axis vi = 8 is outside its extent 8 \(at i=8\)",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in range(9):
        with block("b", vi=spatial(8, i)):
            y[max(vi - 1, 0)] = x[0]
""",
    ),
    (
        "unwritten",
        r"y\[3\] is read, but nothing wrote it \(at i=3\)",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in range(8):
        if i == 3:
            y[0] = y[i]
        else:
            y[i] = x[i]
""",
    ),
    (
        "unwritten",
        r"t\[4\] is read",
        """
def f(x: i32[8], y: Out[i32[8]]):
    t = alloc(i32[8])
    for i in range(4):
        t[i] = x[i]
    for i in range(8):
        y[i] = t[i]
""",
    ),
    (
        "race",
        r"race: y\[0\]: one iteration of a parallel loop writes what another one wrote",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in parallel(8):
        y[i // 2] = x[i]
""",
    ),
    (
        "race",
        r"race: s\[1\]: one iteration of a bound loop \(thread.x\) reads what another",
        """
def f(x: i32[8], y: Out[i32[8]]):
    s = alloc(i32[8], scope="shared")
    for i in bound(8, "thread.x"):
        s[i] = x[i]
        y[i] = s[(i + 1) % 8]
""",
    ),
    (
        "barrier",
        "divergent barrier: 4 of 8 lanes of scope 'block' do not reach it",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in bound(8, "thread.x"):
        y[i] = x[i]
        if i < 4:
            barrier("block")
""",
    ),
    (
        "disjoint",
        r"y\[0\] is touched by two iterations of the block scatter",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in range(8):
        with block("scatter", vi=spatial(8, i), vd=disjoint(8, i // 2 * 2)):
            y[vd] = x[vi]
""",
    ),
    (
        "order",
        "block scan: ordered axis vt does not increase",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for i in range(8):
        with block("scan", vt=ordered(8, 7 - i)):
            y[vt] = x[vt]
""",
    ),
    (
        "in_param",
        "x is an `in` parameter",
        """
def f(x: i32[8], y: Out[i32[8]]):
    x[0] = 1
    y[0] = 1
""".replace("= 1", "= i32(1)"),
    ),
    (
        "inout",
        r"y\[3\] is an inout element read after it was written \(at i=4\)",
        """
def f(x: i32[8], y: InOut[i32[8]]):
    for i in range(8):
        y[i] = y[max(i - 1, 3)] + x[i]
""",
    ),
    (
        "phase",
        r"a wait for phase -2 of m\[0\], where phase 1 is open",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for b in bound(1, "block.x"):
        m = barrier_object(8, 1)
        for t in bound(8, "thread.x"):
            arrive(m[0])
            wait(m[0], -2)
            y[t] = x[t]
""",
    ),
    (
        "register",
        r"acc\[1\] is in a register of thread 1, and thread 0 touches it",
        """
def f(x: i32[8], y: Out[i32[8]]):
    for b in bound(1, "block.x"):
        acc = alloc(i32[8], scope="register", layout=lambda i: (i, 0))
        m = barrier_object(1, 1)
        for t in bound(8, "thread.x"):
            acc[t] = x[t]
            barrier("block")
            y[t] = acc[t // 2 * 2 + 1 - t % 2]
""",
    ),
]


@pytest.mark.parametrize(
    ("check", "message", "text"),
    FAULTS,
    ids=[f"{f[0]}{n}" for n, f in enumerate(FAULTS)],
)
def test_a_check_finds_its_fault_and_nothing_else_does(check, message, text):
    func = parse(text)
    x, y = np.arange(8, dtype="i4"), np.zeros(8, "i4")
    with pytest.raises(InterpreterError, match=message):
        run(func, x, y)
    run(func, x, y, checks=ALL_CHECKS - {check})


TRANSPOSE = """
def f(x: f32[32, 32], y: Out[f32[32, 32]]):
    s = alloc(f32[32, 32], scope="shared"{layout})
    for i in range(32):
        for t in bound(32, "thread.x"):
            s[i, t] = x[i, t]
    for i in range(32):
        for t in bound(32, "thread.x"):
            y[i, t] = s[t, i]
"""


@pytest.mark.parametrize(
    ("layout", "extra"),
    [
        ("", 31 * 32),
        (", layout=lambda i, j: (i * 33 + j,)", 0),
        (", layout=lambda i, j: (i, (i + j) % 32)", 0),
        (", layout=lambda i, j: (j, i)", 31 * 32),
    ],
    ids=["plain", "padded", "swizzled", "transposed"],
)
def test_bank_conflicts_are_counted_through_the_layout(layout, extra):
    func = parse(TRANSPOSE.replace("{layout}", layout))
    x, y = np.random.default_rng(0).random((32, 32), "f4"), np.zeros((32, 32), "f4")
    report = run(func, x, y)
    assert (y == x.T).all()
    assert report.bank_conflicts["s"] == extra
    silent = run(func, x, y, checks=ALL_CHECKS - {"bank"})
    assert silent.bank_conflicts["s"] == 0


def test_bank_conflicts_of_one_word_read_by_all_are_none():
    func = parse("""
def f(x: f32[64], y: Out[f32[64]]):
    s = alloc(f32[64], scope="shared")
    for t in bound(64, "thread.x"):
        s[t] = x[t]
        barrier("block")
        y[t] = s[0] + s[t]
""")
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    assert run(func, x, y).bank_conflicts["s"] == 0
    assert (y == 2).all()


def test_fuel_ends_a_loop_that_does_not_end():
    func = parse("""
def f(y: Out[i32[1]]):
    while True:
        y[0] = i32(0)
""")
    with pytest.raises(InterpreterError, match="more than 1000 steps"):
        run(func, np.zeros(1, "i4"), fuel=1000)


def test_a_failed_ir_check_names_its_code():
    func = parse("""
def f(x: i64[4], y: Out[i64[4]]):
    for i in range(4):
        evaluate(check(x[i] < 3, 17))
        y[i] = x[i]
""")
    y = np.zeros(4, "i8")
    run(func, np.array([0, 1, 2, 2]), y)
    assert y.tolist() == [0, 1, 2, 2]
    with pytest.raises(InterpreterError, match=r"check failed with code 17.*i=2"):
        run(func, np.array([0, 1, 3, 2]), y)


def test_every_check_has_a_program_that_it_alone_catches():
    counted = {"bank"}  # reports, and does not refuse: see the transposes above
    assert {check for check, _, _ in FAULTS} | counted == ALL_CHECKS
