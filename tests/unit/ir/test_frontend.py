# ruff: noqa: ARG005 - bodies that are tried alike do not use all they are given
"""Definitions in tensor-expression style: what may stand where, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import ir
from tensorlang.errors import IRError
from tensorlang.ir import compute, function, placeholder, reduce_axis, run, sum

X = placeholder((10,), "f32", "x")
VALUES = np.arange(10, dtype=np.float32)


def result(tensor):
    out = np.zeros([int(e.value) for e in tensor.shape], tensor.dtype.numpy)
    run(function("f", [X], [tensor]), VALUES, out)
    return out.tolist()


# ------------------------------------------------------------ axes are like numbers


@pytest.mark.parametrize(
    "place",
    [
        lambda i, r: i + r,
        lambda i, r: r + i,
        lambda i, r: 2 * r + i,
        lambda i, r: r * 2 + i,
        lambda i, r: i + 2 - r,
        lambda i, r: 9 - r,
        lambda i, r: (i + r) // 2,
        lambda i, r: (i + r) % 3,
        lambda i, r: -r + 2,
        lambda i, r: r,
    ],
)
def test_a_reduction_axis_is_used_like_a_number(place):
    r = reduce_axis(3, "r")
    y = compute((4,), lambda i: sum(X[place(i, r)], r))
    expected = [VALUES[[place(i, n) for n in range(3)]].sum() for i in range(4)]
    assert result(y) == expected


def test_an_axis_is_compared_selected_and_cast():
    r = reduce_axis(4, "r")
    odd = compute((1,), lambda i: sum(ir.select((r % 2).equal(1), X[r], 0.0), r))
    assert result(odd) == [4]
    turned = compute((1,), lambda i: sum(ir.cast("f32", r) * X[r], r))
    assert result(turned) == [14]
    assert result(compute((1,), lambda i: sum(r.cast("f32"), r))) == [6]
    last = compute((1,), lambda i: ir.argmax(X[r], r, r), ("top", "at"))
    out = np.zeros(1, np.float32), np.zeros(1, np.int64)
    run(function("f", [X], last), VALUES, *out)
    assert [int(array[0]) for array in out] == [3, 3]


def test_mathematics_is_named_where_definitions_are():
    y = compute((10,), lambda i: ir.exp(ir.log(X[i] + 1.0)) + ir.fma(X[i], 0.0, 0.0))
    assert np.allclose(result(y), VALUES + 1, rtol=1e-5)


# ------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "body",
    [
        lambda i, r: X[r],
        lambda i, r: X[i] + ir.cast("f32", r),
        lambda i, r: X[r.var],
        lambda i, r: sum(X[r], reduce_axis(2, "q")),
    ],
)
def test_an_axis_belongs_into_a_reduction(body):
    r = reduce_axis(10, "r")
    with pytest.raises(IRError, match="y uses the reduction axis r outside of a red"):
        compute((4,), lambda i: body(i, r))


def test_a_reduction_is_a_whole_body():
    k = reduce_axis(10, "k")
    for body in (
        lambda i: sum(X[k], k) + 1.0,
        lambda i: 1.0 - sum(X[k], k),
        lambda i: ir.exp(sum(X[k], k)),
        lambda i: -sum(X[k], k),
        lambda i: (sum(X[k], k), X[i]),
    ):
        with pytest.raises(IRError, match="give it a compute of its own"):
            compute((4,), body)


def test_an_axis_counts_nothing_in_python():
    k = reduce_axis(3, "k")
    with pytest.raises(IRError, match="the axis k has no value while"):
        range(k)
    with pytest.raises(IRError, match="has no truth value"):
        bool(k < 2)


def test_a_shared_value_is_not_called_like_an_axis():
    x = placeholder((9,), "i64", "x")
    t = reduce_axis(9, "t")

    def total(i):
        both = x[i] + 3
        return sum(ir.select((both < t) & (both > t - 2), x[t], 0), t)

    y = compute((9,), total, "y")
    made = function("f", [x], [y])
    ir.verify(made)


def test_a_deep_value_is_named_in_parts():
    """A loop in Python makes an expression deeper than any pass recurses."""
    x = placeholder((5,), "f32", "x")

    def steps(i):
        value = x[i]
        for step in range(1500):
            value = 1.5 - x[i] * value if step % 2 else value / 3.0
        return value

    func = function("f", [x], [compute((5,), steps, "y")])
    ir.verify(func)
    given = np.linspace(-1, 1, 5, dtype=np.float32)
    want = given
    for step in range(1500):
        want = np.float32(1.5) - given * want if step % 2 else want / np.float32(3)
    found = np.zeros_like(given)
    run(func, given, found)
    np.testing.assert_array_equal(found, want)
