"""Dropout as IR: the mask is drawn where it is used, and never stored."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.ir.dtypes import as_dtype, f32, f64, i64, u32
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Param,
    Select,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ops.random.definitions import Draw, N
from tensorlang.ops.random.impls import elements_per_hash
from tensorlang.ops.random.integer_definitions import children_of
from tensorlang.ops.random.nests import Elements, Nest, statements
from tensorlang.workload import Workload

_WIDTH = 32  # bits a mask element is compared with, whatever the type of x


def dropout(workload: Workload) -> Function:
    """`out[i] = x[i] / keep` where the bits of element i are at most `limit`, else 0.

    `limit` stands for the comparison `uniform < 1 - rate`. The gradient is the same
    function of the gradient of the result.
    """
    draw, out, x, scalars = _parts(workload)
    key = draw.key()

    def elements(index: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        return draw.elements(key, _WIDTH, index, rows)

    return Function(
        workload.operator.replace(".", "_"),
        (Param(key, "in"), Param(x, "in"), Param(out, "out")),
        (*draw.scalars, *scalars, *draw.sizes()),
        _masked(draw, elements, out, x, scalars),
    )


def dropout_train(workload: Workload) -> Function:
    """The same with a state threaded through: the key is split within the kernel.

    The first child is the next state, the second draws the mask.
    """
    draw, out, x, scalars = _parts(workload)
    key = draw.key()
    state = Buffer("next", draw.word, key.shape)
    children = Buffer("children", draw.word, (as_expr(2), *key.shape))

    def elements(index: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        return draw.elements(children, _WIDTH, index, (as_expr(1), *rows))

    return Function(
        workload.operator.replace(".", "_"),
        (Param(key, "in"), Param(x, "in"), Param(out, "out"), Param(state, "out")),
        (*draw.scalars, *scalars, *draw.sizes()),
        seq(
            Alloc(children),
            statements(children_of(draw, key, children)),
            _first_child(children, state),
            _masked(draw, elements, out, x, scalars),
        ),
    )


def _parts(workload: Workload) -> tuple[Draw, Buffer, Buffer, tuple[Var, Var]]:
    draw = Draw.of(workload.named)
    dtype = as_dtype(workload.dtypes[0])
    shape = (*draw.rows, N)
    keep = Var("keep", f64 if dtype == f64 else f32)
    return (
        draw,
        Buffer("out", dtype, shape),
        Buffer("x", dtype, shape),
        (
            Var("limit", u32),
            keep,
        ),
    )


def _masked(
    draw: Draw,
    elements: Elements,
    out: Buffer,
    x: Buffer,
    scalars: tuple[Var, Var],
) -> Stmt:
    limit, keep = scalars

    def value(bits: Expr, given: Expr) -> Expr:
        scaled = given / keep.cast(given.dtype)
        return Select(bits <= limit, scaled, Const(0.0, given.dtype))

    per = elements_per_hash(draw.how, draw.stream, _WIDTH)
    return statements(Nest(out, draw.rows, N, per, elements, value, (x,)))


def _first_child(children: Buffer, state: Buffer) -> Stmt:
    word = Var("taken", i64)
    store = Store(state, (word,), children[0, word])
    return For(word, state.shape[0], "serial", store)
