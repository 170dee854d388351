"""Definitions along axes: reductions of rows, and elementwise results of them.

    rows = ir.rows.along(x, axis)                     # [m, n], or [m, n, i]
    total = rows.fold("sum", rows.__getitem__, "total")
    y = rows.row(lambda row: total[row] / count, "y")
    return rows.folded(y, keepdims)                   # in the caller's shape

A row runs along the axes, adjacent ones merged into one dimension; reduced results have
the shape without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any, Final, TypeAlias

from tensorlang import lazy
from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen
from tensorlang.ir.definitions.elementwise import NARROW, elements, stored, wide
from tensorlang.ir.definitions.frontend import (
    Body,
    Tensor,
    compute,
    reduce_axis,
    reduction,
    reshaped,
)
from tensorlang.ir.definitions.reducers import lowest, reducer
from tensorlang.ir.definitions.sizes import require
from tensorlang.ir.dtypes import DType, f32
from tensorlang.ir.intrinsics import greater_number
from tensorlang.ir.nodes import Const, Expr, Reducer, Select, Var, as_expr

with lazy.modules(__name__):  # they load the simplifier
    from tensorlang.ir.definitions import chunks


Index: TypeAlias = "tuple[Any, ...]"
Axes: TypeAlias = "int | tuple[int, ...] | None"
Value: TypeAlias = "Callable[[Index], Expr | tuple[Expr, ...]]"
_SHORT: Final = 64  # row length up to which it is a compile-time constant
_LONG_ROW: Final = 1 << 15  # elements from which on a row is reduced in chunks
_LONG_COLUMN: Final = 1 << 9  # likewise, for a row of strided elements
_BUSY: Final = 64 * 64  # results from which on chunks are unnecessary
_CHUNKED: Final[ContextVar[bool]] = ContextVar("chunked", default=True)


@contextmanager
def unchunked() -> Iterator[None]:
    """Context in which rows of any length are reduced in one stage.

    Chunks only reorder a reduction: derivatives are those of the unchunked one.
    """
    token = _CHUNKED.set(False)
    try:
        yield
    finally:
        _CHUNKED.reset(token)


@cache
def top_of(dtype: DType) -> Reducer:
    """Maximum in one instruction: undefined for NaN inputs."""
    return reducer(
        "top",
        (dtype,),
        (lowest(dtype),),
        lambda a, b: (Select(a[0] > b[0], a[0], b[0]),),
    )


@cache
def greatest_number() -> Reducer:
    """Maximum of f32 in one instruction of a CUDA GPU, which ignores NaN."""
    return reducer(
        "greatest_number",
        (f32,),
        (lowest(f32),),
        lambda a, b: (greater_number(a[0], b[0]),),
    )


@cache
def two_sums(dtype: DType) -> Reducer:
    """Two sums at once."""
    zeros = (Const(0.0, dtype),) * 2
    return reducer(
        "sums", (dtype, dtype), zeros, lambda a, b: (a[0] + b[0], a[1] + b[1])
    )


def row_of(at: Index) -> Index:
    """The index of an element's row."""
    return (at[0], *at[2:])


def behind(made: Tensor, *others: Tensor) -> Tensor:
    """A tensor with its stage placed after those of others, making them adjacent."""
    assert made.stage is not None
    stage = replace(made.stage, inputs=(*others, *made.stage.inputs))
    return replace(made, stage=stage)


