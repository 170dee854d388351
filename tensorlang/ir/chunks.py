"""Chunked reductions: chunks of fixed length first, and their results then.

A row `[m, n]` or `[m, n, i]` is cut into parts of one length and a rest. How it is cut
depends on nothing but the rows, so the same bits come out of any number of threads.
Whole parts and the rest have nests of their own: no condition in the loop over either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.ir.frontend import Body, Tensor, compute, reduce_axis, reduction
from tensorlang.ir.nodes import Binary, Block, For, Var, as_expr
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import substitute

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Reducer, Stmt
    from tensorlang.ir.rows import Index, Rows

_ELEMENTS: Final = 1 << 13  # of a part, where they are neighbours
_STEPS: Final = 1 << 8  # of a part, where they are not
WHOLE: Final = 0
REST: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """What was folded of each part: of whole ones, and of all."""

    whole: Tensor
    every: Tensor

    def of(self, side: int) -> Tensor:
        """What may be read where whole parts are folded, or the rest."""
        return self.whole if side == WHOLE else self.every

    def __getitem__(self, part: Index) -> Expr:
        """The result of a part, when all are there."""
        return self.every[part]


# from WHOLE or REST, a part and a place in it
Value: TypeAlias = "Callable[[int, Index, Index], Expr | tuple[Expr, ...]]"


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of rows; indices of parts are `(part, m, i)`, without an `m` of 1."""

    rows: Rows
    name: str = ""

    @property
    def length(self) -> int:
        """The length of a part."""
        return _ELEMENTS if self.rows.array.buffer.ndim == 2 else _STEPS

    @property
    def number(self) -> Expr:
        """How many parts a row has, the rest among them."""
        return (self.rows.length + (self.length - 1)) // self.length

    @property
    def _single(self) -> bool:
        return as_expr(self.rows.array.shape[0]) == as_expr(1)

    @property
    def _shape(self) -> tuple[Expr, ...]:
        m, _, *behind = self.rows.array.shape
        return (self.number, *([] if self._single else [m]), *behind)

    def row(self, part: Index) -> Index:
        """The row that a part is of."""
        return (0, *part[1:]) if self._single else part[1:]

    def count(self, part: Index) -> Expr:
        """How many elements a part has."""
        left = self.rows.length - part[0] * self.length
        return Binary("min", left, as_expr(self.length))

    def fold(
        self, reducer: str | Reducer, value: Value, name: str | tuple[str, ...]
    ) -> Any:
        """The values at all places of each part, folded: a `Folded` a component."""
        whole = self._nest(reducer, value, name, WHOLE)
        every = self._nest(reducer, value, name, REST)
        stage = every[0].stage
        assert stage is not None
        # the buffers are made once, by the first of both nests
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
        """The fold of whole parts, or of the rest, in a nest of its own."""
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
        """The values of all parts of each row, folded."""
        axis = reduce_axis(self.number, f"{self.name}p")

        def folded(*row: Var) -> Body:
            behind = row[1:] if self._single else row
            return reduction(reducer, value((axis.var, *behind)), axis)

        m, _, *behind = self.rows.array.shape
        return compute((m, *behind), folded, name)


def _upto(nest: Stmt, whole: Expr) -> Stmt:
    """The nest over whole parts."""
    assert isinstance(nest, For)
    return replace(nest, extent=whole)


def _rows_first(nest: Stmt) -> Stmt:
    """The parts of a row one after the other, as they lie in memory."""
    assert isinstance(nest, For)
    assert isinstance(nest.body, For)
    return replace(nest.body, body=replace(nest, body=nest.body.body))


def _cut(nest: Stmt, whole: Expr, parts: Parts) -> Stmt:
    """The nest over what whole parts leave: no part, or one that is shorter."""
    assert isinstance(nest, For)
    count = simplify(parts.number - whole)
    rest = simplify(parts.rows.length - whole * parts.length)
    return replace(nest, extent=count, body=_rest(nest.body, nest.var, whole, rest))


def _rest(nest: Stmt, part: Var, whole: Expr, extent: Expr) -> Stmt:
    """The loops inside with a shorter innermost one, and parts counted from `whole`."""
    if isinstance(nest, For):
        innermost = isinstance(nest.body, Block)
        body = _rest(nest.body, part, whole, extent)
        return replace(nest, extent=extent if innermost else nest.extent, body=body)
    assert isinstance(nest, Block)
    own = next(axis.var for axis in nest.axes if axis.value == part)
    body = substitute(nest.body, {own: whole + own})
    return replace(nest, name=f"{nest.name}_rest", body=body)
