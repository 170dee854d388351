"""Stable sorting along an axis, as loops.

Short rows by rank: an element's place is the number of elements that precede it in
order. Long rows by LSD radix sort with 8-bit digits (Zagha and Blelloch, "Radix sort
for vector multiprocessors", 1991), sequential within a row, parallel across rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.ir import as_expr, compute, i32, i64, reduce_axis, rows
from tensorlang.ir import sum as fold
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nests import axis, nest
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
    from tensorlang.ir.rows import Rows

_BINS: Final = 256
_BITS: Final = 8
_ROW: Final = Var("r", i64)
# (row, sorted place, original position, value) -> the store of one sorted element
Placed: TypeAlias = "Callable[[Expr, Expr, Expr, Expr], Store]"


def values(x: Tensor, axis: int, descending: bool) -> Sort:
    """The sorted values; NaN last, or first if descending."""
    own = rows.along(x, axis, open=True)
    y = Buffer("y", x.dtype, own.array.buffer.shape)

    def placed(r: Expr, to: Expr, _: Expr, value: Expr) -> Store:
        return Store(y, own.at(r, to), value)

    return Sort(own, y, (own.array,), placed, False, descending)


def positions(x: Tensor, axis: int, descending: bool) -> Sort:
    """The original positions in sorted order; stable."""
    own = rows.along(x, axis, open=True)
    found = Buffer("at", i64, own.array.buffer.shape)

    def placed(r: Expr, to: Expr, at: Expr, _: Expr) -> Store:
        return Store(found, own.at(r, to), at)

    return Sort(own, found, (own.array,), placed, True, descending)


def gradient(dy: Tensor, x: Tensor, axis: int, descending: bool) -> Sort:
    """dx: scatter dy back from each element's sorted place."""
    rows.same_shape(dy=dy, x=x)
    given, own = (rows.along(array, axis, open=True) for array in (dy, x))
    dx = Buffer("dx", x.dtype, own.array.buffer.shape)

    def placed(r: Expr, to: Expr, at: Expr, _: Expr) -> Store:
        return Store(dx, own.at(r, at), given.array[own.at(r, to)])

    return Sort(own, dx, (given.array, own.array), placed, True, descending)


@dataclass(frozen=True, slots=True)
class Sort:
    """Rows to sort, and what is stored of their order.

    Attributes:
        rows: The rows to sort.
        result: The output buffer.
        inputs: All arrays read.
        placed: Builds the store of one sorted element.
        ordered: Whether `placed` needs original positions (i64) rather than values.
        descending: Whether the largest comes first.
    """

    rows: Rows
    result: Buffer
    inputs: tuple[Tensor, ...]
    placed: Placed
    ordered: bool
    descending: bool

    @property
    def array(self) -> Tensor:
        """The array to sort."""
        return self.rows.array

    def key(self, r: Expr, at: Expr, *, exact: bool) -> Expr:
        """The sort key of an element."""
        value = self.array[self.rows.at(r, at)]
        return key_of(value, exact=exact, descending=self.descending)

    def value(self, key: Expr) -> Expr:
        """The value an exact key encodes."""
        return value_of(key, self.array.dtype, descending=self.descending)

    def made(self, nest: Stmt, *held: Buffer, after: Sequence[Tensor] = ()) -> Tensor:
        """The result of a nest, given its scratch buffers and further inputs."""
        stage = Stage(nest, (*held, self.result), (*after, *self.inputs))
        return self.rows.whole(Tensor(self.result, stage))

    def by_loops(self, counted: int) -> Tensor:
        """The result; rows of at most `counted` elements are sorted by rank."""
        if self.array.shape[1] <= counted:
            return _counted(self)
        return self.made(_Radix(self).row())


# ------------------------------------------------------------------ short: by rank


