"""Rules of blocks, reducers, loops, layouts and sizes, each broken once."""

from __future__ import annotations

import pytest

from tensorlang.errors import DTypeError, IRError
from tensorlang.ir import nodes
from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import f32, i64
from tensorlang.ir.nodes import (
    Axis,
    Barrier,
    Block,
    Buffer,
    For,
    Function,
    IndexMap,
    Param,
    Reduce,
    Reducer,
    Seq,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.layouts import layout_fault
from tensorlang.ir.verification.verifier import verify

X, Y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))


def test_a_reduction_axis_needs_a_reduction(refused):
    refused(
        "with block('b', k=reduction(8, 0)):\n    y[0] = c",
        "block 'b' has the reduction axis 'k' but no reduce and no init",
    )


def test_a_block_folds_into_a_state_once(refused):
    twice = "    reduce(sum, y[0], c)\n    reduce(sum, y[0], c)"
    refused(
        f"with block('b', k=reduction(8, 0)):\n{twice}",
        "block 'b' folds into 'y' twice",
    )


def test_a_state_does_not_move_along_the_reduction(refused):
    refused(
        "with block('b', k=reduction(8, 0)):\n    reduce(sum, y[k], c)",
        "the state 'y' is indexed by the reduction axis 'k'; index it by spatial axes",
    )


def _reducer(**changes):
    a, b = Var("a", f32), Var("b", f32)
    given = {
        "name": "mine",
        "left": (a,),
        "right": (b,),
        "identity": (as_expr(0.0),),
        "combine": (a + b,),
    }
    return Reducer(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "reducer: 'a b' is not made of"),
        ({"right": (Var("a", f32),)}, "reducer 'mine' uses one name twice"),
        ({"combine": (Var("n", f32),)}, "reducer 'mine' uses 'n', which is not of its"),
        (
            {"identity": (Var("a", f32),)},
            "reducer 'mine' uses 'a', which is not of its",
        ),
        ({"combine": (X[0],)}, "reducer 'mine' reads memory; pass it as a value"),
        (
            {"left": (Var("right", f32),)},
            "reducer 'mine' uses 'a', which is not of its",
        ),
    ],
)
def test_reducers_are_closed(tree_refused, changes, message):
    reduce = Reduce(_reducer(**changes), (Y,), (as_expr(0),), (as_expr(1.0),))
    block = Block("b", (Axis(Var("k"), "reduction", as_expr(8), as_expr(0)),), reduce)
    tree_refused(block, message)


def test_a_reducer_has_one_meaning(tree_refused):
    other = _reducer(name="sum", identity=(as_expr(1.0),))
    axis = Axis(Var("k"), "reduction", as_expr(8), as_expr(0))
    nests = [
        Block(f"b{n}", (axis,), Reduce(r, (Y,), (as_expr(0),), (as_expr(1.0),)))
        for n, r in enumerate((other, builtin("sum", (f32,))))
    ]
    tree_refused(seq(nests), "two reducers are called 'sum'; rename one of them")


def test_thread_indices_are_words_and_bound_once(refused, tree_refused):
    loop = For(Var("i"), as_expr(4), "bound", Seq(()), "thread.x*/")
    tree_refused(loop, "bound to 'thread.x.*'; use an index such as 'block.x'")
    refused(
        "for i in bound(4, 'thread.x'):\n"
        "    for j in bound(4, 'thread.x'):\n        pass",
        "loops 'i' and 'j' are both bound to 'thread.x'; bind one of them",
    )


def test_barriers_are_of_known_groups(tree_refused):
    tree_refused(Barrier("room"), "a barrier of 'room'; use team, thread, warp")


def test_a_sequence_of_one_statement_is_refused(tree_refused):
    tree_refused(Seq((Barrier(),)), "a Seq of one statement; build it with seq")


def test_dimensions_are_possible(refused, accepted):
    refused("t = alloc(f32[4, -1])", "'t' has a dimension below 0")
    refused("t = alloc(f32[16777216, 33554432])", "elements; at most 2.48")
    refused("for i in range(281474976710657):\n    pass", "'i' runs beyond 2.48")
    accepted("t = alloc(f32[0, 4])")


