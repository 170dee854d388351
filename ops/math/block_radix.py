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
from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import AtomicUpdate
from tensorlang.ops.math.block_scans import BlockScan, over
from tensorlang.ops.math.row_scans import RowScan

BITS: Final = 8  # per digit of a pass over rows
BINS: Final = 1 << BITS
_BITS: Final = 4  # per digit of a pass within a block
_ROWS: Final = 8  # rows of counters, each of which packs those of two digits
_HALF: Final = 16  # bits per packed counter
_LOW: Final = (1 << _HALF) - 1
_BANKS: Final = 32
_SCANNED: Final = 16  # counts per scanning thread

# the use of a key and its value
Use: TypeAlias = "Callable[[ir.Expr, ir.Expr | None], ir.Stmt]"
# the use of the key and value at a row and position
Read: TypeAlias = "Callable[[ir.Expr, ir.Expr, Use], ir.Stmt]"
# the store of a key and its value at a row and position
Write: TypeAlias = "Callable[[ir.Expr, ir.Expr, ir.Expr, ir.Expr], ir.Stmt]"


@frozen
class Radix:
    """Sorts of rows by unsigned keys, with positions as values."""

    scan: BlockScan  # threads of a block
    rows: ir.Expr  # number of rows
    length: ir.Expr  # length of a row
    kind: ir.DType  # type of keys
    ordered: bool  # whether keys have i32 positions as values
    items: int  # keys per thread

    @property
    def part(self) -> int:
        """The number of keys per block."""
        return self.items * self.scan.threads

    @property
    def parts(self) -> ir.Expr:
        """The number of parts of a row."""
        return (self.length + (self.part - 1)) // self.part

    def whole(self, read: Read, digits: ir.Expr | int, write: Write) -> ir.For:
        """Sort rows that fit into one block each, by `digits` bytes."""

        def row(r: ir.Var) -> list[ir.Stmt]:
            held = _Held(self)
            steps = digits * (BITS // _BITS)
            passes = over("step", steps, "serial", lambda s: held.pass_(s * _BITS))
            end = held.each_there(
                ir.as_expr(0), lambda at, key, value: write(r, at, key, value)
            )
            loaded = held.loaded(read, r, ir.as_expr(0))
            return [*held.allocated(), loaded, passes, end]

        return over("row", self.rows, "block.x", row)

    @property
    def _hist(self) -> ir.Buffer:
        """The digit counts of each part, later their start positions."""
        return ir.Buffer("hist", ir.i32, (self.rows, self.parts * BINS))

    @property
    def _scan(self) -> RowScan:
        """The scan from digit counts to start positions."""
        hist = self._hist
        return RowScan(
            self.scan,
            _SCANNED,
            self.parts * BINS,
            lambda r, at: hist[r, at],
            lambda r, at, value: ir.Store(hist, (r, at), value),
            (ir.i32, ir.i32, ir.i32),
            inclusive=False,
        )

    @property
    def memory(self) -> tuple[ir.Buffer, ...]:
        """The scratch buffers of `moved`."""
        return (self._hist, *self._scan.everywhere(self.rows)[1])

    def moved(self, digit: ir.Expr, read: Read, write: Write) -> ir.Stmt:
        """Sort rows by one byte of their keys."""
        shift, hist = digit * BITS, self._hist
        starts, _ = self._scan.everywhere(self.rows)
        count = self._counted(shift, read, hist)
        return ir.seq(count, starts, self._move(shift, read, write, hist))

    def _digit(self, key: ir.Expr, shift: ir.Expr, bits: int) -> ir.Expr:
        return ir.Binary("shr", key, shift.cast(self.kind)) & ((1 << bits) - 1)

    def _counted(self, shift: ir.Expr, read: Read, hist: ir.Buffer) -> ir.For:
        """Count the digits of each part."""
        count = ir.Buffer("count", ir.i32, (ir.as_expr(BINS),), "shared")
        one = ir.as_expr(1, ir.i32)

        def part(r: ir.Expr, p: ir.Expr) -> list[ir.Stmt]:
            def found(t: ir.Var, i: ir.Var) -> ir.Stmt:
                at = p * self.part + i * self.scan.threads + t

                def counted(key: ir.Expr, _: ir.Expr | None) -> ir.Stmt:
                    digit = self._digit(key, shift, BITS).cast(ir.i64)
                    return AtomicUpdate("add", count, (digit,), one)

                return ir.If(at < self.length, read(r, at, counted))

            return [
                ir.Alloc(count),
                self._bins(lambda d: ir.Store(count, (d,), ir.as_expr(0, ir.i32))),
                self._each_item(found),
                self._bins(lambda d: ir.Store(hist, (r, d * self.parts + p), count[d])),
            ]

        return self._parts(part)

    def _move(
        self, shift: ir.Expr, read: Read, write: Write, hist: ir.Buffer
    ) -> ir.For:
        """Sort each part by the digit, and scatter each run of equal digits."""
        begin = ir.Buffer("begin", ir.i32, (ir.as_expr(BINS),), "shared")

        def part(r: ir.Expr, p: ir.Expr) -> list[ir.Stmt]:
            held = _Held(self)

            def digit(at: ir.Expr) -> ir.Expr:
                return self._digit(held.key(at), shift, BITS).cast(ir.i64)

            def run(t: ir.Var, i: ir.Var) -> list[ir.Stmt]:
                at, own = i * self.scan.threads + t, ir.Var("own", ir.i64)
                before = digit(ir.Binary("max", at - 1, ir.as_expr(0)))
                first = at.equal(0) | before.not_equal(own)
                here = begin[own] - at.cast(ir.i32)
                return [
                    ir.Let(own, digit(at)),
                    ir.If(first, ir.Store(begin, (own,), here)),
                ]

            def stored(at: ir.Expr, key: ir.Expr, value: ir.Expr) -> ir.Stmt:
                to = ir.Var("to", ir.i64)
                own = self._digit(key, shift, BITS).cast(ir.i64)
                place = (begin[own] + (at - p * self.part).cast(ir.i32)).cast(ir.i64)
                return ir.seq(ir.Let(to, place), write(r, to, key, value))

            steps = BITS // _BITS
            return [
                *held.allocated(),
                ir.Alloc(begin),
                self._bins(
                    lambda d: ir.Store(begin, (d,), hist[r, d * self.parts + p])
                ),
                held.loaded(read, r, p),
                over("step", steps, "serial", lambda s: held.pass_(shift + s * _BITS)),
                self._each_item(run),
                held.each_there(p, stored),
            ]

        return self._parts(part)

    def _parts(self, body: Callable[[ir.Expr, ir.Expr], list[ir.Stmt]]) -> ir.For:
        """A loop over all parts of all rows, one block each."""
        r, p = ir.Var("r", ir.i64), ir.Var("p", ir.i64)

        def block(b: ir.Var) -> list[ir.Stmt]:
            if self.rows == ir.as_expr(1):
                return body(ir.as_expr(0), b)
            return [ir.Let(r, b // self.parts), ir.Let(p, b % self.parts), *body(r, p)]

        return over("block", self.rows * self.parts, "block.x", block)

    def _bins(self, body: Callable[[ir.Expr], ir.Stmt]) -> ir.For:
        """A loop over the values of a digit."""
        threads = self.scan.threads
        if threads >= BINS:
            return over("t", BINS, "thread.x", body)
        each = BINS // threads
        return self.scan.each(
            lambda t: over("d", each, "serial", lambda d: body(d * threads + t))
        )

    def _each_item(
        self, body: Callable[[ir.Var, ir.Var], ir.Stmt | Sequence[ir.Stmt]]
    ) -> ir.For:
        """A loop over the keys of each thread."""
        return self.scan.each(
            lambda t: over("item", self.items, "unrolled", lambda i: body(t, i))
        )


class _Held:
    """The buffers of a block: keys, values and digit counters."""

    def __init__(self, radix: Radix) -> None:
        self.radix, scan, items = radix, radix.scan, radix.items
        self.keys = self._memory("keys", radix.kind, radix.part)
        self.values = self._memory("values", ir.i32, radix.part)
        self.counters = self._memory("counters", ir.u32, _ROWS * scan.threads)
        self.key_of = scan.own("own_keys", radix.kind, items)
        self.value_of = scan.own("own_values", ir.i32, items)
        self.rank = scan.own("rank", ir.u32, items)
        self.sums, self.before, self.start, self.carry = (
            scan.own(name, ir.u32, 1) for name in ("sums", "before", "start", "carry")
        )
        self.warps = scan.totals("warps", self.sums)

    @staticmethod
    def _memory(name: str, kind: ir.DType, size: int) -> ir.Buffer:
        """Shared memory padded after each row of banks, to avoid bank conflicts."""
        gaps = -(-size // _row_of_banks(kind))
        return ir.Buffer(name, kind, (ir.as_expr(size + gaps),), "shared")

    def allocated(self) -> list[ir.Stmt]:
        """The allocations."""
        along = (self.values, self.value_of) if self.radix.ordered else ()
        own = (self.key_of, self.rank, self.sums, self.before, self.start, self.carry)
        held = (self.keys, self.counters, *own, self.warps, *along)
        return [ir.Alloc(buffer) for buffer in held]

    def key(self, at: ir.Expr) -> ir.Expr:
        """The key at a position."""
        return self.keys[_spread(self.keys, at)]

    def loaded(self, read: Read, r: ir.Expr, p: ir.Expr) -> ir.For:
        """Load the keys of a part, padded with the maximum key."""
        radix = self.radix
        largest = ir.Const((1 << radix.kind.bits) - 1, radix.kind)

        def item(t: ir.Var, i: ir.Var) -> list[ir.Stmt]:
            here = i * radix.scan.threads + t
            at = p * radix.part + here

            def held(key: ir.Expr, value: ir.Expr | None) -> ir.Stmt:
                stores = [ir.Store(self.keys, (_spread(self.keys, here),), key)]
                if value is not None:
                    beside = _spread(self.values, here)
                    stores.append(ir.Store(self.values, (beside,), value))
                return ir.seq(*stores)

            none = held(largest, ir.as_expr(0, ir.i32) if radix.ordered else None)
            return [none, ir.If(at < radix.length, read(r, at, held))]

        return radix._each_item(item)  # noqa: SLF001 - of one module

    def each_there(
        self, p: ir.Expr, body: Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Stmt]
    ) -> ir.For:
        """A loop over the keys of a part without padding: position, key and value."""
        radix = self.radix

        def item(t: ir.Var, i: ir.Var) -> ir.Stmt:
            here = i * radix.scan.threads + t
            at = ir.Var("at", ir.i64)
            key = ir.Var("sort_key", radix.kind)
            value = ir.Var("value", ir.i32)
            lets: list[ir.Stmt] = [ir.Let(key, self.key(here))]
            if radix.ordered:
                lets.append(ir.Let(value, self.values[_spread(self.values, here)]))
            inside = p * radix.part + here
            return ir.If(
                inside < radix.length,
                ir.seq(ir.Let(at, inside), *lets, body(at, key, value)),
            )

        return radix._each_item(item)  # noqa: SLF001 - of one module

    def pass_(self, shift: ir.Expr) -> ir.Stmt:
        """A stable sort of all keys by the four bits at `shift`."""
        scan = self.radix.scan
        zero = ir.as_expr(0, ir.u32)
        return ir.seq(
            scan.each(
                lambda t: over(
                    "q",
                    _ROWS,
                    "unrolled",
                    lambda q: ir.Store(self.counters, (self._counter(q, t),), zero),
                )
            ),
            self._ranked(shift),
            self._summed(),
            scan.scanned(self.sums, self.before, self.warps),
            scan.each(lambda t: ir.Store(self.carry, (t, ir.as_expr(0)), zero)),
            scan.chained(self.warps, self.before, self.carry, self.start),
            self._started(),
            self._placed(shift),
        )

    def _counter(self, row: ir.Expr, t: ir.Expr) -> ir.Expr:
        return _spread(self.counters, row * self.radix.scan.threads + t)

    def _place(
        self, key: ir.Expr, shift: ir.Expr, t: ir.Expr
    ) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
        """The counter of a key: its digit, the counter, and the bit offset in it."""
        digit = self.radix._digit(key, shift, _BITS).cast(ir.u32)  # noqa: SLF001
        row = (digit & (_ROWS - 1)).cast(ir.i64)
        half = ir.Binary("shr", digit, ir.as_expr(3, ir.u32)) * _HALF
        return digit, self._counter(row, t), half

    def _ranked(self, shift: ir.Expr) -> ir.For:
        """Rank each key among the thread's preceding keys with the same digit."""
        items, one = self.radix.items, ir.as_expr(1, ir.u32)

        def item(t: ir.Var, i: ir.Var) -> list[ir.Stmt]:
            here = t * items + i
            key = ir.Var("sort_key", self.radix.kind)
            counter = ir.Var("counter", ir.i64)
            half, old = ir.Var("half", ir.u32), ir.Var("old", ir.u32)
            _, place, bits = self._place(key, shift, t)
            made: list[ir.Stmt] = [
                ir.Let(key, self.key(here)),
                ir.Store(self.key_of, (t, i), key),
            ]
            if self.radix.ordered:
                value = self.values[_spread(self.values, here)]
                made.append(ir.Store(self.value_of, (t, i), value))
            return [
                *made,
                ir.Let(counter, place),
                ir.Let(half, bits),
                ir.Let(old, self.counters[counter]),
                ir.Store(self.rank, (t, i), ir.Binary("shr", old, half) & _LOW),
                ir.Store(self.counters, (counter,), old + ir.Binary("shl", one, half)),
            ]

        return self.radix._each_item(item)  # noqa: SLF001 - of one module

    def _summed(self) -> ir.For:
        """The sum of each thread's consecutive counters."""

        def program(t: ir.Var) -> ir.Stmt:
            total: ir.Expr = ir.as_expr(0, ir.u32)
            for q in range(_ROWS):
                total = total + self.counters[_spread(self.counters, t * _ROWS + q)]
            return ir.Store(self.sums, (t, ir.as_expr(0)), total)

        return self.radix.scan.each(program)

    def _started(self) -> ir.For:
        """Replace counters by their exclusive prefix sums."""

        def program(t: ir.Var) -> list[ir.Stmt]:
            made: list[ir.Stmt] = []
            total: ir.Expr = self.start[t, 0]
            for q in range(_ROWS):
                place = _spread(self.counters, t * _ROWS + q)
                now, own = ir.Var(f"now{q}", ir.u32), ir.Var(f"own{q}", ir.u32)
                made += [ir.Let(now, total), ir.Let(own, self.counters[place])]
                made.append(ir.Store(self.counters, (place,), now))
                total = now + own
            return made

        return self.radix.scan.each(program)

    def _placed(self, shift: ir.Expr) -> ir.For:
        """Scatter each key; digits in upper halves follow all those in lower halves."""

        def item(t: ir.Var, i: ir.Var) -> list[ir.Stmt]:
            key, to = ir.Var("sort_key", self.radix.kind), ir.Var("to", ir.i64)
            digit, place, half = self._place(key, shift, t)
            low = self.carry[t, 0] & _LOW
            ahead = ir.Select(digit >= _ROWS, low, ir.as_expr(0, ir.u32))
            start = ir.Binary("shr", self.counters[place], half) & _LOW
            made: list[ir.Stmt] = [
                ir.Let(key, self.key_of[t, i]),
                ir.Let(to, (start + self.rank[t, i] + ahead).cast(ir.i64)),
                ir.Store(self.keys, (_spread(self.keys, to),), key),
            ]
            if self.radix.ordered:
                beside = _spread(self.values, to)
                made.append(ir.Store(self.values, (beside,), self.value_of[t, i]))
            return made

        return self.radix._each_item(item)  # noqa: SLF001 - of one module


def _row_of_banks(kind: ir.DType) -> int:
    """The number of elements in one row of shared-memory banks."""
    return _BANKS * 4 // kind.bytes


def _spread(memory: ir.Buffer, at: ir.Expr) -> ir.Expr:
    """A position, adjusted for the padding."""
    return at + at // _row_of_banks(memory.dtype)
