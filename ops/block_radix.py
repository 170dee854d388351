"""Stable radix sorts, within a thread block, and of rows by several blocks.

A block holds its keys in shared memory and sorts by four bits per pass: each thread
counts the digits of its keys in private counters; all counters are scanned in order of
digit, then thread; and each key is scattered to the position of its counter (Merrill
and Grimshaw, "High performance and scalable radix sorting", 2011). Rows that do not fit
into a block are sorted by eight bits per pass:

    hist[d, p] = number of keys of part p with digit d  # one block per part
    start      = exclusive prefix sum of hist in order of (d, p)
    sort each part by the digit, and move its keys to start[d, p] onwards

The sort is stable, so that results are bitwise equal to the definition's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang.ir import as_expr, i64
from tensorlang.ir.dtypes import i32, u32
from tensorlang.ir.nodes import (
    Alloc,
    AtomicUpdate,
    Binary,
    Buffer,
    Const,
    If,
    Let,
    Select,
    Store,
    Var,
    seq,
)
from tensorlang.ops.block_scans import BlockScan, over
from tensorlang.ops.row_scans import RowScan

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Expr, For, Stmt

BITS: Final = 8  # per digit of a pass over rows
BINS: Final = 1 << BITS
_BITS: Final = 4  # per digit of a pass within a block
_ROWS: Final = 8  # rows of counters, each of which packs those of two digits
_HALF: Final = 16  # bits per packed counter
_LOW: Final = (1 << _HALF) - 1
_BANKS: Final = 32
_SCANNED: Final = 16  # counts per scanning thread

# the use of a key and its value
Use: TypeAlias = "Callable[[Expr, Expr | None], Stmt]"
# the use of the key and value at a row and position
Read: TypeAlias = "Callable[[Expr, Expr, Use], Stmt]"
# the store of a key and its value at a row and position
Write: TypeAlias = "Callable[[Expr, Expr, Expr, Expr], Stmt]"


@dataclass(frozen=True, slots=True)
class Radix:
    """Sorts of rows by unsigned keys, with positions as values.

    Attributes:
        scan: The threads of a block.
        rows: The number of rows.
        length: The length of a row.
        kind: The type of keys.
        ordered: Whether keys have i32 positions as values.
        items: Keys per thread.
    """

    scan: BlockScan
    rows: Expr
    length: Expr
    kind: DType
    ordered: bool
    items: int

    @property
    def part(self) -> int:
        """The number of keys per block."""
        return self.items * self.scan.threads

    @property
    def parts(self) -> Expr:
        """The number of parts of a row."""
        return (self.length + (self.part - 1)) // self.part

    def whole(self, read: Read, digits: Expr | int, write: Write) -> For:
        """Sort rows that fit into one block each, by `digits` bytes."""

        def row(r: Var) -> list[Stmt]:
            held = _Held(self)
            steps = digits * (BITS // _BITS)
            passes = over("step", steps, "serial", lambda s: held.pass_(s * _BITS))
            end = held.each_there(
                as_expr(0), lambda at, key, value: write(r, at, key, value)
            )
            loaded = held.loaded(read, r, as_expr(0))
            return [*held.allocated(), loaded, passes, end]

        return over("row", self.rows, "block.x", row)

    @property
    def _hist(self) -> Buffer:
        """The digit counts of each part, later their start positions."""
        return Buffer("hist", i32, (self.rows, self.parts * BINS))

    @property
    def _scan(self) -> RowScan:
        """The scan from digit counts to start positions."""
        hist = self._hist
        return RowScan(
            self.scan,
            _SCANNED,
            self.parts * BINS,
            lambda r, at: hist[r, at],
            lambda r, at, value: Store(hist, (r, at), value),
            (i32, i32, i32),
            inclusive=False,
        )

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The scratch buffers of `moved`."""
        return (self._hist, *self._scan.everywhere(self.rows)[1])

    def moved(self, digit: Expr, read: Read, write: Write) -> Stmt:
        """Sort rows by one byte of their keys."""
        shift, hist = digit * BITS, self._hist
        starts, _ = self._scan.everywhere(self.rows)
        count = self._counted(shift, read, hist)
        return seq(count, starts, self._move(shift, read, write, hist))

    def _digit(self, key: Expr, shift: Expr, bits: int) -> Expr:
        return Binary("shr", key, shift.cast(self.kind)) & ((1 << bits) - 1)

    def _counted(self, shift: Expr, read: Read, hist: Buffer) -> For:
        """Count the digits of each part."""
        count = Buffer("count", i32, (as_expr(BINS),), "shared")
        one = as_expr(1, i32)

        def part(r: Expr, p: Expr) -> list[Stmt]:
            def found(t: Var, i: Var) -> Stmt:
                at = p * self.part + i * self.scan.threads + t

                def counted(key: Expr, _: Expr | None) -> Stmt:
                    digit = self._digit(key, shift, BITS).cast(i64)
                    return AtomicUpdate("add", count, (digit,), one)

                return If(at < self.length, read(r, at, counted))

            return [
                Alloc(count),
                self._bins(lambda d: Store(count, (d,), as_expr(0, i32))),
                self._each_item(found),
                self._bins(lambda d: Store(hist, (r, d * self.parts + p), count[d])),
            ]

        return self._parts(part)

    def _move(self, shift: Expr, read: Read, write: Write, hist: Buffer) -> For:
        """Sort each part by the digit, and scatter each run of equal digits."""
        begin = Buffer("begin", i32, (as_expr(BINS),), "shared")

        def part(r: Expr, p: Expr) -> list[Stmt]:
            held = _Held(self)

            def digit(at: Expr) -> Expr:
                return self._digit(held.key(at), shift, BITS).cast(i64)

            def run(t: Var, i: Var) -> list[Stmt]:
                at, own = i * self.scan.threads + t, Var("own", i64)
                before = digit(Binary("max", at - 1, as_expr(0)))
                first = at.equal(0) | before.not_equal(own)
                here = begin[own] - at.cast(i32)
                return [Let(own, digit(at)), If(first, Store(begin, (own,), here))]

            def stored(at: Expr, key: Expr, value: Expr) -> Stmt:
                to = Var("to", i64)
                own = self._digit(key, shift, BITS).cast(i64)
                place = (begin[own] + (at - p * self.part).cast(i32)).cast(i64)
                return seq(Let(to, place), write(r, to, key, value))

            steps = BITS // _BITS
            return [
                *held.allocated(),
                Alloc(begin),
                self._bins(lambda d: Store(begin, (d,), hist[r, d * self.parts + p])),
                held.loaded(read, r, p),
                over("step", steps, "serial", lambda s: held.pass_(shift + s * _BITS)),
                self._each_item(run),
                held.each_there(p, stored),
            ]

        return self._parts(part)

    def _parts(self, body: Callable[[Expr, Expr], list[Stmt]]) -> For:
        """A loop over all parts of all rows, one block each."""
        r, p = Var("r", i64), Var("p", i64)

        def block(b: Var) -> list[Stmt]:
            if self.rows == as_expr(1):
                return body(as_expr(0), b)
            return [Let(r, b // self.parts), Let(p, b % self.parts), *body(r, p)]

        return over("block", self.rows * self.parts, "block.x", block)

    def _bins(self, body: Callable[[Expr], Stmt]) -> For:
        """A loop over the values of a digit."""
        threads = self.scan.threads
        if threads >= BINS:
            return over("t", BINS, "thread.x", body)
        each = BINS // threads
        return self.scan.each(
            lambda t: over("d", each, "serial", lambda d: body(d * threads + t))
        )

    def _each_item(self, body: Callable[[Var, Var], Stmt | Sequence[Stmt]]) -> For:
        """A loop over the keys of each thread."""
        return self.scan.each(
            lambda t: over("item", self.items, "unrolled", lambda i: body(t, i))
        )


class _Held:
    """The buffers of a block: keys, values and digit counters."""

    def __init__(self, radix: Radix) -> None:
        self.radix, scan, items = radix, radix.scan, radix.items
        self.keys = self._memory("keys", radix.kind, radix.part)
        self.values = self._memory("values", i32, radix.part)
        self.counters = self._memory("counters", u32, _ROWS * scan.threads)
        self.key_of = scan.own("own_keys", radix.kind, items)
        self.value_of = scan.own("own_values", i32, items)
        self.rank = scan.own("rank", u32, items)
        self.sums, self.before, self.start, self.carry = (
            scan.own(name, u32, 1) for name in ("sums", "before", "start", "carry")
        )
        self.warps = scan.totals("warps", self.sums)

    @staticmethod
    def _memory(name: str, kind: DType, size: int) -> Buffer:
        """Shared memory padded after each row of banks, to avoid bank conflicts."""
        gaps = -(-size // _row_of_banks(kind))
        return Buffer(name, kind, (as_expr(size + gaps),), "shared")

    def allocated(self) -> list[Stmt]:
        """The allocations."""
        along = (self.values, self.value_of) if self.radix.ordered else ()
        own = (self.key_of, self.rank, self.sums, self.before, self.start, self.carry)
        held = (self.keys, self.counters, *own, self.warps, *along)
        return [Alloc(buffer) for buffer in held]

    def key(self, at: Expr) -> Expr:
        """The key at a position."""
        return self.keys[_spread(self.keys, at)]

    def loaded(self, read: Read, r: Expr, p: Expr) -> For:
        """Load the keys of a part, padded with the maximum key."""
        radix = self.radix
        largest = Const((1 << radix.kind.bits) - 1, radix.kind)

        def item(t: Var, i: Var) -> list[Stmt]:
            here = i * radix.scan.threads + t
            at = p * radix.part + here

            def held(key: Expr, value: Expr | None) -> Stmt:
                stores = [Store(self.keys, (_spread(self.keys, here),), key)]
                if value is not None:
                    beside = _spread(self.values, here)
                    stores.append(Store(self.values, (beside,), value))
                return seq(*stores)

            none = held(largest, as_expr(0, i32) if radix.ordered else None)
            return [none, If(at < radix.length, read(r, at, held))]

        return radix._each_item(item)  # noqa: SLF001 - of one module

    def each_there(self, p: Expr, body: Callable[[Expr, Expr, Expr], Stmt]) -> For:
        """A loop over the keys of a part without padding: position, key and value."""
        radix = self.radix

        def item(t: Var, i: Var) -> Stmt:
            here = i * radix.scan.threads + t
            at, key, value = (
                Var("at", i64),
                Var("sort_key", radix.kind),
                Var("value", i32),
            )
            lets: list[Stmt] = [Let(key, self.key(here))]
            if radix.ordered:
                lets.append(Let(value, self.values[_spread(self.values, here)]))
            inside = p * radix.part + here
            return If(
                inside < radix.length,
                seq(Let(at, inside), *lets, body(at, key, value)),
            )

        return radix._each_item(item)  # noqa: SLF001 - of one module

    def pass_(self, shift: Expr) -> Stmt:
        """A stable sort of all keys by the four bits at `shift`."""
        scan = self.radix.scan
        zero = as_expr(0, u32)
        return seq(
            scan.each(
                lambda t: over(
                    "q",
                    _ROWS,
                    "unrolled",
                    lambda q: Store(self.counters, (self._counter(q, t),), zero),
                )
            ),
            self._ranked(shift),
            self._summed(),
            scan.scanned(self.sums, self.before, self.warps),
            scan.each(lambda t: Store(self.carry, (t, as_expr(0)), zero)),
            scan.chained(self.warps, self.before, self.carry, self.start),
            self._started(),
            self._placed(shift),
        )

    def _counter(self, row: Expr, t: Expr) -> Expr:
        return _spread(self.counters, row * self.radix.scan.threads + t)

    def _place(self, key: Expr, shift: Expr, t: Expr) -> tuple[Expr, Expr, Expr]:
        """The counter of a key: its digit, the counter, and the bit offset in it."""
        digit = self.radix._digit(key, shift, _BITS).cast(u32)  # noqa: SLF001
        row = (digit & (_ROWS - 1)).cast(i64)
        half = Binary("shr", digit, as_expr(3, u32)) * _HALF
        return digit, self._counter(row, t), half

    def _ranked(self, shift: Expr) -> For:
        """Rank each key among the thread's preceding keys with the same digit."""
        items, one = self.radix.items, as_expr(1, u32)

        def item(t: Var, i: Var) -> list[Stmt]:
            here = t * items + i
            key, counter = Var("sort_key", self.radix.kind), Var("counter", i64)
            half, old = Var("half", u32), Var("old", u32)
            _, place, bits = self._place(key, shift, t)
            made: list[Stmt] = [
                Let(key, self.key(here)),
                Store(self.key_of, (t, i), key),
            ]
            if self.radix.ordered:
                value = self.values[_spread(self.values, here)]
                made.append(Store(self.value_of, (t, i), value))
            return [
                *made,
                Let(counter, place),
                Let(half, bits),
                Let(old, self.counters[counter]),
                Store(self.rank, (t, i), Binary("shr", old, half) & _LOW),
                Store(self.counters, (counter,), old + Binary("shl", one, half)),
            ]

        return self.radix._each_item(item)  # noqa: SLF001 - of one module

    def _summed(self) -> For:
        """The sum of each thread's consecutive counters."""

        def program(t: Var) -> Stmt:
            total: Expr = as_expr(0, u32)
            for q in range(_ROWS):
                total = total + self.counters[_spread(self.counters, t * _ROWS + q)]
            return Store(self.sums, (t, as_expr(0)), total)

        return self.radix.scan.each(program)

    def _started(self) -> For:
        """Replace counters by their exclusive prefix sums."""

        def program(t: Var) -> list[Stmt]:
            made: list[Stmt] = []
            total: Expr = self.start[t, 0]
            for q in range(_ROWS):
                place = _spread(self.counters, t * _ROWS + q)
                now, own = Var(f"now{q}", u32), Var(f"own{q}", u32)
                made += [Let(now, total), Let(own, self.counters[place])]
                made.append(Store(self.counters, (place,), now))
                total = now + own
            return made

        return self.radix.scan.each(program)

    def _placed(self, shift: Expr) -> For:
        """Scatter each key; digits in upper halves follow all those in lower halves."""

        def item(t: Var, i: Var) -> list[Stmt]:
            key, to = Var("sort_key", self.radix.kind), Var("to", i64)
            digit, place, half = self._place(key, shift, t)
            low = self.carry[t, 0] & _LOW
            ahead = Select(digit >= _ROWS, low, as_expr(0, u32))
            start = Binary("shr", self.counters[place], half) & _LOW
            made: list[Stmt] = [
                Let(key, self.key_of[t, i]),
                Let(to, (start + self.rank[t, i] + ahead).cast(i64)),
                Store(self.keys, (_spread(self.keys, to),), key),
            ]
            if self.radix.ordered:
                beside = _spread(self.values, to)
                made.append(Store(self.values, (beside,), self.value_of[t, i]))
            return made

        return self.radix._each_item(item)  # noqa: SLF001 - of one module


def _row_of_banks(kind: DType) -> int:
    """The number of elements in one row of shared-memory banks."""
    return _BANKS * 4 // kind.bytes


def _spread(memory: Buffer, at: Expr) -> Expr:
    """A position, adjusted for the padding."""
    return at + at // _row_of_banks(memory.dtype)
