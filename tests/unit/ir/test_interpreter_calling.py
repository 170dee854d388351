"""The call: how arrays and scalars are bound, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, InterpreterError, ShapeError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse

SCALE = parse("""
def scale(x: f32[n, 2 * m], y: Out[f32[n, 2 * m]], *, n: i64, m: i64, rate: f32):
    for i in parallel(n):
        for j in range(2 * m):
            y[i, j] = x[i, j] * rate
""")


def arrays(n=3, m=2):
    return np.ones((n, 2 * m), "f4"), np.zeros((n, 2 * m), "f4")


def test_a_dimension_that_is_a_scalar_is_bound_from_the_shape():
    x, y = arrays()
    run(SCALE, x, y, m=2, rate=0.5)
    assert (y == 0.5).all()


def test_strided_arrays_are_read_and_written_in_place():
    x = np.arange(24, dtype="f4").reshape(4, 6)[::-1, ::1].T[:, 1:]  # f4[6, 3]
    whole = np.zeros((12, 3), "f4")
    run(
        parse("""
def f(x: f32[6, 3], y: Out[f32[6, 3]]):
    for i in range(6):
        for j in range(3):
            y[i, j] = x[i, j] + 1.0
"""),
        x,
        whole[::2],
    )
    assert (whole[::2] == x + 1).all()
    assert (whole[1::2] == 0).all()


def test_an_output_is_untouched_by_a_run_that_faults():
    func = parse("""
def f(y: Out[i64[2]]):
    y[0] = 5
    y[2] = 6
""")
    y = np.zeros(2, "i8")
    with pytest.raises(InterpreterError, match="out of bounds"):
        run(func, y)
    assert y.tolist() == [0, 0]


def test_an_input_array_may_be_the_output_array():
    func = parse("""
def f(x: i64[4], y: Out[i64[4]]):
    for i in range(4):
        y[i] = x[3 - i]
""")
    x = np.arange(4)
    run(func, x, x)
    assert x.tolist() == [3, 2, 1, 0]


def read_only():
    y = np.zeros((3, 4), "f4")
    y.flags.writeable = False
    return y


X, Y = arrays()
BAD = [
    ((X,), {"m": 2, "rate": 1.0}, ArgumentError, "takes 2 arrays, got 1"),
    ((X, Y), {"m": 2}, ArgumentError, "needs the scalars rate"),
    ((X, Y), {"m": 2, "rate": 1.0, "k": 1}, ArgumentError, "has no scalar k"),
    ((X, Y), {"m": 2.5, "rate": 1.0}, ArgumentError, "m is i64, got 2.5"),
    ((X, Y), {"m": 2**63, "rate": 1.0}, ArgumentError, "m is i64, got"),
    ((X, Y), {"n": 4, "m": 2, "rate": 1.0}, ShapeError, r"x has the shape \(4, 4\)"),
    ((X, Y), {"m": 3, "rate": 1.0}, ShapeError, r"\(3, 6\), got \(3, 4\)"),
    ((X, Y[:2]), {"m": 2, "rate": 1.0}, ShapeError, r"y has the shape \(3, 4\)"),
    ((X[0], Y), {"m": 2, "rate": 1.0}, ShapeError, "x has 2 dimensions"),
    ((X.astype("f8"), Y), {"m": 2, "rate": 1.0}, DTypeError, "x holds f32.*float64"),
    (([1.0], Y), {"m": 2, "rate": 1.0}, ArgumentError, "needs a NumPy array, not list"),
    ((X, read_only()), {"m": 2, "rate": 1.0}, ArgumentError, "y is written, but the"),
]


@pytest.mark.parametrize(("given", "scalars", "error", "message"), BAD)
def test_a_call_that_does_not_fit_is_a_typed_error(given, scalars, error, message):
    with pytest.raises(error, match=message):
        run(SCALE, *given, **scalars)


def test_a_check_that_does_not_exist_is_refused():
    with pytest.raises(ArgumentError, match="no checks"):
        run(SCALE, X, Y, checks=frozenset({"typo"}), m=2, rate=1.0)


def test_a_negative_size_is_an_empty_array():
    func = parse("""
def f(y: Out[i64[max(n, 0)]], *, n: i64):
    for i in range(n):
        y[i] = i
""")
    run(func, np.zeros(0, "i8"), n=-3)


def test_a_buffer_that_nothing_allocates():
    func = parse("""
def f(y: Out[i64[1]]):
    if y[0] == 0:
        t = alloc(i64[1])
        t[0] = 1
    y[0] = 1
""")
    with pytest.raises(InterpreterError, match="nothing wrote it"):
        run(func, np.zeros(1, "i8"))
