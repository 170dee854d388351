"""Rules of types, lanes, intrinsics and memory, each broken once."""

from __future__ import annotations

import pytest

from tensorlang.errors import IRError
from tensorlang.ir import nodes
from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import boolean, f32, i32, u32
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Call,
    Const,
    Evaluate,
    For,
    Function,
    If,
    LaneReduce,
    Load,
    Ramp,
    Reduce,
    Seq,
    Splat,
    Store,
    Var,
    While,
    as_expr,
    seq,
)
from tensorlang.ir.verification.verifier import verify

X, Y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))


def test_conditions_are_single_bools(tree_refused):
    vector = Splat(Const(True, boolean), 4)
    for cond in (Var("n"), vector):
        for body in (
            If(cond, Seq(())),
            While(cond, Seq(())),
            Block("b", (), Seq(()), cond),
        ):
            tree_refused(body, "the condition of .* is .*; it must be one bool")


def test_masks_have_the_lanes_of_the_access(tree_refused):
    at, mask = Ramp(as_expr(0), as_expr(1), 4), Splat(Const(True, boolean), 8)
    tree_refused(Store(Y, (at,), Splat(as_expr(1.0), 4), mask), "mixes lanes .1, 4, 8.")
    tree_refused(Store(Y, (as_expr(0),), as_expr(1.0), mask), "1 lanes has a mask of 8")
    load = Load(X, (as_expr(0),), mask)
    tree_refused(
        Store(Y, (as_expr(0),), load), "1 lanes has a mask of 8; use a mask of 1"
    )


def test_indices_agree_in_lanes(tree_refused):
    square = Buffer("t", f32, (8, 8))
    at = tuple(Ramp(as_expr(0), as_expr(1), lanes) for lanes in (2, 4))
    body = seq(Alloc(square), Store(square, at, Splat(as_expr(1.0), 4)))
    tree_refused(body, "an access to 't' mixes lanes .1, 2, 4.")


def test_there_are_as_many_values_as_places(tree_refused):
    at = Ramp(as_expr(0), as_expr(1), 4)
    message = "'y' is written at 4 places with 1 values; splat the value"
    tree_refused(Store(Y, (at,), as_expr(1.0)), message)
    tree_refused(nodes.AtomicUpdate("add", Y, (at,), as_expr(1.0)), message)
    reducer = builtin("sum", (f32,))
    tree_refused(Reduce(reducer, (Y,), (at,), (as_expr(1.0),)), message)


def test_vectors_have_a_bounded_number_of_lanes(tree_refused):
    at = Ramp(as_expr(0), as_expr(0), 1 << 13)
    store = Store(Y, (at,), Splat(as_expr(1.0), 1 << 13))
    tree_refused(store, "i64x8192 has too many lanes; at most 4096")


def test_loops_and_axes_count_in_integers(tree_refused):
    body = Seq(())
    tree_refused(
        For(Var("i", f32), as_expr(1.0), "serial", body), "counts in f32; use an"
    )
    axis = Axis(Var("v", i32), "spatial", as_expr(4), Const(0, i32))
    tree_refused(
        Block("b", (axis,), body), "axis 'v' of block 'b' is i32 with an extent of i64"
    )


def test_scalars_are_single_numbers():
    for dtype in (boolean, f32.vector(4)):
        with pytest.raises(
            IRError, match=r"scalar 's' is .*; use one integer or float"
        ):
            verify(Function("f", (), (Var("s", dtype),), Seq(())))


def test_folding_operations_fit_the_element_type(refused, tree_refused):
    fold = LaneReduce("xor", Splat(as_expr(1.0), 4))
    tree_refused(Store(Y, (as_expr(0),), fold), "'xor' does not reduce f32")
    refused('atomic("and", z[0], c)', "'and' does not reduce f32; choose another")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call("system", (), f32), "'system' is not an intrinsic"),
        (Call("exp", (), f32), "exp takes 1 arguments, not 0"),
        (Call("exp", (Const(1, u32),), f32), "exp needs floats, got u32"),
        (
            Call("exp", (as_expr(1.0),), u32),
            "exp gives f32 here, but the call says u32",
        ),
    ],
)
def test_calls_are_of_the_table(tree_refused, call, message):
    tree_refused(Evaluate(call), message)
    tree_refused(Evaluate(nodes.Cast(f32, call)), message)


def test_a_prefetch_takes_a_load(tree_refused):
    call = Call("prefetch", (as_expr(1.0),), boolean)
    tree_refused(Evaluate(call), "prefetch takes a load, such as prefetch")


def test_effects_stand_alone(refused, accepted):
    refused("y[0] = select(check(n > 0, 3), c, c)", "check has an effect")
    accepted("evaluate(check(n > 0, 3))")


def test_an_input_is_not_written(refused):
    message = "'x' is an 'in' parameter and is written; declare it Out or InOut"
    refused("x[0] = c", message)
    refused('atomic("add", x[0], c)', message)
    refused("with block('b', k=reduction(8, 0)):\n    reduce(sum, x[0], c)", message)


def test_nothing_is_read_before_it_is_written(refused):
    message = "is read before anything wrote it; write it first"
    refused("z[0] = y[0]", f"'y' {message}")
    refused("t = alloc(f32[4])\nz[0] = t[0]", f"'t' {message}")
    refused("y[0] = y[0] + c", f"'y' {message}")
    refused('atomic("add", y[0], c)', f"'y' {message}")
    refused(
        "with block('b', v=spatial(8, 0)):\n    reduce(sum, y[v], c)", f"'y' {message}"
    )
    refused("for i in range(8):\n    y[i] = y[i] + c", f"'y' {message}")


def test_a_name_used_again_does_not_inherit_what_was_written(refused):
    branch = "if n > {}:\n    t = alloc(f32[4])\n"
    body = branch.format(0) + "    t[0] = c\n" + branch.format(1) + "    z[0] = t[0]"
    refused(body, "'t' is read before anything wrote it")


def test_what_may_have_been_written_may_be_read(accepted):
    accepted("y[0] = c\nz[0] = y[0]")
    accepted("evaluate(prefetch(y[0]))")
    accepted(
        "with block('b', v=spatial(8, 0), k=reduction(8, 0)):\n    reduce(sum, y[v], c)"
    )
    accepted("for i in range(8):\n    if i > 0:\n        z[i] = y[i - 1]\n    y[i] = c")


def test_an_empty_init_says_that_the_state_was_set(refused, accepted):
    update = (
        "with block('b', v=spatial(8, 0), k=reduction(8, 0)):\n"
        "    with init():\n        pass\n    reduce(sum, y[v], c)"
    )
    refused(update, "'y' is read before anything wrote it")
    accepted(f"y[0] = 0.0\n{update}")


def test_a_block_updates_in_place_only_where_it_reads(refused, accepted):
    block = (
        "for i in range(8):\n    with block('b', v={}(8, i)):\n        z[v] = z[{}] + c"
    )
    refused(
        block.format("spatial", "7 - v"),
        r"block 'b' updates 'z' in place but reads z\[7 - v\], another element",
    )
    accepted(block.format("spatial", "v"))
    accepted(block.format("ordered", "7 - v"))
