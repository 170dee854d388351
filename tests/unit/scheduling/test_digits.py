"""Which loops must agree where indices meet."""

from __future__ import annotations

import pytest

from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.digits import fixed
from tensorlang.ir.nodes import Buffer, Expr, Var, as_expr

A, B, F, N, M = Var("i"), Var("j"), Var("f"), Var("n"), Var("m")
TABLE = Buffer("table", i64, (as_expr(64),))


def _agreeing(indices: list[Expr], **extents: int | None) -> str:
    found = fixed(
        [(index, index) for index in indices],
        {Var(name): extent for name, extent in extents.items()},
    )
    assert found is not None
    return "".join(sorted(var.name for var in found))


@pytest.mark.parametrize(
    ("indices", "extents", "agreeing"),
    [
        ([A * 32 + B], {"i": None, "j": 32}, "ij"),
        ([A * 32 + B], {"i": None, "j": 33}, ""),
        ([B * 32 + A], {"i": 32, "j": None}, "ij"),
        ([A * 4 + B * 2], {"i": 3, "j": 2}, "ij"),
        ([A * 2 + B * 3], {"i": 2, "j": 2}, "ij"),
        ([A * 2 + B * 3], {"i": 4, "j": 3}, ""),
        ([-A + 7], {"i": None}, "i"),
        ([A // 2], {"i": 4}, ""),
        ([A % 4], {"i": 4}, "i"),
        ([A % 4], {"i": 5}, ""),
        ([F // 8, F % 8], {"f": None}, "f"),
        ([F // 8, F % 4], {"f": None}, ""),
        ([F // 8, F % 4], {"f": 4}, "f"),
        ([F // 24, F // 6 % 4, F % 6], {"f": None}, "f"),
        ([F % 6 + F // 6 % 4 * 6], {"f": 24}, "f"),
        ([F // N, F % N], {"f": None}, "f"),
        ([F // N], {"f": None}, ""),
        ([F // N // M, F // N % M, F % N], {"f": None}, "f"),
        ([F // N // M, F % N], {"f": None}, ""),
        ([(A * 64 + B) // 32, (A * 64 + B) % 32], {"i": 4, "j": 64}, "ij"),
        ([(A * 8 + B) // 32, (A * 8 + B) % 32], {"i": 4, "j": 8}, "ij"),
        ([(A * 4 + B) // 5, (A * 4 + B) % 5], {"i": None, "j": 4}, "ij"),
        ([(A * 4 + B) // N, (A * 4 + B) % N], {"i": None, "j": 4}, "ij"),
        ([TABLE[A]], {"i": 4}, ""),
        ([TABLE[A], A], {"i": 4}, "i"),
        ([A * N + B], {"i": None, "j": None}, ""),
        ([], {"i": 1, "j": 2}, "i"),
    ],
)
def test_loops_that_indices_fix(indices, extents, agreeing):
    assert _agreeing(indices, **extents) == agreeing


def test_quotients_and_remainders_together_are_what_is_divided():
    one, other = F * 8 + A, F * 8 + B
    extents = {F: None, A: 8, B: 8}
    pairs = [(one // 64, other // 64), (one % 64, other % 64)]
    assert fixed(pairs, extents) == {F}
    assert fixed(pairs[:1], extents) == frozenset()
    assert fixed([pairs[0], (one % 32, other % 32)], extents) == frozenset()


@pytest.mark.parametrize("extent", [1, 2, 5, 8])
def test_what_is_fixed_is_true_by_counting(extent):
    shapes = [
        lambda i, j: (i * 3 + j,),
        lambda i, j: ((i * 3 + j) // 4, (i * 3 + j) % 4),
        lambda i, j: ((i * 2 + j) // 3, j % 2),
        lambda i, j: (i - j, i % 2),
    ]
    for shape in shapes:
        met: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for i in range(extent):
            for j in range(3):
                met.setdefault(shape(i, j), []).append((i, j))
        agreeing = _agreeing(list(shape(A, B)), i=extent, j=3)
        for points in met.values():
            assert "i" not in agreeing or len({i for i, _ in points}) == 1
            assert "j" not in agreeing or len({j for _, j in points}) == 1


@pytest.mark.parametrize(
    ("one", "other", "agreeing"),
    [
        (A, A - 1, frozenset()),
        (A * 4 + B, A * 4 + 1, frozenset({A})),
        (A * 0 + 3, A * 0 + 4, None),
        (A * 2, A * 2 + 1, None),
        (B, B + 4, None),
        (A, B, frozenset()),
        (A + N, A + N, frozenset({A})),
        (A + N, A, frozenset()),
    ],
)
def test_two_different_accesses(one, other, agreeing):
    found = fixed([(one, other)], {A: 8, B: 4})
    assert found == agreeing
