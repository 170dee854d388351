"""Two-stage chunked reductions: reduce chunks of fixed length, then their results.

Rows of `[m, n]` or `[m, n, i]` are split into chunks of one length and a remainder. The
split depends only on the rows, so results are bitwise independent of the number of
threads. Whole chunks and the remainder have separate nests, whose loops are free of
conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ir.definitions.frontend import (
    Body,
    Tensor,
    compute,
    reduce_axis,
    reduction,
)
from tensorlang.ir.nodes import Binary, Block, Expr, For, Reducer, Stmt, Var, as_expr
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import substitute

if TYPE_CHECKING:
    from tensorlang.ir.definitions.rows import Index, Rows

_ELEMENTS: Final = 1 << 13  # of a chunk of contiguous elements
_STEPS: Final = 1 << 8  # of a chunk of strided elements
WHOLE: Final = 0
REST: Final = 1


@frozen(eq=False)
class Folded:
    """The results of chunks: of whole ones, and of all."""

    whole: Tensor
    every: Tensor

    def of(self, side: int) -> Tensor:
        """What may be read while whole chunks are reduced, or the remainder."""
        return self.whole if side == WHOLE else self.every

    def __getitem__(self, part: Index) -> Expr:
        """The result of a chunk, once all are computed."""
        return self.every[part]


# from WHOLE or REST, a chunk and a position in its row
Value: TypeAlias = "Callable[[int, Index, Index], Expr | tuple[Expr, ...]]"


@frozen(eq=False)
class Parts:
    """The chunks of rows; their indices are `(part, m, i)`, without an `m` of 1."""

    rows: Rows
    name: str = ""

    @property
    def length(self) -> int:
        """The length of a chunk."""
        return _ELEMENTS if self.rows.array.buffer.ndim == 2 else _STEPS

    @property
    def number(self) -> Expr:
        """The number of chunks of a row, including the remainder."""
        return (self.rows.length + (self.length - 1)) // self.length

    @property
    def _single(self) -> bool:
        return as_expr(self.rows.array.shape[0]) == as_expr(1)

    @property
    def _shape(self) -> tuple[Expr, ...]:
        m, _, *behind = self.rows.array.shape
        return (self.number, *([] if self._single else [m]), *behind)

    def row(self, part: Index) -> Index:
        """The row of a chunk."""
        return (0, *part[1:]) if self._single else part[1:]

    def count(self, part: Index) -> Expr:
        """The number of elements of a chunk."""
        left = self.rows.length - part[0] * self.length
        return Binary("min", left, as_expr(self.length))

    def fold(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """Reduce the values at all positions of each chunk: `Folded` components."""
        whole = self._nest(reducer, value, name, WHOLE)
        every = self._nest(reducer, value, name, REST)
        stage = every[0].stage
        assert stage is not None
        # the buffers are allocated once, for the first of both nests
        both = replace(stage, outputs=(), inputs=(*stage.inputs, whole[0]))
        made = tuple(Folded(each, Tensor(each.buffer, both)) for each in whole)
        return made if len(made) > 1 else made[0]

    def _nest(
        self,
        reducer: str | Reducer,
        value: Value,
        name: str | tuple[str, ...],
        side: int,
    ) -> tuple[Tensor, ...]:
        """Reduce whole chunks, or the remainder, in a nest of its own."""
        axis = reduce_axis(self.length, f"{self.name}k")

        def folded(*part: Var) -> Body:
            m, *behind = self.row(part)
            at = (m, part[0] * self.length + axis.var, *behind)
            return reduction(reducer, value(side, part, at), axis)

        made = compute(self._shape, folded, name)
        tensors = made if isinstance(made, tuple) else (made,)
        old = tensors[0].stage
        assert old is not None
        whole = self.rows.length // self.length
        nest = _cut(old.nest, whole, self) if side == REST else _upto(old.nest, whole)
        if len(self._shape) == 2 and not self.rows.array.shape[2:]:
            nest = _rows_first(nest)
        stage = replace(old, nest=nest)
        return tuple(Tensor(tensor.buffer, stage) for tensor in tensors)

    def total(
        self,
        reducer: str | Reducer,
        value: Callable[[Index], Expr | tuple[Expr, ...]],
        name: str | tuple[str, ...],
    ) -> Any:
        """Combine the values of all chunks of each row."""
        axis = reduce_axis(self.number, f"{self.name}p")

        def folded(*row: Var) -> Body:
            behind = row[1:] if self._single else row
            return reduction(reducer, value((axis.var, *behind)), axis)

        m, _, *behind = self.rows.array.shape
        return compute((m, *behind), folded, name)


def _upto(nest: Stmt, whole: Expr) -> Stmt:
    """The nest over whole chunks."""
    assert isinstance(nest, For)
    return replace(nest, extent=whole)


def _rows_first(nest: Stmt) -> Stmt:
    """Reorder to visit the chunks of a row in memory order."""
    assert isinstance(nest, For)
    assert isinstance(nest.body, For)
    return replace(nest.body, body=replace(nest, body=nest.body.body))


def _cut(nest: Stmt, whole: Expr, parts: Parts) -> Stmt:
    """The nest over the remainder: no chunk, or a shorter one."""
    assert isinstance(nest, For)
    count = simplify(parts.number - whole)
    rest = simplify(parts.rows.length - whole * parts.length)
    return replace(nest, extent=count, body=_rest(nest.body, nest.var, whole, rest))


def _rest(nest: Stmt, part: Var, whole: Expr, extent: Expr) -> Stmt:
    """The inner loops with a shorter innermost one; chunks counted from `whole`."""
    if isinstance(nest, For):
        innermost = isinstance(nest.body, Block)
        body = _rest(nest.body, part, whole, extent)
        return replace(nest, extent=extent if innermost else nest.extent, body=body)
    assert isinstance(nest, Block)
    own = next(axis.var for axis in nest.axes if axis.value == part)
    body = substitute(nest.body, {own: whole + own})
    return replace(nest, name=f"{nest.name}_rest", body=body)
