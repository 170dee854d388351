"""Embedding lookup, and the gradient for the table.

The gradient is written by hand: rows to add to are data, and algorithms that sort them
avoid atomics.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.spec.definition import exchanging, operator
from tensorlang.ops.spec.indices import outside
from tensorlang.ops.spec.signature import Anything, Floats, Indices

with lazy.modules(__name__):
    from tensorlang.ops.nn import embedding_definitions, embedding_sorts

_USUAL: Final = (64, 512), (30_000, 512)


@operator(
    "nn.embedding",
    shapes=_USUAL,
    scheduled_as="embedding",
    whole=True,
    faults=outside(0),
)
def embedding(ids: Indices, table: Anything) -> ir.Tensor:
    """Look up rows of a table by index.

    Args:
        ids: Row indices, int32 or int64, of any shape.
        table: Numbers or truth values `[rows, width]`.
        out: Output array, `[*ids.shape, width]`.

    Raises:
        KernelError: an index is out of range.
    """
    rows = _rows(table)
    made = embedding_definitions.embedding(_in_a_row(ids), rows)
    return ir.reshaped(made, (*ids.shape, rows.shape[1]))


@operator(
    "nn.scatter",
    shapes=((64,), (30_000, 512), (64, 512)),
    scheduled_as="embedding",
    whole=True,
    faults=outside(0),
)
def scatter(
    ids: Indices,
    x: Anything,
    updates: Anything,
    reduction: Literal["none", "add", "mul", "max", "min"] = "none",
) -> ir.Tensor:
    """A copy of a table, with rows replaced by or combined with others.

    Rows with the same index are combined in order; without a reduction, the last one
    stays.

    Args:
        ids: Row indices, int32 or int64, of any shape.
        x: Numbers or truth values `[rows, width]`.
        updates: Rows of the same type `[*ids.shape, width]`.
        reduction: How a row and an update are combined.
        out: Output array `[rows, width]`.

    Raises:
        KernelError: an index is out of range.
    """
    rows, wanted = _rows(x), (*ids.shape, x.shape[1])
    ir.require(
        updates.ndim == len(wanted) and updates.shape == wanted,
        f"ids of {ids.shape} and x of {x.shape} go with updates of {wanted}, not "
        f"{updates.shape}",
    )
    flat = _in_a_row(ids)
    rest = ir.reshaped(updates, (*flat.shape, rows.shape[1]))
    return embedding_definitions.scattered(flat, rows, rest, reduction)


@operator(
    "nn.embedding_grad",
    shapes=((64, 512, 512), *_USUAL),
    scheduled_as="embedding",
    whole=True,
    faults=outside(1),
)
def embedding_grad(
    dy: Floats, ids: Indices, table: Floats, *, padding_idx: int | None = None
) -> ir.Tensor:
    """The gradient of `nn.embedding` for the table.

    Contributions to the same row are summed in the order of `ids`; the result does not
    depend on the number of threads.

    Args:
        table: As in the forward call; only its shape and dtype are used.
        padding_idx: Row whose gradient is 0, or None.

    Raises:
        KernelError: an index is out of range.
    """
    return embedding_definitions.embedding_grad(*_given(dy, ids, table, padding_idx))


def _given(
    dy: ir.Tensor, ids: ir.Tensor, table: ir.Tensor, padding_idx: int | None
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor, ir.Expr | None]:
    """`dy [n, width]`, `ids [n]`, `table [rows, width]`, and the row to skip."""
    held = _rows(table)
    wanted = (*ids.shape, table.shape[1])
    ir.require(
        dy.ndim == len(wanted) and dy.shape == wanted,
        f"ids of shape {ids.shape} and a table of shape {table.shape} make a dy of "
        f"shape {wanted}, not {dy.shape}",
    )
    flat, rows = _in_a_row(ids), table.shape[0]
    skipped: Any = padding_idx
    if padding_idx is not None:
        ir.require(
            -rows <= padding_idx < rows,
            f"padding_idx is the number of one of {rows} rows, not {padding_idx}",
            ArgumentError,
        )
        skipped = ir.as_expr(padding_idx + rows if padding_idx < 0 else padding_idx)
    return ir.reshaped(dy, (*flat.shape, held.shape[1])), flat, held, skipped


def _rows(table: ir.Tensor) -> ir.Tensor:
    """The table, with its width a constant of the kernel."""
    ir.require(
        table.ndim == 2,
        f"a table has rows and columns, two dimensions, not shape {table.shape}",
    )
    return ir.reshaped(table, (table.shape[0], int(table.shape[1])))


def _in_a_row(ids: ir.Tensor) -> ir.Tensor:
    return ir.reshaped(ids, (ir.elementwise.elements(ids.shape),))


def _sorted(*, shuffles: bool, **given: Any) -> ir.Tensor:
    """As `embedding_grad`, by sorting the indices."""
    return embedding_sorts.embedding_grad(*_given(**given), shuffles=shuffles)


exchanging(embedding_grad, "sorted", _sorted)
