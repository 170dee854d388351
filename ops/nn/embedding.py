"""Rows of a table by their numbers, and the table's gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.indices import checked, index_type
from tensorlang.ops.tensors import (
    FLOATS,
    Plan,
    Shape,
    call,
    tensor_algorithm,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.embedding_definitions"
_NOBODY: Final = -1
_USUAL: Final = (64, 512), (30_000, 512)


def _rows(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], _: dict[str, Any]
) -> Plan:
    ids, table = shapes
    _table("nn.embedding", table, dtypes[1])
    flat = ((math.prod(ids),), table)
    return Plan(flat, dtypes, ((*ids, table[1]),))


def _back(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], _: dict[str, Any]
) -> Plan:
    id = "nn.embedding_grad"
    dy, ids, table = shapes
    index_type(id, dtypes[1])
    _table(id, table, dtypes[2])
    if dy != (*ids, table[1]):
        raise ShapeError(
            f"{id}: ids of shape {ids} and a table of shape {table} make a dy of shape "
            f"{(*ids, table[1])}, not {dy}"
        )
    if dtypes[0] != dtypes[2]:
        raise DTypeError(
            f"{id}: dy is {dtypes[0]} and the table {dtypes[2]}; cast one of them"
        )
    count = math.prod(ids)
    return Plan(((count, table[1]), (count,), table), dtypes)


def _table(id: str, shape: Shape, kind: str) -> None:
    if len(shape) != 2:
        raise ShapeError(
            f"{id}: a table has rows and columns, two dimensions, not shape {shape}"
        )
    if kind not in FLOATS:
        raise DTypeError(f"{id}: a table is {', '.join(FLOATS)}, not {kind}; cast it")


def _names(_: Workload) -> Names:
    return ("n",), ("rows", None)


def _back_names(_: Workload) -> Names:
    return ("n", None), ("n",), ("rows", None)


def _usual(_: Workload) -> dict[str, Any]:
    return {"skipped": np.int64(_NOBODY)}


@tensor_operator(
    "nn.embedding",
    f"{_HERE}:embedding",
    plan=_rows,
    names=_names,
    shapes=_USUAL,
    dtypes=("i64", "f32"),
    allowed=("i32", "i64"),
    scheduled_as="embedding",
    aliases=("embedding",),
)
def embedding(ids: Any, table: Any, *, target: Any = None, out: Any = None) -> Launch:
    """The rows of a table that are named.

    Args:
        ids: Numbers of rows, i32 or i64, of any shape.
        table: Floats `[rows, width]`.
        target: Where to compute.
        out: Where the result goes: the shape of `ids`, and behind it the width.

    Raises:
        KernelError: a number is none of a row.
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    launch = call(embedding, (ids, table), {}, (), target, out)
    return checked(embedding, launch, 0, table.shape[0])


@tensor_operator(
    "nn.embedding_grad",
    f"{_HERE}:embedding_grad",
    plan=_back,
    names=_back_names,
    shapes=((64, 512, 512), *_USUAL),
    dtypes=("f32", "i64", "f32"),
    scalars=_usual,
    scheduled_as="embedding",
    aliases=("embedding_grad",),
)
def embedding_grad(
    dy: Any,
    ids: Any,
    table: Any,
    *,
    padding_idx: int | None = None,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `embedding` with respect to the table.

    Rows that are named several times get the sum, in the order of `ids`; the result is
    the same with any number of threads.

    Args:
        dy: The gradient of the result.
        ids: As in the forward call.
        table: As in the forward call; only its shape and type count.
        padding_idx: A row whose gradient is 0, however often it is named.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        KernelError: a number is none of a row.
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    skipped = _NOBODY if padding_idx is None else _row(padding_idx, table.shape[0])
    launch = call(embedding_grad, (dy, ids, table), {}, (skipped,), target, out)
    return checked(embedding_grad, launch, 1, table.shape[0])


for _name, _exchange, _feature in (
    ("sorted", "", "shuffle"),
    ("sorted_in_memory", "_through_memory", ""),
):
    tensor_algorithm(
        embedding_grad,
        _name,
        f"tensorlang.ops.nn.embedding_sorts:embedding_grad{_exchange}",
        lambda _: True,
        feature=_feature,
        scalars=_usual,
    )


def _row(padding_idx: Any, rows: int) -> int:
    """A row's number, which may be counted from the end."""
    whole = isinstance(padding_idx, (int, np.integer))
    if not whole or isinstance(padding_idx, bool) or not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"nn.embedding_grad: padding_idx is the number of one of {rows} rows, not "
            f"{padding_idx!r}"
        )
    return int(padding_idx) % rows
