"""Cumulative sums along an axis, and their gradient.

The gradient is written by hand: it is a scan in the other direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tensorlang import ir, lazy
from tensorlang.ops.spec.definition import exchanging, operator
from tensorlang.ops.spec.signature import Anything, ElementType, Floats
from tensorlang.workload import Workload

with lazy.modules(__name__):
    from tensorlang.ops.math import chunked_scans, scan_definitions


_USUAL: Final = (512, 4096)
_NARROW: Final = ("f16", "bf16")
_CHUNKED: Final = 1 << 8  # row length from which devices scan in chunks


@operator("math.cumsum", shapes=(_USUAL,), scheduled_as="scan", whole=True)
def cumsum(
    x: Anything, axis: int = -1, *, dtype: ElementType | None = None
) -> ir.Tensor:
    """Cumulative sum along an axis.

    f32 accumulates in f64 and is rounded per element; integers and bool give 64-bit
    integers. Results do not depend on the number of threads.
    """
    rows = ir.rows.along(x, axis)
    return rows.whole(scan_definitions.cumsum(rows, dtype, reverse=False))


@operator("math.cumsum_grad", shapes=(_USUAL, _USUAL), scheduled_as="scan", whole=True)
def cumsum_grad(
    dy: Floats, x: Floats, axis: int = -1, *, dtype: ElementType | None = None
) -> ir.Tensor:
    """The gradient of `math.cumsum`: the reverse cumulative sum of dy."""
    del dtype  # dy is read in it
    rows = _of_gradient(dy, x, axis)
    return rows.whole(scan_definitions.cumsum(rows, x.buffer.dtype, reverse=True))


def _of_gradient(dy: ir.Tensor, x: ir.Tensor, axis: int) -> ir.rows.Rows:
    ir.rows.same_shape(dy=dy, x=x)
    ir.rows.along(x, axis)  # checks x and axis; its elements are not read
    return ir.rows.along(dy, axis)


def _chunks(
    x: ir.Tensor, axis: int, dtype: ir.DType | None, *, shuffles: bool
) -> ir.Tensor:
    """As `cumsum`, by blocks of threads."""
    rows = ir.rows.along(x, axis)
    return rows.whole(chunked_scans.cumsum(rows, dtype, shuffles, reverse=False))


def _chunks_grad(
    dy: ir.Tensor, x: ir.Tensor, axis: int, dtype: ir.DType | None, *, shuffles: bool
) -> ir.Tensor:
    """As `cumsum_grad`, by blocks of threads."""
    del dtype
    rows, made = _of_gradient(dy, x, axis), x.buffer.dtype
    return rows.whole(chunked_scans.cumsum(rows, made, shuffles, reverse=True))


def _cut(*, narrow: bool) -> Callable[[Workload], bool]:
    """Predicate: rows are contiguous, long enough to chunk, and of this width."""

    def serves(workload: Workload) -> bool:
        axis = workload.named["axis"]
        assert isinstance(axis, int)
        shape = workload.shapes[0] or (1,)
        at = axis % len(shape)
        last = math.prod(shape[at + 1 :]) == 1
        kind = workload.named["dtype"] or workload.dtypes[0]
        alike = (kind in _NARROW) == narrow
        return alike and last and shape[at] >= _CHUNKED and 0 not in shape

    return serves


for _op, _body in ((cumsum, _chunks), (cumsum_grad, _chunks_grad)):
    # sums in f64 rounded to f32; and sums in f32, of which a few round differently
    exchanging(_op, "chunks", _body, serves=_cut(narrow=False), tolerance=1e-6)
    exchanging(_op, "narrow_chunks", _body, serves=_cut(narrow=True), tolerance=2**-7)
