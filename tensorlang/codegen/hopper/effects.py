"""Statements of the instructions in `tensorlang.ir.gpu_effects`, and tensor maps.

The template has a macro for each of them, of its name.
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


def effect(name: str, *args: ExprLike) -> Evaluate:
    """The statement of an instruction."""
    return Evaluate(Call(name, tuple(map(_expr, args)), boolean))


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What the host must encode for a bulk copy: `cuTensorMapEncodeTiled`'s arguments.

    Attributes:
        buffer: The matrix in global memory, row-major.
        rows: Of the matrix, and `columns`.
        box: Rows and columns of what one copy moves.
        swizzle: Bytes of a row within which pieces of 16 bytes are exchanged; 0 for
            none.
    """

    buffer: Buffer
    rows: Expr
    columns: Expr
    box: tuple[int, int]
    swizzle: int

    @classmethod
    def of(cls, copy: Call) -> TensorMap:
        """The map that a bulk copy goes by."""
        _, _, source, _, _, rows, columns, *rest = copy.args
        assert isinstance(source, Load)
        box_rows, box_columns, swizzle = (_number(part) for part in rest)
        return cls(source.buffer, rows, columns, (box_rows, box_columns), swizzle)


def tensor_maps(node: Node) -> tuple[TensorMap, ...]:
    """The maps that the bulk copies below a node go by, each once."""
    return tuple(dict.fromkeys(map(TensorMap.of, _copies(node))))


def _copies(node: Node) -> Iterator[Call]:
    return (n for n in walk(node) if isinstance(n, Call) and n.name == COPY)


def _number(expr: Expr) -> int:
    value: Any = getattr(expr, "value", None)
    return int(value)
