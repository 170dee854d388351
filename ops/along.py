"""Definitions along one axis: what is folded for a row, and what each element becomes.

A row is whatever runs along the second dimension of an array `[m, n]` or `[m, n, i]`;
what is folded has the shape without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang.ir import compute, f32, reduce_axis, reduction
from tensorlang.ir.nodes import Const, Reducer, Select, Var
from tensorlang.ops.assembling import NARROW, wide

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

Index: TypeAlias = "tuple[Any, ...]"


@cache
def top_of(dtype: DType) -> Reducer:
    """The largest, in one instruction: it means nothing where there is a NaN."""
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
    """

    array: Tensor
    dims: tuple[int, ...] = (1,)

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
        whole: Expr
        whole, *others = (self.array.shape[dim] for dim in self.dims)
        for extent in others:
            whole = whole * extent
        return whole

    def of(self, at: Index) -> Index:
        """The index of an element's row."""
        return tuple(i for dim, i in enumerate(at) if dim not in self.dims)

    def fold(
        self,
        reducer: str | Reducer,
        value: Callable[[Index], Expr | tuple[Expr, ...]],
        name: str | tuple[str, ...],
    ) -> Any:
        """The values at all places of each row, folded: a tensor a component."""
        axes = {
            dim: reduce_axis(self.array.shape[dim], f"k{n}" if n else "k")
            for n, dim in enumerate(self.dims)
        }

        def folded(*row: Any) -> Any:
            own = iter(row)
            at = tuple(
                axes[dim].var if dim in axes else next(own)
                for dim in range(self.array.buffer.ndim)
            )
            return reduction(reducer, value(at), list(axes.values()))

        return compute(self.of(self.array.shape), folded, name)

    def each(self, value: Callable[[Index], Any], name: str | tuple[str, ...]) -> Any:
        """The value at each place."""
        return compute(self.array.shape, lambda *at: value(at), name)

    def row(self, value: Callable[[Index], Expr], name: str) -> Tensor:
        """One value a row."""
        made: Tensor = compute(self.of(self.array.shape), lambda *row: value(row), name)
        return made

    def down(
        self,
        reducer: str | Reducer,
        value: Callable[[Index], Expr | tuple[Expr, ...]],
        name: str | tuple[str, ...],
    ) -> Any:
        """The values of all rows `[m, n]`, folded for each place."""
        m, n = self.array.shape
        axis = reduce_axis(m, "r")

        def folded(c: Any) -> Any:
            return reduction(reducer, value((axis.var, c)), axis)

        return compute((n,), folded, name)
