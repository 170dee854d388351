"""The text of nodes: fewest parentheses, exact literals, every statement."""

from __future__ import annotations

import pytest

from tensorlang.ir import nodes
from tensorlang.ir.dtypes import bf16, boolean, f16, f32, f64, i8, i64, u32, u64
from tensorlang.ir.nodes import (
    Binary,
    Block,
    Buffer,
    Const,
    For,
    Function,
    If,
    IndexMap,
    Param,
    Ramp,
    Seq,
    Store,
    Unary,
    Var,
    as_expr,
)
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show

A, B, C = Var("a"), Var("b"), Var("c")
P, Q = Var("p", boolean), Var("q", boolean)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (A + B + C, "a + b + c"),
        (A + (B + C), "a + (b + c)"),
        (A - (B - C), "a - (b - c)"),
        ((A + B) * C, "(a + b) * c"),
        (A + B * C, "a + b * c"),
        (A * (B // C), "a * (b // c)"),
        (A // B % C, "a // b % c"),
        (-A * B, "-a * b"),
        (-(A * B), "-(a * b)"),
        (Unary("neg", -A), "--a"),
        (~(A & B) | C ^ A, "~(a & b) | c ^ a"),
        (A << B + C, "a << b + c"),
        ((A << B) + C, "(a << b) + c"),
        ((A < B) & (B < C), "(a < b) & (b < c)"),
        (A + B < C * 2, "a + b < c * 2"),
        ((A < B).equal(P), "(a < b) == p"),
        (nodes.Select(P & Q, A, B), "select(p & q, a, b)"),
        (Binary("add", A * B, C, contract=True), "contract(a * b + c)"),
        (Binary("min", A, B + C), "min(a, b + c)"),
        (Binary("max", A, B, contract=True), "contract(max(a, b))"),
        (abs_of := Unary("abs", A - B), "abs(a - b)"),
        (abs_of * 2, "abs(a - b) * 2"),
        (nodes.Cast(f32, A + B), "cast(f32, a + b)"),
        (nodes.Splat(A, 4) * Ramp(B, C, 4), "splat(a, 4) * ramp(b, c, 4)"),
        (nodes.Shuffle((nodes.Splat(A, 2),), (1,)), "splat(a, 2)[1:2]"),
        (nodes.Extract(nodes.Splat(A, 2), 1), "extract(splat(a, 2), 1)"),
        (nodes.LaneReduce("max", nodes.Splat(A, 2)), 'lane_reduce("max", splat(a, 2))'),
    ],
)
def test_expressions_carry_the_fewest_parentheses(expr, text):
    assert show(expr) == text


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (3, i64, "3"),
        (-3, i64, "-3"),
        (3, u32, "u32(3)"),
        (-128, i8, "i8(-128)"),
        (2**64 - 1, u64, "u64(18446744073709551615)"),
        (True, boolean, "True"),
        (1.5, f32, "1.5"),
        (0.1, f32, "0.1"),
        (-0.0, f32, "-0.0"),
        (0.1, f64, "f64(0.1)"),
        (0.1, f16, "f16(0.1)"),
        (0.1, bf16, "bf16(0.1)"),
        (65504.0, f16, "f16(65504.0)"),
        (1e-45, f32, "1.4013e-45"),
        (3.4028234663852886e38, f32, "3.4028235e+38"),
        (float("inf"), f32, 'f32("inf")'),
        (float("-inf"), bf16, 'bf16("-inf")'),
        (float("nan"), f64, 'f64("nan")'),
    ],
)
def test_literals_are_short_and_exact(value, dtype, text):
    assert show(Const(value, dtype)) == text


def test_a_negated_literal_is_not_a_negative_one():
    assert show(Unary("neg", Const(3, i64))) == "-i64(3)"
    assert show(Unary("neg", Const(-3, i64))) == "-i64(-3)"
    assert show(Unary("neg", Const(1.5, f32))) == "-f32(1.5)"


