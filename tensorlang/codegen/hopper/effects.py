"""Instruction statements for `tensorlang.ir.gpu_effects`, and tensor maps.

The template has a macro of the same name for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import boolean
from tensorlang.ir.gpu_effects import RANKS
from tensorlang.ir.nodes import Buffer, Call, Evaluate, Expr, ExprLike, Load, Node
from tensorlang.ir.nodes import as_expr as _expr
from tensorlang.ir.visit import nodes_of

COPY: Final = "bulk_copy"
STORE: Final = "bulk_store"
# name -> number of arguments before those by dimension
_FIRST: Final = {
    f"{name}{end}": count
    for name, count in ((COPY, 4), (STORE, 3))
    for end in RANKS.values()
}


def effect(name: str, *args: ExprLike) -> Evaluate:
    """An instruction as a statement."""
    return Evaluate(Call(name, tuple(map(_expr, args)), boolean))


@frozen
class TensorMap:
    """Arguments of `cuTensorMapEncodeTiled` for a bulk copy.

    Attributes:
        buffer: The row-major array in global memory, of 2 to 5 dimensions.
        shape: Its extents.
        box: Elements along each dimension that one copy moves.
        swizzle: Swizzle span in bytes (16-byte chunks are permuted in it); 0 for none.
    """

    buffer: Buffer
    shape: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int

    @classmethod
    def of(cls, copy: Call) -> TensorMap:
        """The tensor map of a bulk copy or store."""
        _, shape, box = dimensions(copy)
        numbers = tuple(map(_number, box))
        return cls(mapped(copy).buffer, shape, numbers, _number(copy.args[0]))


def moved(
    name: str,
    places: Sequence[Load],
    corner: Sequence[Expr],
    shape: Sequence[Expr],
    *,
    box: Sequence[int],
    swizzle: int,
) -> Evaluate:
    """A bulk copy or store of a box of an array, the last one of `places`.

    Args:
        name: `COPY` or `STORE`.
        places: The loads among its arguments.
        corner: Where the box starts, by dimension.
        shape: Extents of the array.
        box: Extents of the box.
        swizzle: Its span, as of `TensorMap`.
    """
    called = f"{name}{RANKS[len(box)]}"
    return effect(called, swizzle, *places, *corner, *shape, *box)


def mapped(copy: Call) -> Load:
    """The array in global memory of a bulk copy or store."""
    array = copy.args[_FIRST[copy.name] - 1]
    assert isinstance(array, Load)
    return array


def dimensions(copy: Call) -> tuple[tuple[Expr, ...], ...]:
    """Corner, shape and box of a bulk copy or store."""
    each = copy.args[_FIRST[copy.name] :]
    rank = len(each) // 3
    return tuple(each[n : n + rank] for n in range(0, 3 * rank, rank))


def is_mapped(node: Node) -> bool:
    """Whether a node is a bulk copy or store, which use tensor maps."""
    return isinstance(node, Call) and node.name in _FIRST


def tensor_maps(node: Node) -> tuple[TensorMap, ...]:
    """The distinct tensor maps of the bulk copies below a node."""
    return tuple(dict.fromkeys(map(TensorMap.of, _copies(node))))


def _copies(node: Node) -> Iterator[Call]:
    return filter(is_mapped, nodes_of(node, Call))


def _number(expr: Expr) -> int:
    value: Any = getattr(expr, "value", None)
    return int(value)
