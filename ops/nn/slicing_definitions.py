"""Slices, as loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from tensorlang.ir import as_expr, compute, select
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.nodes import Const, Load
from tensorlang.ops.nn.joining_definitions import plus
from tensorlang.ops.nn.slicing_plans import ALL, placed

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def slice(
    x: Tensor, *, begin: Sequence[int], size: Sequence[int], step: Sequence[int]
) -> Tensor:
    """The places from `begin` on by `step`; a dimension of one place goes.

    Raises:
        ShapeError: they are not within `x`.
    """
    _within("nn.slice", x.shape, begin, size, step)
    counts = [n if c == ALL else as_expr(c) for n, c in zip(x.shape, size, strict=True)]
    kept = [at for at, count in enumerate(size) if count != 1]

    def element(*i: Any) -> Expr:
        place: list[Any] = [as_expr(first) for first in begin]
        for at, n in zip(kept, i, strict=False):
            place[at] = plus(_times(n, step[at]), begin[at])
        return x[tuple(place)]

    made: Tensor = compute([counts[at] for at in kept] or [as_expr(1)], element, "y")
    return made


def slice_grad(
    dy: Tensor,
    *,
    begin: Sequence[int],
    size: Sequence[int],
    step: Sequence[int],
    shape: Sequence[int],
) -> Tensor:
    """`dy` where a place was taken, and 0 where none was.

    Raises:
        ShapeError: these are not the places of `dy`.
    """
    _within("nn.slice_grad", dy.shape, [0] * len(size), size, [1] * len(size))
    extents = [
        n if e == ALL else as_expr(e) for n, e in zip(dy.shape, shape, strict=True)
    ]
    nothing = as_expr(0, dy.dtype)

    def element(*i: Any) -> Expr:
        place: list[Any] = []
        limits: list[Any] = []
        for at, n in enumerate(i):
            taken = n, begin[at], step[at], size[at], extents[at]
            index, within = _origin(*taken)
            place.append(index)
            limits += within
        read = dy[tuple(place)]
        if not limits:
            return read
        inside: Expr = reduce(and_, limits)
        return select(inside, Load(read.buffer, read.indices, inside), nothing)

    def zero(*_: Any) -> Expr:
        return nothing

    made: Tensor = compute(extents, zero if 0 in size else element, "dx")
    return made


def _within(
    id: str,
    shape: Sequence[Expr],
    begin: Sequence[int],
    size: Sequence[int],
    step: Sequence[int],
) -> None:
    """Refuse places that are not within dimensions of known extent."""
    for extent, *cut in zip(shape, begin, size, step, strict=True):
        if isinstance(extent, Const):
            placed(id, int(extent.value), *cut)


def _origin(
    n: Expr, begin: int, step: int, size: int, extent: Expr
) -> tuple[Expr, list[Expr]]:
    """Which of the places that were taken is place n, and what says that it is one."""
    if size == ALL:
        return n, []
    by = abs(step)
    away = plus(n, -begin) if step > 0 else begin - n
    behind = begin + (size - 1) * step
    low, high = min(begin, behind), max(begin, behind)
    limits = [n >= low] * (low > 0)
    if not (isinstance(extent, Const) and high + by >= int(extent.value)):
        limits.append(n < high + 1)
    if by == 1:
        return away, limits
    return away // by, [*limits, (away % by).equal(0)]


def _times(n: Any, by: int) -> Any:
    return n if by == 1 else n * by
