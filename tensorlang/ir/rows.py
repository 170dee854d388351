"""Definitions along axes: what is folded for a row, and what each element becomes.

    rows = ir.rows.along(x, axis)                     # [m, n], or [m, n, i]
    total = rows.fold("sum", rows.__getitem__, "total")
    y = rows.row(lambda row: total[row] / count, "y")
    return rows.folded(y, keepdims)                   # in the caller's shape

A row is what runs along the axes, neighbours as one dimension; what is folded has the
shape without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.errors import ArgumentError
from tensorlang.ir.dtypes import f32
from tensorlang.ir.elementwise import (
    NARROW,
    elements,
    elementwise_tensors,
    stored,
    wide,
)
from tensorlang.ir.frontend import compute, reduce_axis, reduction, reshaped
from tensorlang.ir.nodes import Const, Expr, Reducer, Select, Var, as_expr
from tensorlang.ir.sizes import require

if TYPE_CHECKING:
    from tensorlang.ir.chunks import Parts
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import Body, Tensor

Index: TypeAlias = "tuple[Any, ...]"
Axes: TypeAlias = "int | tuple[int, ...] | None"
Value: TypeAlias = "Callable[[Index], Expr | tuple[Expr, ...]]"
_SHORT: Final = 64  # rows up to this length are part of the kernel
_LONG_ROW: Final = 1 << 15  # elements from which on a row is cut into parts
_LONG_COLUMN: Final = 1 << 9  # the same of a row whose elements lie apart
_BUSY: Final = 64 * 64  # results from which on there is no need to


@cache
def top_of(dtype: DType) -> Reducer:
    """The largest, in one instruction: undefined where there is a NaN."""
    a, b = Var("a0", dtype), Var("b0", dtype)
    lowest = Const(float("-inf"), dtype)
    return Reducer("top", (a,), (b,), (lowest,), (Select(a > b, a, b),))


@cache
def two_sums(dtype: DType) -> Reducer:
    """Two sums at once."""
    a, b, c, d = (Var(name, dtype) for name in ("a0", "a1", "b0", "b1"))
    zero = Const(0.0, dtype)
    return Reducer("sums", (a, b), (c, d), (zero, zero), (a + c, b + d))


def row_of(at: Index) -> Index:
    """The index of an element's row."""
    return (at[0], *at[2:])