def test_parameters_are_the_callers(refused):
    memory = "def f(x: buffer(f32[4], scope='shared')):\n"
    refused("pass", "parameter 'x' lives in 'shared' memory", memory)
    at = Buffer("at", i64, (4,))
    params = tuple(Param(b, "in") for b in (at, Buffer("x", f32, (at[0],))))
    with pytest.raises(IRError, match="the shape of parameter 'x' reads memory"):
        verify(Function("f", params, (), Seq(())))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("lambda i: i", "takes 1 indices of a buffer with 2"),
        ("lambda i, j: i", "does not use 'j', so two elements share a place"),
        ("lambda i, j: (i // 2, j)", "sends 32 elements to 16 places"),
        ("lambda i, j: (i - 1, j)", "has places below 0"),
        ("lambda i, j: (i // (j - j), j)", "divides by zero"),
        (
            "lambda i, j: (cast(i64, cast(u8, i)), j)",
            "holds Cast; use integer arithmetic",
        ),
        ("lambda i, j: ()", "does not use 'i'"),
    ],
)
def test_a_layout_is_one_to_one(refused, layout, message):
    refused(f"t = alloc(f32[4, 8], layout={layout})", f"the layout of 't' {message}")


@pytest.mark.parametrize(
    "layout",
    [
        "lambda i, j: (j, i)",
        "lambda i, j: i * 8 + j",
        "lambda i, j: (i, j // 4, j % 4)",
        "lambda i, j: (i, j ^ i)",
        "lambda i, j: (i, select(i > 1, j, 7 - j), min(i, 2), max(j, 0))",
    ],
)
def test_a_one_to_one_layout_is_accepted(accepted, layout):
    accepted(f"t = alloc(f32[4, 8], layout={layout})")


def test_layouts_of_symbolic_shapes_are_checked_by_their_form(refused, accepted):
    accepted("t = alloc(f32[n, 8], layout=lambda i, j: (j, i))")
    refused("t = alloc(f32[n, 8], layout=lambda i, j: (j,))", "does not use 'i'")


def test_a_layout_uses_its_own_indices():
    i = Var("i")
    assert layout_fault(IndexMap((i,), (i + Var("n"),)), (as_expr(4),)) == (
        "uses 'n', which is none of its indices"
    )
    assert layout_fault(IndexMap((i, i), (i,)), (as_expr(4),) * 2) == (
        "names one index twice"
    )


def test_depth_and_size_are_bounded(tree_refused):
    value = X[0]
    for _ in range(200):
        value = value * 2.0
    tree_refused(Store(Y, (as_expr(0),), value), "nests deeper than 128; name parts")
    body: nodes.Stmt = Seq(())
    for n in range(70):
        body = For(Var(f"i{n}"), as_expr(1), "serial", body)
    tree_refused(body, "statements nest deeper than 60; flatten them")
    shared = X[0]
    for _ in range(40):
        shared = shared + shared
    tree_refused(Store(Y, (as_expr(0),), shared), "more than 100000 nodes; name what")


def test_types_are_checked_where_nodes_are_built():
    with pytest.raises(DTypeError, match="'add' needs operands of one type"):
        nodes.Binary("add", as_expr(1), as_expr(1.0))


@pytest.mark.parametrize("scope", ["register", "shared"])
def test_sizes_that_vary_are_for_global_and_private_memory(scope, accepted, refused):
    body = 't = alloc(f32[n], scope="SCOPE")\ny[0] = 1.0'
    refused(body.replace("SCOPE", scope), "'t' is in .* memory and its size varies")
    accepted(body.replace("SCOPE", "private"))


@pytest.mark.parametrize("index", [-1, 4])
def test_a_constant_index_lies_in_its_dimension(index: int) -> None:
    text = f"def f(y: Out[f32[4]]):\n    y[{index}] = 0.0\n"
    with pytest.raises(IRError, match=f"'y' is accessed at {index}, outside"):
        verify(parse(text))
