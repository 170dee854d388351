"""Stable sorting along an axis, as loops.

Short rows by rank: an element's place is the number of elements that precede it in
order. Long rows by LSD radix sort with 8-bit digits (Zagha and Blelloch, "Radix sort
for vector multiprocessors", 1991), sequential within a row, parallel across rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.math.sort_keys import digits, key_of, key_type, value_of

BINS: Final = 256
_BITS: Final = 8
_ROW: Final = ir.Var("r", ir.i64)
# (row, sorted place, original position, value) -> the store of one sorted element
Placed: TypeAlias = "Callable[[ir.Expr, ir.Expr, ir.Expr, ir.Expr], ir.Store]"


def values(x: ir.Tensor, axis: int, descending: bool) -> Sort:
    """The sorted values; NaN last, or first if descending."""
    own = ir.rows.along(x, axis, open=True)
    y = ir.Buffer("y", x.dtype, own.array.buffer.shape)

    def placed(r: ir.Expr, to: ir.Expr, _: ir.Expr, value: ir.Expr) -> ir.Store:
        return ir.Store(y, own.at(r, to), value)

    return Sort(own, y, (own.array,), placed, False, descending)


def positions(x: ir.Tensor, axis: int, descending: bool) -> Sort:
    """The original positions in sorted order; stable."""
    own = ir.rows.along(x, axis, open=True)
    found = ir.Buffer("at", ir.i64, own.array.buffer.shape)

    def placed(r: ir.Expr, to: ir.Expr, at: ir.Expr, _: ir.Expr) -> ir.Store:
        return ir.Store(found, own.at(r, to), at)

    return Sort(own, found, (own.array,), placed, True, descending)


def gradient(dy: ir.Tensor, x: ir.Tensor, axis: int, descending: bool) -> Sort:
    """dx: scatter dy back from each element's sorted place."""
    ir.rows.same_shape(dy=dy, x=x)
    given, own = (ir.rows.along(array, axis, open=True) for array in (dy, x))
    dx = ir.Buffer("dx", x.dtype, own.array.buffer.shape)

    def placed(r: ir.Expr, to: ir.Expr, at: ir.Expr, _: ir.Expr) -> ir.Store:
        return ir.Store(dx, own.at(r, at), given.array[own.at(r, to)])

    return Sort(own, dx, (given.array, own.array), placed, True, descending)


@frozen
class Sort:
    """Rows to sort, and what is stored of their order."""

    rows: ir.rows.Rows  # rows to sort
    result: ir.Buffer  # output buffer
    inputs: tuple[ir.Tensor, ...]  # all arrays read
    placed: Placed  # builds the store of one sorted element
    ordered: bool  # whether `placed` needs original positions (i64) rather than values
    descending: bool  # whether the largest comes first

    @property
    def array(self) -> ir.Tensor:
        """The array to sort."""
        return self.rows.array

    def key(
        self, r: ir.Expr, at: ir.Expr, *, exact: bool, inside: ir.Expr | None = None
    ) -> ir.Expr:
        """The sort key of an element; arbitrary if it is not `inside`."""
        value = ir.Load(self.array.buffer, self.rows.at(r, at), inside)
        return key_of(value, exact=exact, descending=self.descending)

    def value(self, key: ir.Expr) -> ir.Expr:
        """The value an exact key encodes."""
        return value_of(key, self.array.dtype, descending=self.descending)

    def made(
        self, nest: ir.Stmt, *held: ir.Buffer, after: Sequence[ir.Tensor] = ()
    ) -> ir.Tensor:
        """The result of a nest, given its scratch buffers and further inputs."""
        stage = ir.Stage(nest, (*held, self.result), (*after, *self.inputs))
        return self.rows.whole(ir.Tensor(self.result, stage))

    def by_loops(self, counted: int) -> ir.Tensor:
        """The result; rows of at most `counted` elements are sorted by rank."""
        if self.array.shape[1] <= counted:
            return _counted(self)
        return self.by_radix()

    def by_radix(self) -> ir.Tensor:
        """The result of a radix sort of each row."""
        return self.made(_Radix(self).row())


# ------------------------------------------------------------------ short: by rank


def _counted(sort: Sort) -> ir.Tensor:
    """Place each element at its rank, the number of elements that precede it."""
    shape = (sort.rows.count, sort.rows.length)
    key = ir.compute(shape, lambda r, i: sort.key(r, i, exact=False), "key")
    j = ir.reduce_axis(sort.rows.length, "j")
    one, zero = ir.as_expr(1, ir.i32), ir.as_expr(0, ir.i32)

    def before(r: object, i: Any) -> ir.Expr:
        other, own = key[r, j], key[r, i]
        earlier = j.var < i
        return ir.Select((other < own) | (other.equal(own) & earlier), one, zero)

    rank = ir.compute(shape, lambda r, i: ir.sum(before(r, i), j), "rank")
    axes = [ir.nests.axis("r", shape[0]), ir.nests.axis("i", shape[1], "disjoint")]
    row, at = (axis.var for axis in axes)
    value = sort.array[sort.rows.at(row, at)]
    placed = sort.placed(row, rank[row, at].cast(ir.i64), at, value)
    return sort.made(ir.nests.nest(sort.result.name, axes, placed), after=(rank,))


# --------------------------------------------------------------------- long: radix


