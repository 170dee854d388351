"""Vectors of indices that are ramps after all."""

from __future__ import annotations

import pytest

from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.known import Known
from tensorlang.ir.nodes import Const, Expr, Ramp, Splat, Var, as_expr
from tensorlang.ir.simplification.lanewise import as_ramp

N = Var("n", i64)


def line(lanes: int) -> Ramp:
    return Ramp(Const(0, i64), Const(1, i64), lanes)


def every(value: Expr | int, lanes: int) -> Splat:
    return Splat(as_expr(value), lanes)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        ((every(N * 4, 8) + line(8) // every(2, 8)) // every(4, 8), (N, 0)),
        (
            (every(N * 16, 32) + line(32) // every(2, 32))
            // every(16, 32)
            * every(32, 32)
            + line(32),
            (N * 32, 1),
        ),
        ((every(N * 8, 8) + line(8) // every(2, 8)) % every(4, 8), None),
        (line(4) - (every(N * 4, 4) + line(4) * every(3, 4)) % every(2, 4), None),
        ((every(N * 4 + 1, 8) + line(8) // every(4, 8)) // every(4, 8), (N, 0)),
        ((every(N, 8) % every(2, 8) + line(8) // every(4, 8)) // every(4, 8), (0, 0)),
        (Ramp(N * 8 + 1, as_expr(1) * 2, 4) % every(8, 4) // every(2, 4), (0, 1)),
        (Ramp(N * 8 + 3, as_expr(1) * 2, 4) % every(8, 4) // every(2, 4), None),
        (Ramp(N * 8 - 3, N, 4) % every(8, 4) // every(2, 4), None),
    ],
)
def test_lanes_that_climb_evenly(
    vector: Expr, expected: tuple[Expr | int, int] | None
) -> None:
    made = as_ramp(vector, Known({N: (0, 1 << 40)}))
    if expected is None:
        assert made is vector
    else:
        base, stride = map(as_expr, expected)
        assert made == Ramp(base, stride, vector.dtype.lanes)


@pytest.mark.parametrize(
    "vector",
    [line(8) // every(2, 8), line(8) * line(8), (line(8) + every(N, 8)) % every(3, 8)],
)
def test_others_stay(vector: Expr) -> None:
    assert as_ramp(vector, Known()) is vector


def test_what_may_wrap_stays() -> None:
    vector = (every(N * 4, 8) + line(8) // every(2, 8)) // every(4, 8)
    assert as_ramp(vector, Known()) is vector
