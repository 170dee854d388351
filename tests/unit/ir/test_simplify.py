"""The simplifier: rules one by one, and random expressions before and after."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.ir import natives
from tensorlang.ir.dtypes import boolean, f32, i32, i64, u8, u32
from tensorlang.ir.integers.bounds import bounds, prove
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    LaneReduce,
    Load,
    Ramp,
    Select,
    Splat,
    Unary,
    Var,
    as_expr,
    binary,
)
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.text.printer import show

i, j, k, m, n = (Var(name) for name in "ijkmn")
w = Var("w", u32)
x = Var("x", f32)
RANGES = {
    n: (1, 1 << 32),
    m: (1, 1 << 32),
    i: (0, (n + 31) // 32 - 1),
    j: (0, 31),
    k: (0, n - 1),
}


def lanes(base, stride, count=8):
    return Ramp(base, as_expr(stride), count)


CASES = [
    ((i * 32 + j) // 32, "i"),
    ((i * 32 + j) % 32, "j"),
    ((i * 32 + j) // 8, "i * 4 + j // 8"),
    ((i * 32 + j) % 8, "j % 8"),
    ((i * 32 + j) // 64, "i // 2"),
    ((i * 64 + j * 2 + 1) % 64, "j * 2 + 1"),
    ((j + 40) // 32, "(j + 8) // 32 + 1"),
    ((i // 4) // 8, "i // 32"),
    ((i * 8 + j % 8) % 4, "j % 4"),
    (i // 4 * 4 + i % 4, "i"),
    (i // 32 * 32 + i // 4 % 8 * 4 + i % 4, "i"),
    (i // 14 % 10 * 14 + i % 14, "i % 140"),
    (i // 7 % 14 * 14 + i % 7 * 2, "i % 98 * 2"),
    (i // 7 % 14 * 16 + i % 7, "i // 7 % 14 * 16 + i % 7"),
    ((i * n + k) // n, "i"),
    ((i * n + k) % n, "k"),
    (n - i - n + j, "j - i"),
    ((i + j) * (k + 2) - k * i, "i * 2 + j * k + j * 2"),
    (k < n, "True"),
    (i * 32 < n + 31, "True"),
    (i * 4 < 64, "i < 16"),
    (i * 32 + j - n < 0, "i * 32 + j < n"),
    ((i * 2 + 3).equal(j * 4), "False"),
    ((i * 32 + j < n) & (j < 40) & (i >= 0), "i * 32 + j < n"),
    ((i < n) & (i < n + 5), "i < n"),
    ((i < n) | (i < n + 5), "i < n + 5"),
    ((i < 4) & (i > 9), "False"),
    ((i < 4) | (i > 2), "True"),
    (~(i < j), "i >= j"),
    (~~(x < 1.0), "x < 1.0"),
    (~(x < 1.0), "~(x < 1.0)"),
    (binary("min", j, 40), "j"),
    (binary("max", k, n), "n"),
    (Unary("abs", j), "j"),
    (Select(j < 32, i, j), "i"),
    (Select(i < 3, j, j), "j"),
    (Select(i < 3, as_expr(True), j < 5), "(i < 3) | (j < 5)"),
    (Cast(i64, Cast(i32, j)), "j"),
    (Cast(i64, Cast(i32, n)), "cast(i64, cast(i32, n))"),
    (Cast(f32, as_expr(3)), "3.0"),
    (w + 1 + 2, "w + u32(3)"),
    (w * 0 + w ^ w, "u32(0)"),
    ((w & 7) & 15, "w & u32(7)"),
    (w - w, "u32(0)"),
    (Const(200, u8) + Const(100, u8), "u8(44)"),
    (as_expr(7) // 0, "7 // 0"),
    (Const(1, i32) << 32, "i32(0)"),
    (Bitcast(u32, Const(1.0, f32)), "u32(1065353216)"),
    (x + 0.0, "x + 0.0"),
    (x - 0.0, "x"),
    (x + Const(-0.0, f32), "x"),
    (x * 0.0, "x * 0.0"),
    (x * 1.0 / 1.0, "x"),
    (natives.sqrt(Const(9.0, f32)), "3.0"),
    (natives.rotl(w, 32), "w"),
    (lanes(i * 32, 1) + Splat(j, 8), "ramp(i * 32 + j, 1, 8)"),
    (lanes(i, 2) * Splat(j, 8), "ramp(i * j, j * 2, 8)"),
    (lanes(i * 8, 1) // Splat(as_expr(8), 8), "splat(i, 8)"),
    (lanes(i * 8, 1) % Splat(as_expr(8), 8), "ramp(0, 1, 8)"),
    (lanes(i * 8, 16) // Splat(as_expr(8), 8), "ramp(i, 2, 8)"),
    (Splat(x, 4) + Splat(x, 4), "splat(x + x, 4)"),
    (Compare("lt", lanes(as_expr(0), 1), Splat(as_expr(8), 8)), "splat(True, 8)"),
    (Extract(lanes(i, 3), 2), "i + 6"),
    (lanes(i, 0), "splat(i, 8)"),
    (LaneReduce("max", Splat(x, 4)), "x"),
]


@pytest.mark.parametrize(("expr", "want"), CASES, ids=[show(e) for e, _ in CASES])
def test_rule(expr, want):
    assert show(simplify(expr, RANGES)) == want


def test_simplifying_twice_changes_nothing():
    for expr, _ in CASES:
        once = simplify(expr, RANGES)
        assert simplify(once, RANGES) == once


def test_a_load_keeps_its_place_and_loses_a_true_mask():
    buffer = Buffer("a", f32, (n,))
    load = Load(
        buffer, (lanes(as_expr(0), 1),), Compare("lt", lanes(i, 0), lanes(i, 1) + 1)
    )
    assert show(simplify(load, RANGES)) == "a[ramp(0, 1, 8)]"
    assert simplify(buffer[i] - buffer[i], RANGES) == buffer[i] - buffer[i]


def test_equal_parts_are_done_once():
    words: list[Expr] = [w, w + 1]
    for _ in range(100):  # a tree of more than 2^60 nodes, a graph of 500
        a, b = words[-2:]
        words.append((natives.rotl(a, 13) ^ b) + 5)
    assert simplify(words[-1] - words[-1]) == Const(0, u32)


# ------------------------------------------------------------ random expressions

VARIABLES = tuple(Var(f"v{number}") for number in range(4))


@cache  # a recursive strategy takes longer to make than to draw from
def index_expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from(VARIABLES), st.integers(-40, 40).map(as_expr))

    def grow(inner):
        both = st.tuples(inner, inner)
        small = st.integers(1, 12).map(as_expr)
        conditions = st.builds(
            Compare, st.sampled_from(["lt", "le", "eq", "ne", "gt", "ge"]), inner, inner
        )
        return st.one_of(
            st.builds(
                lambda op, ab: Binary(op, *ab),
                st.sampled_from(["add", "sub", "mul", "min", "max"]),
                both,
            ),
            st.builds(lambda a, c: a * c, inner, small),
            st.builds(lambda a, c: a // c, inner, small),
            st.builds(lambda a, c: a % c, inner, small),
            st.builds(Select, conditions, inner, inner),
            st.builds(lambda a: -a, inner),
            st.builds(lambda a: Unary("abs", a), inner),
            st.builds(lambda a: a & 15, inner),
            st.builds(lambda a: Cast(i64, Cast(i32, a)), inner),
            st.builds(lambda a: Cast(i64, Cast(u8, a)), inner),
        )

    return st.recursive(leaves, grow, max_leaves=14)


@st.composite
def worlds(draw):
    """Ranges of the variables, some of them over earlier ones, and values in them."""
    ranges, values = {}, {}
    for number, var in enumerate(VARIABLES):
        low = draw(st.integers(-20, 20))
        if number and draw(st.booleans()):
            other = draw(st.sampled_from(VARIABLES[:number]))
            scale = draw(st.integers(-2, 3))
            high_value = values[other] * scale + draw(st.integers(0, 30))
            shift = high_value - values[other] * scale
            if high_value >= low:
                ranges[var] = (low, other * scale + shift)
                values[var] = draw(st.integers(low, high_value))
                continue
        high = low + draw(st.integers(0, 40))
        ranges[var] = (low, high)
        values[var] = draw(st.integers(low, high))
    return ranges, values


def run(expr, values):
    return evaluate(expr, {var: np.int64(value) for var, value in values.items()})


@settings(max_examples=200)
@given(index_expressions(), worlds())
def test_random_index_arithmetic_keeps_its_value(expr, world):
    ranges, values = world
    assert run(simplify(expr, ranges), values) == run(expr, values)


@settings(max_examples=200)
@given(index_expressions(), worlds())
def test_random_bounds_hold_every_value(expr, world):
    ranges, values = world
    low, high = bounds(expr, ranges)
    value = int(run(expr, values))
    assert low is None or low <= value
    assert high is None or value <= high


@st.composite
def conditions(draw):
    parts = draw(
        st.lists(
            st.builds(
                Compare,
                st.sampled_from(["lt", "le", "eq", "ne", "gt", "ge"]),
                index_expressions(),
                index_expressions(),
            ),
            min_size=1,
            max_size=4,
        )
    )
    total = parts[0]
    for part in parts[1:]:
        total = Binary(draw(st.sampled_from(["and", "or", "xor"])), total, part)
        if draw(st.booleans()):
            total = ~total
    return total


@settings(max_examples=200)
@given(conditions(), worlds())
def test_random_conditions_keep_their_truth(cond, world):
    ranges, values = world
    truth = bool(run(cond, values))
    assert bool(run(simplify(cond, ranges), values)) == truth
    assert prove(cond, ranges) in (truth, None)


A, B = Var("a", u8), Var("b", u8)


@cache
def unsigned_expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(
        st.sampled_from([A, B]), st.integers(0, 255).map(lambda c: Const(c, u8))
    )

    def grow(inner):
        ops = ["add", "sub", "mul", "and", "or", "xor", "min", "max"]
        return st.one_of(
            st.builds(Binary, st.sampled_from(ops), inner, inner),
            st.builds(lambda e, c: e << c, inner, st.integers(0, 7)),
            st.builds(lambda e, c: e >> c, inner, st.integers(0, 7)),
            st.builds(lambda e, c: e // c, inner, st.integers(1, 255)),
            st.builds(lambda e: Unary("not", e), inner),
            st.builds(lambda p, q: Select(p < q, p, q), inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=10)


@settings(max_examples=200)
@given(unsigned_expressions(), st.integers(0, 255), st.data())
def test_random_unsigned_arithmetic_wraps_alike(expr, top, data):
    values = {A: np.uint8(data.draw(st.integers(0, top))), B: np.uint8(7)}
    ranges = {A: (0, top), B: (7, 7)}
    before = evaluate(expr, values)
    assert evaluate(simplify(expr, ranges), values) == before
    low, high = bounds(expr, ranges)
    assert low <= int(before) <= high


def test_proofs_with_symbolic_sizes():
    ranges = {n: (0, None), i: (0, n // 32 - 1), j: (0, 31)}
    assert prove(i * 32 + j < n, ranges) is True
    assert prove(i * 32 + j >= n, ranges) is False
    sizes = {m: (1, 1 << 31), n: (1, 1 << 31)}
    ranges = {**sizes, i: (0, m - 1), j: (0, n - 1)}
    assert prove(i * n + j < m * n, ranges) is True
    assert prove(i + j < m, ranges) is None
    assert prove(binary("min", i, j) < m, ranges) is True
    assert prove(binary("max", i, j) < m, ranges) is None
    assert prove(k % n < n, ranges) is True
    assert prove(Const(True, boolean) & (i < m), ranges) is True


@pytest.mark.parametrize("first", [2, 6, 8])
@pytest.mark.parametrize("second", [3, 4, 5])
def test_bounds_of_what_two_tiles_leave(first, second):
    rest = n - n // first * first
    left = rest - rest // second * second
    low, high = bounds(left, {n: (0, 1 << 40)})
    assert low == 0
    assert max(x % first % second for x in range(first)) <= high < second
    assert bounds(i // left, {n: (0, 1 << 40), i: (0, left * 12 - 1)})[1] < second * 12


def test_ranges_of_other_integers_are_used_where_nothing_wraps():
    byte = Var("b", u8)
    assert bounds(byte * 2, {byte: (3, 100)}) == (6, 200)
    assert bounds(byte * 2, {byte: (3, 200)}) == (0, 255)
    assert bounds(Cast(i64, byte) * 2) == (0, 510)
    assert prove(byte < 10, {byte: (0, 9)}) is True


def test_a_finer_quotient_is_bounded_by_a_coarser_one() -> None:
    n = Var("n")
    ranges = {n: (0, None)}
    assert prove(n // 8192 * 4096 <= n // 2, ranges)
    assert prove(n // 2 < n // 8192 * 4096 + 4096, ranges)
    assert prove(n // 8192 * 4096 < n // 2, ranges) is None
    assert simplify(Binary("min", n // 2 // 64 * 64, n // 2), ranges) == n // 128 * 64