@frozen(eq=False)
class Rows:
    """An array viewed as rows along its second dimension, or along others."""

    array: Tensor
    dims: tuple[int, ...] = (1,)  # dimensions that a row runs along
    given: Tensor | None = None  # array in the caller's shape; None if that is the same
    axes: tuple[int, ...] = (1,)  # caller's axes that a row runs along

    def __getitem__(self, at: Index) -> Expr:
        """An element, in the compute type."""
        return wide(self.array[at])

    @property
    def dtype(self) -> DType:
        """The compute type."""
        return f32 if self.array.dtype.name in NARROW else self.array.dtype

    @property
    def length(self) -> Expr:
        """The number of elements in a row."""
        whole, *others = (as_expr(self.array.shape[dim]) for dim in self.dims)
        for extent in others:
            whole = whole * extent
        return whole

    @property
    def count(self) -> Expr:
        """The number of rows of `[m, n]` or `[m, n, i]`."""
        count, _, *behind = self.array.buffer.shape
        return count * behind[0] if behind else count

    def at(self, row: Expr, place: Expr) -> Index:
        """The index of an element, by row number and position in the row."""
        _, _, *behind = self.array.buffer.shape
        return (row // behind[0], place, row % behind[0]) if behind else (row, place)

    @property
    def is_empty(self) -> bool:
        """Whether a row has no elements."""
        return any(self.array.shape[dim] == 0 for dim in self.dims)

    @property
    def is_long(self) -> bool:
        """Whether rows are worth chunking: few and long ones.

        The result of a chunked reduction does not depend on the number of threads.
        """
        if self.dims != (1,) or not _CHUNKED.get():
            return False
        before, length, *behind = self.array.shape
        if not behind:
            return bool(length > _LONG_ROW)
        return bool(length >= 2 * _LONG_COLUMN and before * behind[0] < _BUSY)

    def of(self, at: Index) -> Index:
        """The index of an element's row."""
        return tuple(i for dim, i in enumerate(at) if dim not in self.dims)

    def parts(self, name: str = "") -> chunks.Parts:
        """The rows in chunks."""
        return chunks.Parts(self, name)

    def fold(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """Reduce the values at all positions of each row: one tensor per component."""
        axes = {
            dim: reduce_axis(self.array.shape[dim], f"k{n}" if n else "k")
            for n, dim in enumerate(self.dims)
        }

        def folded(*row: Var) -> Body:
            own = iter(row)
            at = tuple(
                axes[dim].var if dim in axes else next(own)
                for dim in range(self.array.buffer.ndim)
            )
            return reduction(reducer, value(at), list(axes.values()))

        return compute(self.of(self.array.shape), folded, name)

    def fold_long(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """Like `fold`, in chunks if rows are long."""
        return (self.fold_chunked if self.is_long else self.fold)(reducer, value, name)

    def fold_chunked(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> object:
        """Two-stage chunked reduction: reduce chunks, then combine their results."""
        one = isinstance(name, str)
        names = (name,) if isinstance(name, str) else name
        parts = self.parts(names[0] if one else "")
        own = tuple(f"{each}_of_part" for each in names)
        found = parts.fold(reducer, lambda _, __, at: value(at), own[0] if one else own)
        several = found if isinstance(found, tuple) else (found,)

        def of(part: Index) -> Expr | tuple[Expr, ...]:
            values = tuple(each[part] for each in several)
            return values[0] if one else values

        return parts.total(reducer, of, name)

    def each(self, value: Callable[[Index], Body], name: str | tuple[str, ...]) -> Any:
        """The value at each position."""
        return compute(self.array.shape, lambda *i: value(i), name)

    def row(self, value: Callable[[Index], Expr], name: str) -> Tensor:
        """One value per row."""
        return compute(self.of(self.array.shape), lambda *row: value(row), name)

    def down(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """Reduce the values of all rows `[m, n]`, for each column."""
        m, n = self.array.shape
        axis = reduce_axis(m, "r")

        def folded(c: Var) -> Body:
            return reduction(reducer, value((axis.var, c)), axis)

        return compute((n,), folded, name)

    # ------------------------------------------------------------ the caller's shape

    @property
    def _given(self) -> Tensor:
        return self.array if self.given is None else self.given

    def shape(self, *, keepdims: bool) -> Index:
        """The caller's shape of one value per row."""
        pairs = enumerate(self._given.shape)
        if keepdims:
            return tuple(1 if at in self.axes else n for at, n in pairs)
        return tuple(n for at, n in pairs if at not in self.axes)

    def folded(self, made: Tensor, *, keepdims: bool) -> Tensor:
        """A tensor with one value per row, in the caller's shape."""
        return reshaped(made, self.shape(keepdims=keepdims))

    def whole(self, made: Tensor) -> Tensor:
        """A tensor with a value per element, in the caller's shape."""
        return reshaped(made, self._given.shape)

    def a_row(self, given: Tensor) -> Tensor:
        """A caller's array with one value per row, indexed by rows."""
        return reshaped(given, self.of(self.array.shape))

    def each_of(self, given: Tensor, value: Callable[[Expr, Index], Expr]) -> Tensor:
        """A value per element, computed from the element and its row's value."""
        by_row, dtype = self.a_row(given), self.array.dtype

        def element(at: Index) -> Expr:
            return stored(value(wide(by_row[self.of(at)]), at), dtype)

        return self.whole(self.each(element, "dx"))


def along(
    x: Tensor, axis: Axes = None, *, fixed: bool = False, open: bool = False
) -> Rows:
    """View an array as rows along an axis, several, or all if it is None.

    For adjacent axes the view is `[m, n]`, rows of length `n`, or `[m, n, i]` if others
    follow, with `i` contiguous elements; otherwise each run of axes is one dimension.

    Args:
        axis: The axes; negative ones count from the end.
        fixed: Whether the length of a row is a compile-time constant and the number of
            rows is dynamic, even if it is 1. Otherwise the length is constant if rows
            are short and there are several. A scalar is then a row of one.
        open: Whether the length and the number of rows are dynamic, even if they are 1.

    Raises:
        ArgumentError: there is no such axis, or one is named twice.
    """
    extents = (x.shape or (1,)) if fixed else x.shape
    rank = len(extents)
    axes = axes_of(axis, rank)
    real = [at for at in range(rank) if extents[at] != 1]
    runs = [list(run) for _, run in groupby(real, lambda at: at in axes)]
    dims = tuple(n for n, run in enumerate(runs) if run[0] in axes)
    if len(dims) > 1:
        shape = tuple(math.prod(extents[at] for at in run) for run in runs)
        return Rows(reshaped(x, shape), dims, x, axes)
    own = runs[dims[0]] if dims else [rank]
    before = tuple(extents[at] for at in real if at < own[0])
    behind = [extents[at] for at in real if at > own[-1]]
    length = elements(tuple(extents[at] for at in own if at < rank))
    if fixed or (not open and before and not behind and length <= _SHORT):
        length = math.prod(int(extents[at]) for at in own if at < rank)
    count = elements(before, "m") if fixed or open else math.prod(before)
    shape = (count, length, math.prod(behind))[: 3 if behind else 2]
    return Rows(reshaped(x, shape), (1,), x, axes)


def together(axis: Axes, **arrays: Tensor) -> tuple[Rows, ...]:
    """View arrays of one shape as rows of compile-time constant length.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes differ.
    """
    same_shape(**arrays)
    return tuple(along(array, axis, fixed=True) for array in arrays.values())


def same_shape(**arrays: Tensor) -> None:
    """ShapeError if shapes differ, with the first two that do."""
    (first, one), *others = arrays.items()
    for name, array in others:
        require(
            array.ndim == one.ndim and array.shape == one.shape,
            f"{first} has shape {one.shape}, {name} has {array.shape}; they must be "
            "the same",
        )


def axes_of(axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted; all if `axis` is None.

    A scalar has axes 0 and -1, as in PyTorch: those of the array of its one element.

    Raises:
        ArgumentError: there is no such axis, or one is named twice.
    """
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple) else (axis,)
    if not rank and given in {(0,), (-1,)}:
        return ()
    found = sorted(axis_of(each, rank) for each in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"axis {axis} names an axis twice")
    return tuple(found)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; ArgumentError if there is no such axis."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ArgumentError(f"axis is a whole number, not {axis!r}")
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"axis {axis} does not exist in an array of {rank} dimensions"
        )
    return int(axis) % rank
