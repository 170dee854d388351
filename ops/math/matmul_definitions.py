"""Matrix products as loops: [batch, rows, columns]; a batch of 1 serves all."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.ir import compute, reduce_axis
from tensorlang.ir.frontend import ReduceAxis, Tensor
from tensorlang.ir.frontend import sum as total
from tensorlang.ir.nodes import Const, Expr
from tensorlang.ops.assembling import stored, wide

Index = Expr | ReduceAxis


def matmul(a: Tensor, b: Tensor, *, transpose_a: bool, transpose_b: bool) -> Tensor:
    """y[t, i, j] = the sum over k of a[t, i, k] b[t, k, j]."""
    left, right = _reader(a, transpose_a), _reader(b, transpose_b)
    m, depth = _matrix(a, transpose_a)
    n = _matrix(b, transpose_b)[1]
    k = reduce_axis(depth, "k")
    products = compute(
        (_batch(a, b), m, n),
        lambda t, i, j: total(left(t, i, k) * right(t, k, j), k),
        "products",
    )
    return _rounded(products, a, "y")


def matmul_grad(
    dy: Tensor, a: Tensor, b: Tensor, *, transpose_a: bool, transpose_b: bool
) -> tuple[Tensor, Tensor]:
    """Both: dy b^T and a^T dy; one matrix that serves a batch gets the sum."""
    left, right = _reader(a, transpose_a), _reader(b, transpose_b)
    upper = _reader(dy, transposed=False)
    whole = dy.shape[0]
    m, n = dy.shape[1:]

    def gradient(
        x: Tensor, depth: Expr, value: Callable[..., Expr], name: str
    ) -> Tensor:
        summed = isinstance(x.shape[0], Const) and not isinstance(whole, Const)
        r = reduce_axis(depth, f"r{name}")
        every = (reduce_axis(whole, f"t{name}"), r)
        sums = compute(
            x.shape,
            lambda t, p, q: (
                total(value(every[0] if summed else t, p, q, r), every)
                if summed
                else total(value(t, p, q, r), r)
            ),
            f"{name}_sum",
        )
        return _rounded(sums, x, name)

    def of_a(t: Index, i: Expr, k: Expr, j: Index) -> Expr:
        return upper(t, i, j) * right(t, k, j)

    def of_b(t: Index, k: Expr, j: Expr, i: Index) -> Expr:
        return left(t, i, k) * upper(t, i, j)

    da = gradient(a, n, _turned(of_a) if transpose_a else of_a, "da")
    db = gradient(b, m, _turned(of_b) if transpose_b else of_b, "db")
    return da, db


def _turned(value: Callable[..., Expr]) -> Callable[..., Expr]:
    return lambda t, p, q, r: value(t, q, p, r)


def _reader(x: Tensor, transposed: bool) -> Callable[..., Expr]:
    """The element (t, row, column) of a matrix that may lie transposed."""

    def read(t: Index, row: Index, column: Index) -> Expr:
        at = 0 if isinstance(x.shape[0], Const) else t
        return wide(x[at, column, row] if transposed else x[at, row, column])

    return read


def _matrix(x: Tensor, transposed: bool) -> tuple[Expr, Expr]:
    rows, columns = x.shape[1:]
    return (columns, rows) if transposed else (rows, columns)


def _batch(a: Tensor, b: Tensor) -> Expr:
    batch: Expr = (b if isinstance(a.shape[0], Const) else a).shape[0]
    return batch


def _rounded(sums: Tensor, like: Tensor, name: str) -> Tensor:
    made: Tensor = compute(sums.shape, lambda *i: stored(sums[i], like.dtype), name)
    return made
