"""Derived gradients compute each exponential once, and no sum that is known."""

from __future__ import annotations

import pytest

from tensorlang import ir
from tensorlang.ir.contents import blocks
from tensorlang.ir.gradients.derivatives import ZERO
from tensorlang.ir.gradients.derivatives import written as to_expr
from tensorlang.ir.gradients.sums import (
    KnownSum,
    added,
    by_loops,
    closed,
    moved_out,
)
from tensorlang.ir.nodes import Buffer, Call, Reduce, Var, as_expr
from tensorlang.ir.visit import nodes_of
from tensorlang.ops import find

N, ROW, K, R = (Var(name, ir.i64) for name in "nikr")
X = Buffer("x", ir.f32, (N, N))
TOTAL, SCALE = (Buffer(name, ir.f32, (N,)) for name in ("total", "scale"))
KNOWN = KnownSum(TOTAL, (ROW,), {K: N}, X[ROW, K])
COUNT = N.cast(ir.f32)


def traced(name, *shapes, **named):
    op = find(name)
    return op.function(op.workload(*shapes, **named))


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nn.softmax_grad", {"axis": 1}),
        ("nn.log_softmax_grad", {"axis": 1}),
        ("nn.log_softmax_grad", {"axis": 0}),
    ],
)
def test_each_exponential_is_computed_once(name, named):
    func = traced(name, (8, 100), (8, 100), **named)
    assert [call.name for call in nodes_of(func, Call)].count("exp") == 1


def test_exponentials_of_narrow_strided_rows_are_not_stored():
    func = traced("nn.log_softmax_grad", *[(3, 5, 9)] * 2, dtypes="f16", axis=1)
    assert [call.name for call in nodes_of(func, Call)].count("exp") == 2


def test_deviations_from_a_mean_are_not_summed():
    func = traced("math.var_grad", (8,), (8, 100), axis=1)
    assert len([*nodes_of(func, Reduce)]) == 1


def test_sums_for_a_weight_and_a_bias_are_one_stage():
    func = traced("nn.layer_norm_grad", (8, 100), (8, 100), (100,))
    sums = [reduce.reducer.name for reduce in nodes_of(func, Reduce)]
    assert sorted(sums) == ["sum"] * 4 + ["sums"]
    assert len([*blocks(func)]) == 6


def test_sums_that_read_different_elements_are_apart():
    n, k = 16, ir.reduce_axis(16, "k")
    a, b, dy = (ir.placeholder((n, n), "f32", name) for name in ("a", "b", "dy"))
    y = ir.compute((n, n), lambda i, j: ir.sum(a[i, k] * b[k, j], k), "y")
    da, db = ir.adjoint([y], [dy], [a, b], ["da", "db"])
    assert da.stage is not db.stage


def test_factors_of_a_row_are_moved_out_of_its_sum():
    rest, common = moved_out(X[ROW, K] / SCALE[ROW] * -2.0, {K})
    assert (str(rest), str(common)) == ("x[i, k]", "-2.0 / scale[i]")
    assert moved_out(X[ROW, K] + SCALE[ROW], {K}) == (X[ROW, K] + SCALE[ROW], None)
    alike = SCALE[ROW] * 2.0  # the same for all terms: nothing else is left to sum
    assert moved_out(alike, {K}) == (alike, None)


def test_sums_in_terms_of_known_ones():
    def found(value, axes=R, extent=N):
        made = closed(value, (ROW,), {axes: extent}, [KNOWN])
        return made if made in (None, ZERO) else str(to_expr(made, ir.f32))

    assert found(X[ROW, R] - TOTAL[ROW] / COUNT) == ZERO
    assert found(X[ROW, R] * 3.0) == "total[i] * 3.0"
    assert found(SCALE[ROW]) == "scale[i] * cast(f32, n)"
    assert found(-X[ROW, R] - SCALE[ROW]) == "-total[i] - scale[i] * cast(f32, n)"
    assert found(X[ROW, R] * X[ROW, R]) is None
    assert found(X[R, ROW]) is None  # the sum of a column
    assert found(X[ROW, R], extent=as_expr(3)) is None  # not of the whole row
    assert found(X[ROW, R] + SCALE[R]) is None


def test_factors_are_grouped_by_the_loops_they_vary_with():
    def found(value):
        return str(by_loops(value, (ROW, K), (K,)))

    assert found(X[ROW, K] / SCALE[ROW]) == "x[i, k] * (1.0 / scale[i])"
    made = found(X[ROW, K] / SCALE[ROW] * 2.0 * TOTAL[ROW])
    assert made == "x[i, k] * (total[i] / (scale[i] * 0.5))"
    assert (
        found(TOTAL[ROW] + X[ROW, K] / COUNT)
        == "total[i] + x[i, k] * (1.0 / cast(f32, n))"
    )
    assert found(X[ROW, K] / SCALE[K]) == "x[i, k] * (1.0 / scale[k])"
    by_index = X[ROW, K] / K.cast(ir.f32)
    assert by_loops(by_index, (ROW, K), (K,)) == by_index
    assert by_loops(by_index, (ROW, K), (K,), (ROW,)) != by_index
    whole = X[ROW, K].cast(ir.i64) // N
    for kept in (SCALE[ROW] / TOTAL[ROW], TOTAL[ROW] / COUNT, X[ROW, K] * 2.0, whole):
        assert by_loops(kept, (ROW, K), (K,)) == kept


def test_contributions_are_added_with_common_factors_in_front():
    made = added([X[ROW, K] / SCALE[ROW], TOTAL[ROW] * -1.0 / SCALE[ROW]])
    assert str(made) == "(x[i, k] - total[i]) / scale[i]"
    assert added([X[ROW, K]]) == X[ROW, K]