def _counted(sort: Sort) -> Tensor:
    """Place each element at its rank, the number of elements that precede it."""
    shape = (sort.rows.count, sort.rows.length)
    key: Tensor = compute(shape, lambda r, i: sort.key(r, i, exact=False), "key")
    j = reduce_axis(sort.rows.length, "j")
    one, zero = as_expr(1, i32), as_expr(0, i32)

    def before(r: object, i: Any) -> Expr:
        other, own = key[r, j], key[r, i]
        earlier = j.var < i
        return Select((other < own) | (other.equal(own) & earlier), one, zero)

    rank: Tensor = compute(shape, lambda r, i: fold(before(r, i), j), "rank")
    axes = [axis("r", shape[0]), axis("i", shape[1], "disjoint")]
    row, at = (axis.var for axis in axes)
    value = sort.array[sort.rows.at(row, at)]
    placed = sort.placed(row, rank[row, at].cast(i64), at, value)
    return sort.made(nest(sort.result.name, axes, placed), after=(rank,))


# --------------------------------------------------------------------- long: radix


@dataclass(frozen=True, slots=True)
class _Radix:
    """The sort of one row: passes by byte that move keys (and positions) to and fro."""

    sort: Sort

    @property
    def _digits(self) -> int:
        return digits(self.sort.array.dtype)

    def _buffers(self, side: int) -> tuple[Buffer, ...]:
        """Keys, and positions if needed, of one of the two ping-pong sides."""
        kind, shape = key_type(self.sort.array.dtype), (self.sort.rows.length,)
        keys = Buffer(f"keys_{side}", kind, shape)
        if not self.sort.ordered:
            return (keys,)
        return keys, Buffer(f"order_{side}", i32, shape)

    def _placed(self, r: Expr, to: Expr) -> Store:
        """Store one result element from the side on which the last pass ends."""
        keys, *order = self._buffers(self._digits % 2)
        value = self.sort.value(Load(keys, (to,)))
        at = Load(order[0], (to,)).cast(i64) if order else to
        return self.sort.placed(r, to, at, value)

    def _over(self, name: str, step: Axis, body: Stmt) -> Stmt:
        """A loop over one step axis, its block bound to the current row."""
        assert isinstance(step.value, Var)
        block = Block(name, (self._owner(name), step), body)
        return For(step.value, step.extent, "serial", block)

    def _owner(self, name: str) -> Axis:
        return Axis(Var(f"vr_{name}", i64), "spatial", self.sort.rows.count, _ROW)

    def row(self) -> Stmt:
        """The loop over all rows."""
        step = axis("last", self.sort.rows.length, "disjoint")
        store = self._placed(self._owner("y_final").var, step.var)
        count = Buffer("count", i32, (as_expr(_BINS),))
        buffers = [*self._buffers(0), *self._buffers(1), count]
        return For(
            _ROW,
            self.sort.rows.count,
            "serial",
            seq(
                [Alloc(buffer) for buffer in buffers],
                self._keys(),
                [self._pass(digit, count) for digit in range(self._digits)],
                self._over("y_final", step, store),
            ),
        )

    def _keys(self) -> Stmt:
        step = axis("first", self.sort.rows.length)
        keys, *order = self._buffers(0)
        owner, exact = self._owner("keys").var, not self.sort.ordered
        key = self.sort.key(owner, step.var, exact=exact)
        stores = [Store(keys, (step.var,), key)]
        stores += [Store(held, (step.var,), step.var.cast(i32)) for held in order]
        return self._over("keys", step, seq(stores))

    def _pass(self, digit: int, count: Buffer) -> Stmt:
        """One stable counting sort: histogram, exclusive scan, scatter."""
        here, there = self._buffers(digit % 2), self._buffers(1 - digit % 2)
        clear = axis(f"clear_{digit}", as_expr(_BINS))
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
        step, found = (
            axis(f"count_{digit}", self.sort.rows.length, "ordered"),
            Var("bin", i64),
        )
        body = seq(
            Let(found, self._bin(digit, keys, step.var)),
            Store(count, (found,), Load(count, (found,)) + 1),
        )
        return self._over(f"count_{digit}", step, body)

    def _sum(self, digit: int, count: Buffer) -> Stmt:
        """Exclusive scan of the histogram: where each bin starts."""
        step = axis(f"sum_{digit}", as_expr(_BINS), "ordered")
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
        step = axis(f"move_{digit}", self.sort.rows.length, "ordered")
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
