"""Rules of index arithmetic hold of integers that wrap: of all pairs of 8 bits.

Index arithmetic is i64. Here its modules are told that it is i8, so that every rule is
held against the interpreter's arithmetic on everything there is.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.ir.dtypes import i8, i32, i64
from tensorlang.ir.integers import bounds, division, known, polynomials
from tensorlang.ir.integers.bounds import prove
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.nodes import (
    COMPARISONS,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Function,
    Param,
    Ramp,
    Select,
    Seq,
    Splat,
    Unary,
    Var,
    as_expr,
    binary,
)
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification import conditions, lanes, rules
from tensorlang.ir.simplification.simplify import simplify

MODULES = (bounds, conditions, division, known, lanes, polynomials, rules)
X, Y = Var("x", i8), Var("y", i8)
ALL = np.arange(-128, 128).astype(np.int8)
PAIRS = {X: np.repeat(ALL, 256), Y: np.tile(ALL, 256)}
NUMBERS = (-128, -127, -64, -7, -2, -1, 0, 1, 2, 3, 8, 63, 64, 100, 127)


@pytest.fixture
def short(monkeypatch):
    """Index arithmetic of 8 bits."""
    for module in MODULES:
        if hasattr(module, "i64"):
            monkeypatch.setattr(module, "i64", i8)
    monkeypatch.setattr(known, "_I64", i8.limits)
    monkeypatch.setattr(division, "_MOST", i8.limits[1])


def number(value: int) -> Const:
    return Const(value, i8)


def terms(of: Expr, numbers=NUMBERS) -> list[Expr]:
    """What one operation makes of a number, and of a constant."""
    found: list[Expr] = [of, -of, Unary("abs", of), ~of]
    for op in ("add", "sub", "mul", "min", "max", "and", "or", "xor"):
        found += [binary(op, of, c) for c in numbers]
    found += [number(c) - of for c in numbers]
    for op in ("floordiv", "floormod"):
        found += [binary(op, of, c) for c in numbers if c]
    return found + [binary(op, of, c) for op in ("shl", "shr") for c in range(8)]


def same(expr: Expr, ranges=None, values=PAIRS) -> None:
    """Simplified, an expression has the value that it had, and lies in its interval."""
    before = evaluate(expr, values)
    after = simplify(expr, ranges)
    np.testing.assert_array_equal(
        evaluate(after, values), before, f"{expr!r}: {after!r}"
    )
    low, high = bounds.bounds(expr, ranges)
    assert low <= int(before.min())
    assert int(before.max()) <= high


@pytest.mark.usefixtures("short")
def test_of_one_number():
    few = (-128, -3, 1, 2, 8, 127)
    every = [outer for inner in terms(X) for outer in terms(inner, few)]
    for outer in every[::3]:
        same(outer, values={X: ALL})


@pytest.mark.usefixtures("short")
def test_of_two_numbers():
    few = (-128, -2, 1, 8, 127)
    left, right = terms(X, few), terms(Y, few)
    picked = list(itertools.product(left, right))[::23]
    for n, (a, b) in enumerate(picked):
        op = ("add", "sub", "mul", "min", "max", "and", "shl", "shr")[n % 8]
        same(Binary(op, a, b))
        same(Compare(COMPARISONS[n % 6], a, b))
    for c in (-128, -8, -1, 1, 3, 8, 127):
        for a in (X + Y, X - Y, X * Y, X * c + Y, X * 8 + Y * 4 + c):
            same(a // c)
            same(a % c)
            same((a // 3 * 3 + a % 3) % number(abs(c)))
            same(Binary("floordiv", a, Binary("or", Y, number(1))) * (Y | 1))


@pytest.mark.usefixtures("short")
def test_of_comparisons():
    """Where a term moves to the other side, and both may wrap."""
    numbers = (-128, -100, -1, 0, 2, 127)
    sides = [(X, X), (X + Y, X), (X, Y), (X * 2, Y * 4), (-X, Y)]
    sides += [(a, number(0)) for a in (X * 8, X * 3, X - Y, X // 4, X % 8)]
    every = itertools.product(COMPARISONS, numbers, numbers, sides)
    for op, c, d, (a, b) in list(every)[::3]:
        same(Compare(op, a + c, b + d))


@pytest.mark.usefixtures("short")
def test_of_conditions():
    for c, d in itertools.product(NUMBERS[::2], NUMBERS[::2]):
        for a, b in ((X + c < d, c < X), (c > X * 2, d < X + 1), (Y + c > X, Y < X)):
            same(a & b)
            same(a | b)
            same(Select(a, Select(b, X, number(c)), number(c)))


def within(low, high, above=None):
    """The pairs with x in a range, and y in another that may end by x."""
    x, y = (PAIRS[var].astype(int) for var in (X, Y))
    above = (-128, 127) if above is None else above
    inside = (low <= x) & (x <= high) & (above[0] <= y)
    end = above[1]
    last = end if isinstance(end, int) else evaluate(end, PAIRS).astype(int)
    return {var: array[inside & (y <= last)] for var, array in PAIRS.items()}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((-3, 40), (0, X + 3)),
        ((27, 60), (0, X - 1)),
        ((-110, -90), (0, X * 2 - 1)),
        ((1, 127), (-128, 127)),
    ],
)
def test_of_what_has_ranges(x, y):
    ranges, values = {X: x, Y: y}, within(*x, y)
    few = (-128, -3, -1, 1, 2, 4, 127)
    for n, (a, b) in enumerate(itertools.product(terms(X, few), terms(Y, few))):
        if n % 97 == 0:
            same(a + b, ranges, values)
            same(Compare(COMPARISONS[n % 6], a, b), ranges, values)
            same((a * 4 + b) // 4, ranges, values)
            same((a * 6 + b) % 6, ranges, values)
    for c, op in itertools.product((0, 3, 100), COMPARISONS):
        more = X + c
        for a in (binary("min", more, 5), binary("max", more, 5), more // 4 * 4):
            for b in (X, Y, number(5), more):
                same(Compare(op, a, b), ranges, values)
        same(Compare(op, Select(Y < 3, more, X), number(c)), ranges, values)
        same(Compare(op, more % 16 + more // 16 % 16 * 16, Y), ranges, values)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("most", [3, 20, 127])
def test_of_quotients_by_what_varies(most):
    ranges, values = {X: (1, most)}, within(1, most)
    for c, d in itertools.product((-7, 0, 1, 5), (1, 2, 16)):
        for a in (X * Y + c, X * Y * d + Y, X * d + Y, (Y // X) * X + c, X * X + Y):
            same(a // X, ranges, values)
            same(a % X, ranges, values)
            same(Compare("lt", a // X * X, a), ranges, values)
            same(Compare("ge", a // X * X, a - X), ranges, values)


@pytest.mark.usefixtures("short")
def test_of_lanes():
    for stride, c, lane in itertools.product((-2, 1, 2, 8), (1, 2, 3, 8), (0, 3)):
        ramp = Ramp(X, number(stride), 4)
        vector = Splat(number(c), 4)
        for made in (ramp // vector, ramp % vector, ramp * vector, ramp + ramp):
            after = simplify(made)
            for value in (-128, -127, -5, 0, 3, 100, 125, 126, 127):
                at = {X: np.int8(value)}
                wanted = evaluate(lane_of(made, lane), at)
                assert evaluate(lane_of(after, lane), at) == wanted, (made, after)


def lane_of(vector: Expr, lane: int) -> Expr:
    match vector:
        case Ramp(base=base, stride=stride):
            return base + stride * lane
        case Splat(value=value):
            return value
        case Binary(op=op, a=a, b=b):
            return Binary(op, lane_of(a, lane), lane_of(b, lane))
    raise AssertionError(vector)


# ------------------------------------------------------------- the same of i64

A, B = Var("a"), Var("b")
ENDS = st.sampled_from([0, 1, -1, i64.limits[0], i64.limits[1], 1 << 62, -(1 << 62)])
NEAR = st.builds(lambda end, n: Const(end + n, i64), ENDS, st.integers(-9, 9))
WIDE = NEAR.map(lambda const: int(const.value))
DIVISORS = (1, 2, 3, 8, 10, 1 << 40, i64.limits[1])


@cache
def wide_expressions():
    leaves = st.sampled_from([A, B]) | NEAR

    def grow(inner):
        ops = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr")
        divisor = st.sampled_from(DIVISORS).map(as_expr)
        compared = st.builds(Compare, st.sampled_from(COMPARISONS), inner, inner)
        return st.one_of(
            st.builds(Binary, st.sampled_from(ops), inner, inner),
            st.builds(
                Binary, st.sampled_from(["floordiv", "floormod"]), inner, divisor
            ),
            st.builds(Unary, st.sampled_from(["neg", "abs", "not"]), inner),
            st.builds(Select, compared, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=10)


@settings(max_examples=200)
@given(wide_expressions(), wide_expressions(), WIDE, WIDE, st.sampled_from(COMPARISONS))
def test_wide_integers_wrap_alike(one, other, a, b, op):
    values = {A: np.int64(a), B: np.int64(b)}
    for ranges in (None, {A: (a - abs(a % 5), a), B: (None, b)}):
        for expr in (one, Compare(op, one, other)):
            wanted = evaluate(expr, values)
            assert evaluate(simplify(expr, ranges), values) == wanted
            low, high = bounds.bounds(expr, ranges)
            assert low <= int(wanted) <= high


# ------------------------------------------------------------- what is known of sizes

M, N = Var("m"), Var("n")
ROW, COLUMN = Var("i"), Var("j")


def test_sizes_are_what_memory_holds():
    shared = Function("f", (Param(Buffer("x", i64, (M, N)), "in"),), (M, N), Seq(()))
    apart = Function(
        "f",
        tuple(Param(Buffer(f"x{v.name}", i64, (v,)), "in") for v in (M, N)),
        (M, N),
        Seq(()),
    )
    loops = {ROW: (0, M - 1), COLUMN: (0, N - 1)}
    inside = ROW * N + COLUMN < M * N
    assert prove(inside, {**size_ranges(shared), **loops}) is True
    assert prove(inside, {**size_ranges(apart), **loops}) is None
    assert prove(ROW * 64 + 3 < M * 64, {**size_ranges(apart), **loops}) is True
    assert prove(N * N >= 0, size_ranges(apart)) is None
    assert prove(N * 1024 >= 0, size_ranges(apart)) is True


def test_an_end_that_may_wrap_is_none():
    free = Var("free")
    assert prove(free > ROW, {ROW: (0, free - 1)}) is True
    assert prove(free * 2 > ROW, {ROW: (0, free * 2 - 1)}) is None
    assert Known({ROW: (0, free * 2 - 1)}).interval(ROW) == (0, i64.limits[1])


def test_a_quotient_by_a_size_is_no_more_than_its_share():
    """What a group of threads starts from: `each * group`."""
    each, group, total = Var("each"), Var("group"), Var("total")
    ranges = {total: (0, 1 << 40), each: (1, 1 << 40), group: (0, (total - 1) // each)}
    assert prove(each * group < total, ranges) is True
    assert prove(each * group + each <= total, ranges) is None
    assert Known(ranges).exact(each * group * 4096) is True


def test_a_narrow_block_index_is_below_the_blocks():
    i = Var("b", i32)
    ranges = {N: (0, 1 << 20), i: (0, N - 1)}
    assert prove(Cast(i64, i) * 8 < N * 8, ranges) is True


def test_a_divisor_that_is_no_number_is_not_negative_or_a_fault():
    n, i = Var("n", i64), Var("i", i64)
    ranges = {n: (0, 1 << 40), i: (0, 1 << 40)}
    assert bounds.bounds(i // (n // 6) * 64, ranges) == (0, 1 << 46)
    assert bounds.bounds(i % (n // 6), ranges)[0] == 0
