"""Sorting rows `[m, n]`, stably, as loops.

Short rows by counting: an element's place is the number of those that come before it.
Long rows by radix, a byte at a time from the lowest (Zagha and Blelloch, "Radix sort
for vector multiprocessors", 1991): each row is one program, and rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang.ir import as_expr, compute, i32, i64, reduce_axis
from tensorlang.ir import sum as fold
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Const,
    For,
    Let,
    Load,
    Select,
    Store,
    Var,
    seq,
)
from tensorlang.ops.math.sort_keys import digits, key_of, key_type, value_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Stmt

_BINS = 256
_BITS = 8
_ROW = Var("r", i64)
# from the element's row, its position before, and its place after: what is stored where
_Placed: TypeAlias = "Callable[[Expr, Expr, Expr], Store]"


def sort(x: Tensor, *, long: bool, descending: bool) -> Tensor:
    """The values in order, NaN last, or first where descending."""
    y = Buffer("y", x.dtype, x.shape)
    if not long:
        return _counted(
            x, y, (x,), lambda r, i, p: Store(y, (r, p), x[r, i]), descending=descending
        )
    radix = _Radix(x, descending=descending, ordered=False)
    final = radix.row(lambda r, i: Store(y, (r, i), radix.value(i)))
    return Tensor(y, Stage(final, (y,), (x,)))


def argsort(x: Tensor, *, long: bool, descending: bool) -> Tensor:
    """The positions of the values in order; equal ones in their old order."""
    at = Buffer("at", i64, x.shape)
    if not long:
        return _counted(
            x, at, (x,), lambda r, i, p: Store(at, (r, p), i), descending=descending
        )
    radix = _Radix(x, descending=descending, ordered=True)
    final = radix.row(lambda r, i: Store(at, (r, i), radix.position(i)))
    return Tensor(at, Stage(final, (at,), (x,)))


def sort_grad(dy: Tensor, x: Tensor, *, long: bool, descending: bool) -> Tensor:
    """Each element's share of dy, from the place that it was sorted to."""
    dx = Buffer("dx", x.dtype, x.shape)
    if not long:
        return _counted(
            x,
            dx,
            (dy, x),
            lambda r, i, p: Store(dx, (r, i), dy[r, p]),
            descending=descending,
        )
    radix = _Radix(x, descending=descending, ordered=True)
    final = radix.row(lambda r, i: Store(dx, (r, radix.position(i)), dy[r, i]))
    return Tensor(dx, Stage(final, (dx,), (dy, x)))


# ------------------------------------------------------------------ short: counted


def _counted(
    x: Tensor,
    result: Buffer,
    inputs: tuple[Tensor, ...],
    placed: _Placed,
    *,
    descending: bool,
) -> Tensor:
    """Rows whose elements are put where the number of smaller ones says."""
    key: Tensor = compute(
        x.shape, lambda r, i: key_of(x[r, i], exact=False, descending=descending), "key"
    )
    j = reduce_axis(x.shape[1], "j")
    one, zero = as_expr(1, i32), as_expr(0, i32)

    def before(r: Any, i: Any) -> Expr:
        other, own = key[r, j], key[r, i]
        earlier = j.var < i
        return Select((other < own) | (other.equal(own) & earlier), one, zero)

    rank: Tensor = compute(x.shape, lambda r, i: fold(before(r, i), j), "rank")
    axes = [_axis("r", x.shape[0]), _axis("i", x.shape[1], "disjoint")]
    row, at = (axis.var for axis in axes)
    body = placed(row, at, rank[row, at].cast(i64))
    nest = _nest(result.name, axes, body)
    return Tensor(result, Stage(nest, (result,), (rank, *inputs)))


def _axis(name: str, extent: Expr, kind: str = "spatial") -> Axis:
    return Axis(Var(f"v{name}", i64), kind, extent, Var(name, i64))


def _nest(name: str, axes: Sequence[Axis], body: Stmt) -> Stmt:
    made: Stmt = Block(name, tuple(axes), body)
    for axis in reversed(axes):
        assert isinstance(axis.value, Var)
        made = For(axis.value, axis.extent, "serial", made)
    return made


# --------------------------------------------------------------------- long: radix


