"""Matrix products of any batch, and their gradients.

They are computed of `[batch, rows, columns]`, where a batch of 1 serves all. Batch and
rows of the result are open; depth and columns are part of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tensorlang import ir
from tensorlang.ops.definition import operator
from tensorlang.ops.signature import Floats

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor

_USUAL: Final = (1024, 1024)


@operator("math.matmul", aliases=("matmul",), shapes=(_USUAL,) * 2, whole=True)
def matmul(
    a: Floats, b: Floats, *, transpose_a: bool = False, transpose_b: bool = False
) -> Tensor:
    """The products of matrices: of the last two dimensions, the others are a batch.

    Args:
        a: Floats `[..., m, k]`, or `[..., k, m]` with `transpose_a`.
        b: `[..., k, n]`, or `[..., n, k]` with `transpose_b`; its batch is that of `a`,
            or one matrix serves all.
        transpose_a: Whether `a` is given transposed.
        transpose_b: Whether `b` is.
        out: Where the result goes, `[..., m, n]`.
    """
    batch, m, k, n = _sizes(a, b, transpose_a, transpose_b)
    shape, rows = (*batch, m, n), (m,)
    if b.ndim == 2 and not transpose_a:  # all rows of a, one after the other
        batch, rows = (), (*batch, m)
    left = _Matrices.of(a, batch, (ir.elements(rows), k), transpose_a)
    right = _Matrices.of(b, batch, (k, n), transpose_b)
    along = ir.reduce_axis(k, "k")
    products = ir.compute(
        (math.prod(batch), left.rows, n),
        lambda t, i, j: ir.sum(left(t, i, along) * right(t, along, j), along),
        "products",
    )
    return ir.reshaped(_rounded(products, a, "y"), shape)


@operator(
    "math.matmul_grad",
    shapes=(_USUAL,) * 3,
    whole=True,
    meanings=dict.fromkeys(("transpose_a", "transpose_b"), "As `matmul` was told."),
)
def matmul_grad(
    dy: Floats,
    a: Floats,
    b: Floats,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tuple[Tensor, Tensor]:
    """The gradients (da, db) of `matmul`.

    Args:
        dy: The gradient of the result, `[..., m, n]`.
        a: As `matmul` took it.
        b: As `matmul` took it; one matrix for a whole batch gets the sum.
    """
    batch, m, k, n = _sizes(a, b, transpose_a, transpose_b)
    ir.require(
        dy.ndim == len(batch) + 2 and dy.shape == (*batch, m, n),
        "dy has shape {dy}, the product {shape}",
        dy=dy.shape,
        shape=(*batch, m, n),
    )
    rows = ir.elements((m,))
    upper = _Matrices.of(dy, batch, (rows, n))
    left = _Matrices.of(a, batch, (rows, k), transpose_a)
    right = _Matrices.of(b, batch, (k, n), transpose_b)

    def gradient(
        x: Tensor, like: _Matrices, depth: Any, value: Callable[..., Expr], name: str
    ) -> Tensor:
        """The sums of `value`, from a matrix, row, column and step, for each of x."""
        r = ir.reduce_axis(depth, f"r{name}")
        every = (ir.reduce_axis(math.prod(batch), f"t{name}"), r)

        def element(t: Expr, p: Expr, q: Expr) -> Any:
            i, j = (q, p) if like.transposed else (p, q)
            if like.serves_all and not upper.serves_all:
                return ir.sum(value(every[0], i, j, r), every)
            return ir.sum(value(t, i, j, r), r)

        sums = ir.compute(like.array.shape, element, f"{name}_sum")
        return ir.reshaped(_rounded(sums, x, name), x.shape)

    da = gradient(a, left, n, lambda t, i, k, j: upper(t, i, j) * right(t, k, j), "da")
    db = gradient(
        b, right, rows, lambda t, k, j, i: left(t, i, k) * upper(t, i, j), "db"
    )
    return da, db


@dataclass(frozen=True, slots=True)
class _Matrices:
    """Matrices `[batch, rows, columns]`, which may lie transposed.

    Attributes:
        array: As they lie.
        transposed: Whether they do.
    """

    array: Tensor
    transposed: bool

    @classmethod
    def of(
        cls,
        x: Tensor,
        batch: tuple[Any, ...],
        matrix: tuple[Any, Any],
        transposed: bool = False,
    ) -> _Matrices:
        """An array as matrices of these rows and columns.

        Raises:
            ShapeError: they are neither one nor as many as the batch.
        """
        own, whole = x.shape[:-2], math.prod(batch)
        one = not batch or all(extent == 1 for extent in own)
        ir.require(
            one or math.prod(own) == whole,
            "a batch {own} that broadcasts to {batch} in part is not supported; expand "
            "it with numpy.broadcast_to(...).copy()",
            own=own,
            batch=batch,
        )
        lying = matrix[::-1] if transposed else matrix
        return cls(ir.reshaped(x, (1 if one else whole, *lying)), transposed)

    @property
    def serves_all(self) -> bool:
        """Whether it is one matrix, for a batch of any size."""
        return bool(self.array.shape[0] == 1)

    @property
    def rows(self) -> Any:
        """How many rows each has."""
        return self.array.shape[2 if self.transposed else 1]

    def __call__(self, t: Any, row: Any, column: Any) -> Expr:
        """An element, in the type that is computed in."""
        at = 0 if self.serves_all else t
        place = (column, row) if self.transposed else (row, column)
        return ir.wide(self.array[at, *place])


def _sizes(
    a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool
) -> tuple[tuple[Any, ...], Any, int, int]:
    """The batch of a product, and its sizes m, k and n.

    Raises:
        ShapeError: the arrays are not of one product.
    """
    ir.require(
        a.ndim >= 2 and b.ndim >= 2,
        "takes arrays of 2 dimensions or more, not {a} and {b}; reshape a vector to a "
        "matrix",
        a=a.shape,
        b=b.shape,
    )
    m, k = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
    depth, n = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
    ir.require(
        k == depth,
        "{a} by {b} (transpose_a={on_a}, transpose_b={on_b}): {k} columns meet {depth} "
        "rows",
        a=a.shape,
        b=b.shape,
        on_a=transpose_a,
        on_b=transpose_b,
        k=k,
        depth=depth,
    )
    return ir.broadcast((a.shape[:-2], b.shape[:-2])), m, int(k), int(n)


def _rounded(sums: Tensor, like: Tensor, name: str) -> Tensor:
    made: Tensor = ir.compute(
        sums.shape, lambda *i: ir.stored(sums[i], like.dtype), name
    )
    return made
