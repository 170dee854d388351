"""Sorting along an axis: values, indices, and the gradient.

The gradient is written by hand: it moves elements to positions that are data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tensorlang import ir, lazy
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import exchanging, operator
from tensorlang.ops.spec.signature import Anything, Floats

if TYPE_CHECKING:
    from tensorlang.ops.math import device_sorts, sort_definitions
    from tensorlang.ops.math.sort_definitions import Sort
    from tensorlang.workload import Workload
else:
    device_sorts = lazy.module("tensorlang.ops.math.device_sorts")
    sort_definitions = lazy.module("tensorlang.ops.math.sort_definitions")

_USUAL: Final = (512, 4096)
_COUNTED: Final = 192  # row length up to which sorting by rank is faster


def _operator(name: str, arrays: int = 1) -> Callable[[Body], Operator]:
    return operator(
        f"math.{name}", shapes=(_USUAL,) * arrays, scheduled_as="sorting", whole=True
    )


@_operator("sort")
def sort(x: Anything, axis: int = -1, descending: bool = False) -> ir.Tensor:
    """Sort along an axis; NaN comes last, or first if descending.

    Args:
        x: Numbers or bool, at least one dimension.
        axis: Axis to sort along; negative counts from the end.
        descending: Whether to sort from largest to smallest.
    """
    return sort_definitions.values(x, axis, descending).by_loops(_COUNTED)


@_operator("argsort")
def argsort(x: Anything, axis: int = -1, descending: bool = False) -> ir.Tensor:
    """Indices that sort along an axis; the sort is stable.

    Args:
        x: Numbers or bool, at least one dimension.
        axis: Axis to sort along; negative counts from the end.
        descending: Whether to sort from largest to smallest.
        out: Output array, int64.
    """
    return sort_definitions.positions(x, axis, descending).by_loops(_COUNTED)


@_operator("sort_grad", 2)
def sort_grad(
    dy: Floats, x: Floats, axis: int = -1, descending: bool = False
) -> ir.Tensor:
    """The gradient of `math.sort`: dy in the original order of the elements."""
    return sort_definitions.gradient(dy, x, axis, descending).by_loops(_COUNTED)


def _long(workload: Workload) -> bool:
    """Whether rows are long enough for a radix sort."""
    axis = workload.named["axis"]
    assert isinstance(axis, int)
    length: int = (workload.shapes[0] or (1,))[axis]
    return length > _COUNTED


def _blocks(define: Callable[[], Callable[..., Sort]]) -> Body:
    """A sort by blocks of threads."""

    def sorted_by_blocks(*, shuffles: bool, **given: object) -> ir.Tensor:
        return device_sorts.by_blocks(define()(**given), shuffles)

    return sorted_by_blocks


exchanging(sort, "blocks", _blocks(lambda: sort_definitions.values), serves=_long)
exchanging(argsort, "blocks", _blocks(lambda: sort_definitions.positions), serves=_long)
exchanging(
    sort_grad, "blocks", _blocks(lambda: sort_definitions.gradient), serves=_long
)
