"""Instruction statements for `tensorlang.ir.gpu_effects`, and tensor maps.

The template has a macro of the same name for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tensorlang.ir.dtypes import boolean
from tensorlang.ir.nodes import Buffer, Call, Evaluate, Expr, ExprLike, Load, Node
from tensorlang.ir.nodes import as_expr as _expr
from tensorlang.ir.visit import walk

COPY: Final = "bulk_copy"
STORE: Final = "bulk_store"


def effect(name: str, *args: ExprLike) -> Evaluate:
    """An instruction as a statement."""
    return Evaluate(Call(name, tuple(map(_expr, args)), boolean))


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Arguments of `cuTensorMapEncodeTiled` for a bulk copy.

    Attributes:
        buffer: The row-major matrix in global memory.
        rows, columns: Extents of the matrix.
        box: Rows and columns moved by one copy.
        swizzle: Swizzle span in bytes (16-byte chunks are permuted in it); 0 for none.
    """

    buffer: Buffer
    rows: Expr
    columns: Expr
    box: tuple[int, int]
    swizzle: int

    @classmethod
    def of(cls, copy: Call) -> TensorMap:
        """The tensor map of a bulk copy or store."""
        *_, rows, columns, box_rows, box_columns, swizzle = copy.args
        box = _number(box_rows), _number(box_columns)
        return cls(mapped(copy).buffer, rows, columns, box, _number(swizzle))


def mapped(copy: Call) -> Load:
    """The matrix in global memory of a bulk copy or store."""
    matrix = copy.args[2 if copy.name == COPY else 3]
    assert isinstance(matrix, Load)
    return matrix


def is_mapped(node: Node) -> bool:
    """Whether a node is a bulk copy or store, which use tensor maps."""
    return isinstance(node, Call) and node.name in (COPY, STORE)


def tensor_maps(node: Node) -> tuple[TensorMap, ...]:
    """The distinct tensor maps of the bulk copies below a node."""
    return tuple(dict.fromkeys(map(TensorMap.of, _copies(node))))


def _copies(node: Node) -> Iterator[Call]:
    return (n for n in walk(node) if isinstance(n, Call) and is_mapped(n))


def _number(expr: Expr) -> int:
    value: Any = getattr(expr, "value", None)
    return int(value)