@frozen
class _Radix:
    """The sort of one row: passes by byte that move keys (and positions) to and fro."""

    sort: Sort

    @property
    def _digits(self) -> int:
        return digits(self.sort.array.dtype)

    def _buffers(self, side: int) -> tuple[ir.Buffer, ...]:
        """Keys, and positions if needed, of one of the two ping-pong sides."""
        kind, shape = key_type(self.sort.array.dtype), (self.sort.rows.length,)
        keys = ir.Buffer(f"keys_{side}", kind, shape)
        if not self.sort.ordered:
            return (keys,)
        return keys, ir.Buffer(f"order_{side}", ir.i32, shape)

    def _placed(self, r: ir.Expr, to: ir.Expr) -> ir.Store:
        """Store one result element from the side on which the last pass ends."""
        keys, *order = self._buffers(self._digits % 2)
        value = self.sort.value(ir.Load(keys, (to,)))
        at = ir.Load(order[0], (to,)).cast(ir.i64) if order else to
        return self.sort.placed(r, to, at, value)

    def _over(self, name: str, step: ir.Axis, body: ir.Stmt) -> ir.Stmt:
        """A loop over one step axis, its block bound to the current row."""
        assert isinstance(step.value, ir.Var)
        block = ir.Block(name, (self._owner(name), step), body)
        return ir.For(step.value, step.extent, "serial", block)

    def _owner(self, name: str) -> ir.Axis:
        return ir.Axis(
            ir.Var(f"vr_{name}", ir.i64), "spatial", self.sort.rows.count, _ROW
        )

    def row(self) -> ir.Stmt:
        """The loop over all rows."""
        step = ir.nests.axis("last", self.sort.rows.length, "disjoint")
        store = self._placed(self._owner("y_final").var, step.var)
        count = ir.Buffer("count", ir.i32, (ir.as_expr(BINS),))
        buffers = [*self._buffers(0), *self._buffers(1), count]
        return ir.For(
            _ROW,
            self.sort.rows.count,
            "serial",
            ir.seq(
                [ir.Alloc(buffer) for buffer in buffers],
                self._keys(),
                [self._pass(digit, count) for digit in range(self._digits)],
                self._over("y_final", step, store),
            ),
        )

    def _keys(self) -> ir.Stmt:
        step = ir.nests.axis("first", self.sort.rows.length)
        keys, *order = self._buffers(0)
        owner, exact = self._owner("keys").var, not self.sort.ordered
        key = self.sort.key(owner, step.var, exact=exact)
        stores = [ir.Store(keys, (step.var,), key)]
        stores += [ir.Store(held, (step.var,), step.var.cast(ir.i32)) for held in order]
        return self._over("keys", step, ir.seq(stores))

    def _pass(self, digit: int, count: ir.Buffer) -> ir.Stmt:
        """One stable counting sort: histogram, exclusive scan, scatter."""
        here, there = self._buffers(digit % 2), self._buffers(1 - digit % 2)
        clear = ir.nests.axis(f"clear_{digit}", ir.as_expr(BINS))
        zero = ir.as_expr(0, ir.i32)
        return ir.seq(
            self._over(f"clear_{digit}", clear, ir.Store(count, (clear.var,), zero)),
            self._count(digit, here[0], count),
            self._sum(digit, count),
            self._move(digit, here, there, count),
        )

    def _bin(self, digit: int, keys: ir.Buffer, at: ir.Expr) -> ir.Expr:
        key = ir.Load(keys, (at,))
        return ((key >> (digit * _BITS)) & (BINS - 1)).cast(ir.i64)

    def _count(self, digit: int, keys: ir.Buffer, count: ir.Buffer) -> ir.Stmt:
        step = ir.nests.axis(f"count_{digit}", self.sort.rows.length, "ordered")
        found = ir.Var("bin", ir.i64)
        body = ir.seq(
            ir.Let(found, self._bin(digit, keys, step.var)),
            ir.Store(count, (found,), ir.Load(count, (found,)) + 1),
        )
        return self._over(f"count_{digit}", step, body)

    def _sum(self, digit: int, count: ir.Buffer) -> ir.Stmt:
        """Exclusive scan of the histogram: where each bin starts."""
        step = ir.nests.axis(f"sum_{digit}", ir.as_expr(BINS), "ordered")
        total = ir.Buffer(f"total_{digit}", ir.i32, (ir.as_expr(1),), "register")
        held, start = ir.Var("held", ir.i32), (ir.as_expr(0),)
        body = ir.seq(
            ir.Let(held, ir.Load(count, (step.var,))),
            ir.Store(count, (step.var,), ir.Load(total, start)),
            ir.Store(total, start, ir.Load(total, start) + held),
        )
        return ir.seq(
            ir.Alloc(total),
            ir.Store(total, start, ir.Const(0, ir.i32)),
            self._over(f"sum_{digit}", step, body),
        )

    def _move(
        self,
        digit: int,
        here: tuple[ir.Buffer, ...],
        there: tuple[ir.Buffer, ...],
        count: ir.Buffer,
    ) -> ir.Stmt:
        step = ir.nests.axis(f"move_{digit}", self.sort.rows.length, "ordered")
        found, place = ir.Var("bin", ir.i64), ir.Var("place", ir.i32)
        to = (place.cast(ir.i64),)
        body = ir.seq(
            ir.Let(found, self._bin(digit, here[0], step.var)),
            ir.Let(place, ir.Load(count, (found,))),
            ir.Store(count, (found,), place + 1),
            [
                ir.Store(b, to, ir.Load(a, (step.var,)))
                for a, b in zip(here, there, strict=True)
            ],
        )
        return self._over(f"move_{digit}", step, body)
