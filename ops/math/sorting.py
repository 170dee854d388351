"""Sorting along an axis: values, indices, and the gradient.

The gradient is written by hand: it moves elements to positions that are data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tensorlang import ir, lazy
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import algorithm, exchanging, operator
from tensorlang.ops.spec.signature import Anything, Floats

with lazy.modules(__name__):
    from tensorlang.ops.math import device_sorts, sort_definitions, sort_networks

if TYPE_CHECKING:
    from tensorlang.ops.math.sort_definitions import Sort
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

_USUAL: Final = (512, 4096)
_COUNTED: Final = 192  # row length up to which sorting by rank is faster
_RANKED: Final = 8  # row length up to which it is faster than a network
_POSITION_BITS: Final = 32
_STEPS_PER_BIT: Final = 0.5  # steps of a network in the time of one bit of a radix sort


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


def _length(workload: Workload) -> int:
    axis = workload.named["axis"]
    assert isinstance(axis, int)
    length: int = (workload.shapes[0] or (1,))[axis]
    return length


def _long(workload: Workload) -> bool:
    """Whether rows are long enough for a radix sort."""
    return _length(workload) > _COUNTED


def _packed(workload: Workload) -> bool:
    """Whether a key and its position share 64 bits."""
    return ir.as_dtype(workload.dtypes[-1]).bits <= _POSITION_BITS


def _quicker(ordered: bool, workload: Workload, target: Target) -> bool:
    """Whether a network is predicted to be faster than the other algorithms.

    Its smallest block has 16 keys; half of them and fewer are ranked faster. A network
    of `2**n` keys has `n (n + 1) / 2` steps, each over whole vectors; a radix sort has
    passes by the bits of a key.
    """
    dtype = ir.as_dtype(workload.dtypes[-1])
    length = _length(workload)
    bits = 64 if ordered else max(dtype.bits, 32)
    n = (length - 1).bit_length()
    steps = n * (n + 1) // 2
    radix = _STEPS_PER_BIT * dtype.bits * target.vector_bits
    return length > _RANKED and steps * bits <= radix


def _defined(
    op: Operator, define: Callable[[], Callable[..., Sort]], *, ordered: bool
) -> None:
    """Add the other algorithms: networks for CPUs, blocks of threads for devices."""

    def network(**given: object) -> ir.Tensor:
        return sort_networks.by_network(define()(**given))

    def blocks(*, shuffles: bool, **given: object) -> ir.Tensor:
        return device_sorts.by_blocks(define()(**given), shuffles)

    serves, faster = (_packed if ordered else None), partial(_quicker, ordered)
    algorithm(op, "network", serves=serves, faster=faster)(network)
    exchanging(op, "blocks", blocks, serves=_long)


_defined(sort, lambda: sort_definitions.values, ordered=False)
_defined(argsort, lambda: sort_definitions.positions, ordered=True)
_defined(sort_grad, lambda: sort_definitions.gradient, ordered=True)
