"""Rules of naming and scope, each broken once."""

from __future__ import annotations

import re

import pytest

from tensorlang.errors import IRError
from tensorlang.ir import nodes
from tensorlang.ir.dtypes import f32, i32
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Param,
    Seq,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.verification.verifier import verify

X, Y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("for n in range(4):\n    pass", "loop 'n'"),
        ("for i in range(4):\n    for i in range(4):\n        pass", "loop 'i'"),
        ("n: i64 = 3", "let 'n'"),
        ("h: i64 = 3\nh: i64 = 4", "let 'h'"),
        ("x = alloc(f32[4])", "buffer 'x'"),
        ("for x in range(4):\n    pass", "loop 'x'"),
        (
            "for i in range(4):\n    with block('b', i=spatial(4, i)):\n        pass",
            "axis",
        ),
    ],
)
def test_a_name_is_taken_once_along_a_path(refused, body, what):
    refused(body, f"{what}.* has the name of something around it; rename it")


def test_siblings_may_share_names(accepted):
    accepted("for i in range(4):\n    y[i] = c\nfor i in range(4):\n    z[i] = y[i]")


def test_two_parameters_of_one_name_are_refused(refused):
    refused("pass", "buffer 'a' has the name", "def f(a: f32[1], a: f32[1]):\n")


def test_blocks_have_their_own_names(refused):
    block = "with block('b', v=spatial(8, 0)):\n    y[v] = c\n"
    refused(block + block.replace("v", "w"), "two blocks are called 'b'; rename one")


@pytest.mark.parametrize("name", ["a b", "a*/", "é", "while", "1a", "", "__a"])
def test_names_are_plain_identifiers_wherever_they_stand(tree_refused, name):
    zero = as_expr(0)
    for body in (
        Let(Var(name), zero),
        For(Var(name), zero, "serial", Seq(())),
        Alloc(Buffer(name, f32, (8,))),
        Block(name, (), Seq(())),
        Block("b", (Axis(Var(name), "spatial", zero, zero),), Seq(())),
    ):
        tree_refused(body, f"(loop|let|axis|buffer|block).*{re.escape(repr(name))}")
    for func in (
        Function(name, (), (), Seq(())),
        Function("f", (), (Var(name),), Seq(())),
        Function("f", (Param(Buffer(name, f32, (8,)), "in"),), (), Seq(())),
    ):
        with pytest.raises(IRError, match=re.escape(repr(name))):
            verify(func)


def test_an_axis_is_not_called_like_an_argument_of_block(tree_refused):
    axis = Axis(Var("where"), "spatial", as_expr(8), as_expr(0))
    tree_refused(Block("b", (axis,), Seq(())), "an axis cannot be called 'where'")


def test_a_variable_is_bound_before_it_is_used(tree_refused):
    tree_refused(Store(Y, (Var("i"),), as_expr(1.0)), "'i' is bound by nothing around")


def test_a_let_ends_with_its_sequence(tree_refused):
    inner = If(
        Var("n") > 0,
        seq(Let(Var("h"), as_expr(3)), Store(Y, (Var("h"),), as_expr(1.0))),
    )
    tree_refused(
        seq(inner, Store(Y, (Var("h"),), as_expr(1.0))), "'h' is bound by nothing"
    )


def test_a_variable_keeps_its_type(tree_refused):
    wrong = nodes.Cast(f32, Var("n", i32))
    tree_refused(
        Store(Y, (as_expr(0),), wrong), "'n' is i64 where it is bound but .* i32"
    )


def test_a_block_does_not_see_the_loops_around_it(refused):
    refused(
        "for i in range(8):\n    with block('b', v=spatial(8, i)):\n        y[i] = c",
        "block 'b': 'i' is not an axis of this block; give the block an axis of it",
    )


def test_a_block_does_not_see_what_depends_on_a_loop(refused, accepted):
    refused(
        "for i in range(8):\n    h: i64 = i * 2\n"
        "    with block('b', v=spatial(8, i)):\n        y[h] = c",
        "block 'b': 'h' is not an axis of this block",
    )
    accepted(
        "h: i64 = n * 2\nwith block('b', v=spatial(8, 0)):\n    y[v] = cast(f32, h)"
    )


def test_init_does_not_see_the_reduction_axes(refused):
    refused(
        "for k in range(8):\n"
        "    with block('b', v=spatial(8, 0), k1=reduction(8, k)):\n"
        "        with init():\n            y[v] = x[k1]\n"
        "        reduce(sum, y[v], x[k1])",
        "block 'b': 'k1' is a reduction axis, which init cannot see",
    )


def test_a_buffer_is_declared_around_its_use(tree_refused):
    stray = Buffer("t", f32, (8,))
    store = Store(stray, (as_expr(0),), as_expr(1.0))
    tree_refused(store, "buffer 't' is neither a parameter nor allocated")
    tree_refused(seq(If(Var("n") > 0, Alloc(stray)), store), "buffer 't' is neither")


def test_a_buffer_is_the_same_wherever_it_is_named(tree_refused):
    other = Buffer("y", f32, (9,))
    store = Store(other, (as_expr(0),), as_expr(1.0))
    tree_refused(store, r"'y' is used as another buffer .*f32\[9\] and y: f32\[8\]")
