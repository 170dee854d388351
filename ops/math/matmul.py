"""Batched matrix products.

Operands are seen as `[batch, rows, columns]`, where a batch of 1 broadcasts. Batch and
rows of the result are open sizes; depth and columns are constants of the kernel.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import REALS, Arrays

_USUAL: Final = (1024, 1024)

_A: TypeAlias = Annotated[
    "ir.Tensor", Arrays("numbers", REALS, transposed="transpose_a")
]
_B: TypeAlias = Annotated[
    "ir.Tensor", Arrays("numbers", REALS, transposed="transpose_b")
]


@operator("math.matmul", shapes=(_USUAL,) * 2, whole=True, gradient={"linear": False})
def matmul(
    a: _A, b: _B, *, transpose_a: bool = False, transpose_b: bool = False
) -> ir.Tensor:
    """Matrix product over the last two dimensions; leading dimensions are a batch.

    Args:
        a: Numbers `[..., m, k]`; integers wrap, or `[..., k, m]` with `transpose_a`.
        b: Numbers `[..., k, n]`, or `[..., n, k]` with `transpose_b`. Batch dimensions
            equal those of `a`, or one operand is a single matrix, which broadcasts.
            A vector is a row as `a` and a column as `b`, without that dimension in the
            result, and is not transposed.
        transpose_a: Whether `a` is stored transposed.
        transpose_b: Whether `b` is stored transposed. Views such as `w.T` are read as
            they lie, without a copy.
        out: Output array, `[..., m, n]`.
    """
    vectors = a.ndim == 1, b.ndim == 1
    if vectors[0]:
        a, transpose_a = ir.reshaped(a, (1, a.shape[0])), False
    if vectors[1]:
        b, transpose_b = ir.reshaped(b, (b.shape[0], 1)), False
    batch, m, k, n = _sizes(a, b, transpose_a, transpose_b)
    shape, rows = [*batch, *([] if vectors[0] else [m])], (m,)
    shape += [] if vectors[1] else [n]
    if b.ndim == 2 and not transpose_a:  # fold the batch into the rows
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


@frozen
class _Matrices:
    """Matrices `[batch, rows, columns]`, possibly stored transposed."""

    array: ir.Tensor  # matrices as stored
    transposed: bool  # whether `array` is `[batch, columns, rows]`

    @classmethod
    def of(
        cls,
        x: ir.Tensor,
        batch: tuple[Any, ...],
        matrix: tuple[Any, Any],
        transposed: bool = False,
    ) -> _Matrices:
        """View `x` as a batch of matrices of these rows and columns.

        Raises:
            ShapeError: they are neither a single matrix nor as many as the batch.
        """
        own, whole = x.shape[:-2], math.prod(batch)
        one = not batch or all(extent == 1 for extent in own)
        ir.require(
            one or math.prod(own) == whole,
            f"a batch {own} that broadcasts to {batch} in part is not supported; "
            "expand it with numpy.broadcast_to(...).copy()",
        )
        lying = matrix[::-1] if transposed else matrix
        return cls(ir.reshaped(x, (1 if one else whole, *lying)), transposed)

    @property
    def serves_all(self) -> bool:
        """Whether a single matrix broadcasts over the batch."""
        return bool(self.array.shape[0] == 1)

    @property
    def rows(self) -> Any:
        """Rows per matrix."""
        return self.array.shape[2 if self.transposed else 1]

    def __call__(self, t: object, row: object, column: object) -> ir.Expr:
        """An element, widened to the accumulation type."""
        at = 0 if self.serves_all else t
        place = (column, row) if self.transposed else (row, column)
        return ir.wide(self.array[at, *place])


def _sizes(
    a: ir.Tensor, b: ir.Tensor, transpose_a: bool, transpose_b: bool
) -> tuple[tuple[Any, ...], Any, int, int]:
    """Batch, m, k and n of a product; ShapeError if the shapes do not fit."""
    ir.require(
        a.ndim >= 2 and b.ndim >= 2,
        f"takes vectors, matrices and batches of these, not {a.shape} and {b.shape}",
    )
    m, k = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
    depth, n = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
    ir.require(
        k == depth,
        f"matrices of {m} x {k} by {depth} x {n}: {k} columns meet {depth} rows",
    )
    return ir.broadcast((a.shape[:-2], b.shape[:-2])), m, int(k), int(n)


def _rounded(sums: ir.Tensor, like: ir.Tensor, name: str) -> ir.Tensor:
    return ir.compute(sums.shape, lambda *i: ir.stored(sums[i], like.dtype), name)
