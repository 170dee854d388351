"""Sorting along an axis: values, indices, and the gradient.

The gradient is written by hand: it moves elements to positions that are data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tensorlang import ir, lazy
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import algorithm, exchanging, operator
from tensorlang.ops.spec.signature import Anything, Floats

with lazy.modules(__name__):
    from tensorlang.ops.math import (
        device_sorts,
        sort_definitions,
        sort_keys,
        sort_networks,
    )

if TYPE_CHECKING:
    from tensorlang.ops.math.sort_definitions import Sort
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

_USUAL: Final = (512, 4096)
_COUNTED: Final = 192  # row length up to which the definition itself ranks
_POSITION_BITS: Final = 32


def _operator(name: str, arrays: int = 1) -> Callable[[Body], Operator]:
    return operator(
        f"math.{name}", shapes=(_USUAL,) * arrays, scheduled_as="sorting", whole=True
    )


@_operator("sort")
def sort(x: Anything, axis: int = -1, descending: bool = False) -> ir.Tensor:
    """Sort along an axis; NaN comes last, or first if descending.

    -0 precedes 0: elements are sorted by their bits, without their positions. For
    `math.argsort`, which keeps equal elements in their order, both are equal.

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
    return (workload.shapes[0] or (1,))[axis]


def _long(workload: Workload) -> bool:
    """Whether rows are long enough for the definition to be a radix sort."""
    return _length(workload) > _COUNTED


def _short(workload: Workload) -> bool:
    """Whether rows are so short that the definition is not a radix sort."""
    return not _long(workload)


def _packed(workload: Workload) -> bool:
    """Whether a key and its position share 64 bits."""
    return ir.as_dtype(workload.dtypes[-1]).bits <= _POSITION_BITS


class _Cycles(NamedTuple):
    """Predicted cycles to sort a row, by each algorithm.

    A network of up to `2**n` keys has `n (n + 1) / 2` steps, each over whole vectors.
    Ranking compares each element with vectors of all, counts, and then moves it. A
    pass of a radix sort scans its bins, and for each element loads and stores a bin
    twice, one after the other; positions are moved besides.
    """

    network: float
    ranks: int
    radix: int

    @classmethod
    def of(cls, ordered: bool, workload: Workload, target: Target) -> _Cycles:
        """The prediction for rows of a workload."""
        dtype, length = ir.as_dtype(workload.dtypes[-1]), _length(workload)
        own = max(dtype.bits, 32)
        n = (max(length, sort_networks.SHORTEST) - 1).bit_length()
        bits = 2 * _POSITION_BITS if ordered else own
        block = sort_networks.BYTES * 8 // bits
        keys = min(1 << n, -(-length // block) * block)
        steps = n * (n + 1) // 2 * -(-keys * bits // target.vector_bits)
        vectors = -(-length * own // target.vector_bits)
        moved = (5 if ordered else 4) * length
        return cls(
            steps if _packed(workload) or not ordered else math.inf,
            length * (2 * vectors + 2),
            sort_keys.digits(dtype) * (sort_definitions.BINS + moved),
        )


def _network_wins(
    ordered: bool, workload: Workload, target: Target, _: Collection[int]
) -> bool:
    cycles = _Cycles.of(ordered, workload, target)
    return cycles.network == min(cycles)


def _radix_wins(
    ordered: bool, workload: Workload, target: Target, _: Collection[int]
) -> bool:
    cycles = _Cycles.of(ordered, workload, target)
    return cycles.radix == min(cycles)


def _defined(
    op: Operator, define: Callable[[], Callable[..., Sort]], *, ordered: bool
) -> None:
    """Add the other algorithms: networks for CPUs, blocks of threads for devices."""

    def network(**given: object) -> ir.Tensor:
        return sort_networks.by_network(define()(**given))

    def radix(**given: object) -> ir.Tensor:
        return define()(**given).by_radix()

    def blocks(*, shuffles: bool, **given: object) -> ir.Tensor:
        return device_sorts.by_blocks(define()(**given), shuffles)

    able = _packed if ordered else None
    algorithm(op, "network", serves=able, faster=partial(_network_wins, ordered))(
        network
    )
    algorithm(op, "radix", serves=_short, faster=partial(_radix_wins, ordered))(radix)
    exchanging(op, "blocks", blocks, serves=_long)


_defined(sort, lambda: sort_definitions.values, ordered=False)
_defined(argsort, lambda: sort_definitions.positions, ordered=True)
_defined(sort_grad, lambda: sort_definitions.gradient, ordered=True)