@dataclass(frozen=True, slots=True)
class _Radix:
    """The program of a row: its keys (and their positions) there and back, by bytes."""

    x: Tensor
    descending: bool
    ordered: bool

    @property
    def _length(self) -> Expr:
        length: Expr = self.x.shape[1]
        return length

    def _buffers(self, side: int) -> tuple[Buffer, ...]:
        """Keys, and positions where they are asked for: here or there."""
        keys = Buffer(f"keys_{side}", key_type(self.x.dtype), (self._length,))
        if not self.ordered:
            return (keys,)
        return keys, Buffer(f"order_{side}", i32, (self._length,))

    @property
    def _last(self) -> int:
        """The side that all passes end on."""
        return digits(self.x.dtype) % 2

    def value(self, at: Expr) -> Expr:
        """A value of the sorted row."""
        keys = self._buffers(self._last)[0]
        return value_of(Load(keys, (at,)), self.x.dtype, descending=self.descending)

    def position(self, at: Expr) -> Expr:
        """Where an element of the sorted row was before."""
        return Load(self._buffers(self._last)[1], (at,)).cast(i64)

    def _over(self, name: str, step: Axis, body: Stmt) -> Stmt:
        """A loop over a row's steps, of a block that is the row's own."""
        assert isinstance(step.value, Var)
        block = Block(name, (self._owner(name), step), body)
        return For(step.value, step.extent, "serial", block)

    def _owner(self, name: str) -> Axis:
        return Axis(Var(f"vr_{name}", i64), "spatial", self.x.shape[0], _ROW)

    def row(self, final: Callable[[Expr, Expr], Store]) -> Stmt:
        """All rows; `final` says what is stored, from the row and a place in it."""
        step = _axis("last", self._length, "disjoint")
        store = final(self._owner("y_final").var, step.var)
        count = Buffer("count", i32, (as_expr(_BINS),))
        buffers = [*self._buffers(0), *self._buffers(1), count]
        return For(
            _ROW,
            self.x.shape[0],
            "serial",
            seq(
                [Alloc(buffer) for buffer in buffers],
                self._keys(),
                [self._pass(digit, count) for digit in range(digits(self.x.dtype))],
                self._over("y_final", step, store),
            ),
        )

    def _keys(self) -> Stmt:
        step = _axis("first", self._length)
        keys, *order = self._buffers(0)
        key = key_of(
            self.x[self._owner("keys").var, step.var],
            exact=not self.ordered,
            descending=self.descending,
        )
        stores = [Store(keys, (step.var,), key)]
        stores += [Store(held, (step.var,), step.var.cast(i32)) for held in order]
        return self._over("keys", step, seq(stores))

    def _pass(self, digit: int, count: Buffer) -> Stmt:
        """One stable counting sort: count, sum up, move."""
        here, there = self._buffers(digit % 2), self._buffers(1 - digit % 2)
        clear = _axis(f"clear_{digit}", as_expr(_BINS))
        zero = as_expr(0, i32)
        return seq(
            self._over(f"clear_{digit}", clear, Store(count, (clear.var,), zero)),
            self._count(digit, here[0], count),
            self._sum(digit, count),
            self._move(digit, here, there, count),
        )

    def _bin(self, digit: int, keys: Buffer, at: Expr) -> Expr:
        key = Load(keys, (at,))
        return ((key >> (digit * _BITS)) & (_BINS - 1)).cast(i64)

    def _count(self, digit: int, keys: Buffer, count: Buffer) -> Stmt:
        step, found = _axis(f"count_{digit}", self._length, "ordered"), Var("bin", i64)
        body = seq(
            Let(found, self._bin(digit, keys, step.var)),
            Store(count, (found,), Load(count, (found,)) + 1),
        )
        return self._over(f"count_{digit}", step, body)

    def _sum(self, digit: int, count: Buffer) -> Stmt:
        """The place of the first key of each bin."""
        step = _axis(f"sum_{digit}", as_expr(_BINS), "ordered")
        total = Buffer(f"total_{digit}", i32, (as_expr(1),), "register")
        held, start = Var("held", i32), (as_expr(0),)
        body = seq(
            Let(held, Load(count, (step.var,))),
            Store(count, (step.var,), Load(total, start)),
            Store(total, start, Load(total, start) + held),
        )
        return seq(
            Alloc(total),
            Store(total, start, Const(0, i32)),
            self._over(f"sum_{digit}", step, body),
        )

    def _move(
        self,
        digit: int,
        here: tuple[Buffer, ...],
        there: tuple[Buffer, ...],
        count: Buffer,
    ) -> Stmt:
        step = _axis(f"move_{digit}", self._length, "ordered")
        found, place = Var("bin", i64), Var("place", i32)
        to = (place.cast(i64),)
        body = seq(
            Let(found, self._bin(digit, here[0], step.var)),
            Let(place, Load(count, (found,))),
            Store(count, (found,), place + 1),
            [
                Store(b, to, Load(a, (step.var,)))
                for a, b in zip(here, there, strict=True)
            ],
        )
        return self._over(f"move_{digit}", step, body)