def test_buffers_show_scope_and_layout_only_where_unusual():
    i, j = Var("i"), Var("j")
    swap = IndexMap((i, j), (j, i))
    assert show(Buffer("x", f32, (Var("n"), 4))) == "x: f32[n, 4]"
    assert show(Buffer("x", f32, ())) == "x: f32[()]"
    tile = Buffer("t", f32, (2, 4), "register", swap)
    assert show(nodes.Alloc(tile)) == (
        't = alloc(f32[2, 4], scope="register", layout=lambda i, j: (j, i))'
    )
    given = Param(Buffer("x", f32, (2, 4), layout=swap), "inout")
    assert show(given) == "x: InOut[buffer(f32[2, 4], layout=lambda i, j: (j, i))]"
    assert show(IndexMap((i,), (i // 4,))) == "lambda i: i // 4"


def test_else_if_chains_stay_flat():
    s = Buffer("s", f32, ())
    stores = [Store(s, (), as_expr(float(n))) for n in range(3)]
    chain = If(P, stores[0], If(Q, stores[1], stores[2]))
    assert show(chain).splitlines() == [
        "if p:",
        "    s[()] = 0.0",
        "elif q:",
        "    s[()] = 1.0",
        "else:",
        "    s[()] = 2.0",
    ]


def test_wide_headers_take_a_line_for_each_argument():
    axes = tuple(
        nodes.Axis(Var(f"v{n}"), "spatial", as_expr(1000), Var(f"some_long_name_{n}"))
        for n in range(3)
    )
    lines = show(Block("wide", axes, Seq(()))).splitlines()
    assert lines[:2] == ["with block(", '    "wide",']
    assert lines[-2:] == ["):", "    pass"]


EVERY_STATEMENT = """\
@reducer(commutative=False)
def first(a_at: i64, a: f32, b_at: i64, b: f32):
    identity(9223372036854775807, 0.0)
    return select(a_at <= b_at, a_at, b_at), select(a_at <= b_at, a, b)


def every(x: f32[n, 8], y: Out[f32[n]], s: InOut[f32[4]], *, n: i64, rate: f32):
    at = alloc(i64[n])
    tile = alloc(f32[8], scope="register", layout=lambda i: (i // 4, i % 4))
    for i in parallel(n):
        for k in range(8):
            with block("first", vi=spatial(n, i), vk=reduction(8, k), where=i * 2 < n):
                with init():
                    at[vi] = 9223372036854775807
                    y[vi] = f32("-inf")
                reduce(first, (at[vi], y[vi]), (vk, x[vi, vk]))
    for j in vectorized(8):
        tile[j] = rate
    for u in unrolled(4):
        h: u32 = bitcast(u32, tile[u]) >> u32(3)
        if (h < u32(9)) & ~(u == 2):
            atomic("add", s[u], cast(f32, h))
        else:
            pass
    store(tile[ramp(0, 1, 8)], splat(rate, 8), mask=ramp(0, 1, 8) < splat(n, 8))
    tile[ramp(0, 1, 4)] = load(tile[ramp(4, 1, 4)], hints=("aligned", "nontemporal"))
    while s[0] > 1.0:
        s[0] = contract(s[0] * rate - 1.0)
    for b in bound(4, "block.x"):
        with block("team", vb=disjoint(4, b), scope="warp"):
            s[vb] = fma(rate, rate, 1.0)
    barrier("team")
    evaluate(prefetch(x[0, 0]))
"""


def test_every_statement_keeps_its_text(golden):
    func = parse(EVERY_STATEMENT)
    assert show(func) == EVERY_STATEMENT
    golden(show(func))


def test_repr_of_a_node_is_its_text():
    assert repr(A + 1) == "a + 1"


def test_a_lowered_function_of_many_nodes_prints_and_parses():
    x = Buffer("x", f32, (4096,))
    stores = [Store(x, (as_expr(n),), as_expr(float(n)) * 2.0) for n in range(2500)]
    func = Function(
        "big", (Param(x, "out"),), (), For(A, as_expr(1), "serial", Seq(tuple(stores)))
    )
    text = show(func)
    assert len(text.splitlines()) == 2502
    assert parse(text) == func