def behind(made: Tensor, *others: Tensor) -> Tensor:
    """A tensor whose stage comes after those of others, which so stand together."""
    assert made.stage is not None
    stage = replace(made.stage, inputs=(*others, *made.stage.inputs))
    return replace(made, stage=stage)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """An array seen along its second dimension, or along others.

    Attributes:
        array: The array.
        dims: The dimensions that a row runs along.
        given: The array in the caller's shape; None where that is its own.
        axes: The caller's axes that a row runs along.
    """

    array: Tensor
    dims: tuple[int, ...] = (1,)
    given: Tensor | None = None
    axes: tuple[int, ...] = (1,)

    def __getitem__(self, at: Index) -> Expr:
        """An element, in the type that is computed in."""
        return wide(self.array[at])

    @property
    def dtype(self) -> DType:
        """The type that is computed in."""
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
        """The index of a place in the row of that number."""
        _, _, *behind = self.array.buffer.shape
        return (row // behind[0], place, row % behind[0]) if behind else (row, place)

    @property
    def is_empty(self) -> bool:
        """Whether a row has no elements."""
        return any(self.array.shape[dim] == 0 for dim in self.dims)

    @property
    def is_long(self) -> bool:
        """Whether a row is worth cutting into parts: there are few, and they are long.

        The result of a fold in parts does not depend on the number of threads.
        """
        if self.dims != (1,):
            return False
        before, length, *behind = self.array.shape
        if not behind:
            return bool(length > _LONG_ROW)
        return bool(length >= 2 * _LONG_COLUMN and before * behind[0] < _BUSY)

    def of(self, at: Index) -> Index:
        """The index of an element's row."""
        return tuple(i for dim, i in enumerate(at) if dim not in self.dims)

    def parts(self, name: str = "") -> Parts:
        """The rows in parts."""
        from tensorlang.ir.chunks import Parts  # noqa: PLC0415 - they are of rows

        return Parts(self, name)

    def fold(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """The values at all places of each row, folded: a tensor a component."""
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
        """The same, in chunks where rows are long."""
        return (self.fold_chunked if self.is_long else self.fold)(reducer, value, name)

    def fold_chunked(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """The same of chunks first, and of their results then."""
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
        """The value at each place."""
        return compute(self.array.shape, lambda *at: value(at), name)

    def row(self, value: Callable[[Index], Expr], name: str) -> Tensor:
        """One value a row."""
        made: Tensor = compute(self.of(self.array.shape), lambda *row: value(row), name)
        return made

    def down(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """The values of all rows `[m, n]`, folded for each place."""
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
        """The caller's shape of one value a row."""
        pairs = enumerate(self._given.shape)
        if keepdims:
            return tuple(1 if at in self.axes else n for at, n in pairs)
        return tuple(n for at, n in pairs if at not in self.axes)

    def folded(self, made: Tensor, *, keepdims: bool) -> Tensor:
        """What has one value a row, as the caller sees it."""
        return reshaped(made, self.shape(keepdims=keepdims))

    def whole(self, made: Tensor) -> Tensor:
        """What has a value for each place, as the caller sees it."""
        return reshaped(made, self._given.shape)

    def a_row(self, given: Tensor) -> Tensor:
        """An array of the caller's that has one value a row, indexed by rows."""
        return reshaped(given, self.of(self.array.shape))

    def each_of(self, given: Tensor, value: Callable[[Expr, Index], Expr]) -> Tensor:
        """The value at each place, of a place and what its row has in such an array."""
        by_row, dtype = self.a_row(given), self.array.dtype

        def element(at: Index) -> Expr:
            return stored(value(wide(by_row[self.of(at)]), at), dtype)

        return self.whole(self.each(element, "dx"))

    def spread(self, given: Tensor, value: Callable[[Expr], Expr]) -> Tensor:
        """A function of such an array's element for each place of its row."""
        kept = reshaped(given, self.shape(keepdims=True))
        over = elementwise_tensors(lambda a, _: value(a), ("a", "x"), {"dx": ""})
        made: Tensor = over(a=kept, x=self._given)
        return made


def along(
    x: Tensor, axis: Axes = None, *, fixed: bool = False, open: bool = False
) -> Rows:
    """An array as rows along an axis, several, or all where it is None.

    Of neighbours it becomes `[m, n]`, rows of length `n`, or `[m, n, i]` where others
    lie behind them, `i` neighbours in memory; of others each run of axes a dimension.

    Args:
        x: The array.
        axis: The axes, counted from the end where they are negative.
        fixed: Whether the length of a row is part of the kernel, and their number is
            not, even where there is one. Otherwise short rows are of fixed length where
            there are several. Here a number is a row of one.
        open: Whether the length of a row and their number are open, even where they
            are 1.

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
    """Arrays of one shape as rows along axes, whose length is part of the kernel.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes differ.
    """
    same_shape(**arrays)
    return tuple(along(array, axis, fixed=True) for array in arrays.values())


def same_shape(**arrays: Tensor) -> None:
    """Refuse arrays of different shapes.

    Raises:
        ShapeError: they differ; names the first two that do.
    """
    (first, one), *others = arrays.items()
    for name, array in others:
        require(
            array.ndim == one.ndim and array.shape == one.shape,
            "{first} has shape {one}, {name} has {other}; they must be the same",
            first=first,
            one=one.shape,
            name=name,
            other=array.shape,
        )


def axes_of(axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted; all where `axis` is None.

    Raises:
        ArgumentError: there is no such axis, or one is named twice.
    """
    if axis is None:
        return tuple(range(rank))
    given: Sequence[int] = axis if isinstance(axis, tuple) else (axis,)
    found = sorted(axis_of(each, rank) for each in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"axis {axis} names an axis twice")
    return tuple(found)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ArgumentError: there is no such axis.
    """
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ArgumentError(f"axis is a whole number, not {axis!r}")
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"axis {axis} does not exist in an array of {rank} dimensions"
        )
    return int(axis) % rank
