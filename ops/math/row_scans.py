"""Prefix sums of rows by thread blocks: part by part, or all parts in parallel.

    total[r, p] = sum of part p of row r                        # one block per part
    first[r, p] = sum of total[r, q] over q < p                 # one block per row
    y[r, at]    = first[r, p] + sum of the part up to at        # one block per part

A short row is processed by one block, part by part: a single launch that reads and
writes each element once. Within a part, each thread has chunks of four consecutive
elements; chunk sums are scanned by the block (Blelloch, "Prefix sums and their
applications", 1990). The partition of a row, and so each bit of the result, depends
only on its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.math.block_scans import BlockScan, over

SHORT: Final = 16  # maximum parts of a row for a single block
WIDE: Final = 4  # elements per chunk

# the load at a row and position; the store of a sum there
Read: TypeAlias = "Callable[[ir.Expr, ir.Expr], ir.Expr]"
Write: TypeAlias = "Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Store]"


@frozen
class RowScan:
    """The prefix sums of rows."""

    scan: BlockScan  # threads of a block
    chunk: int  # elements per thread and part, a multiple of four
    length: ir.Expr  # length of a row
    read: Read  # load at a row and position
    write: Write  # store of a sum, in the stored type
    types: tuple[ir.DType, ir.DType, ir.DType]  # types of inputs, sums and outputs
    reverse: bool = False  # whether to scan from the end to the start
    inclusive: bool = True  # whether a sum includes its own element
    wide: bool = True  # whether rows are contiguous in both input and output

    @property
    def part(self) -> int:
        """The length of a part."""
        return self.chunk * self.scan.threads

    @property
    def parts(self) -> ir.Expr:
        """The number of parts of a row."""
        return (self.length + (self.part - 1)) // self.part

    def everywhere(self, rows: ir.Expr) -> tuple[ir.Stmt, tuple[ir.Buffer, ir.Buffer]]:
        """The scan of all rows, by the variant for their length, and its scratch."""
        shape, kind = (rows, self.parts), self.types[1]
        total, first = (
            ir.Buffer(name, kind, shape) for name in ("part_total", "part_first")
        )
        several = ir.seq(
            self._totals(rows, total),
            self._firsts(rows, total, first),
            self._apart(rows, first),
        )
        short = self.length <= SHORT * self.part
        return ir.If(short, self.in_order(rows), several), (total, first)

    def in_order(self, rows: ir.Expr) -> ir.For:
        """The scan with one block per row, part by part."""

        def row(r: ir.Var) -> list[ir.Stmt]:
            held = _Held(self)
            parts = over("part", self.parts, "serial", lambda p: held.summed(r, p))
            return [*held.allocated(), held.from_(ir.as_expr(0, self.types[1])), parts]

        return over("row", rows, "block.x", row)

    def _totals(self, rows: ir.Expr, total: ir.Buffer) -> ir.For:
        """The sum of each part."""

        def part(r: ir.Expr, p: ir.Expr) -> list[ir.Stmt]:
            held = _Held(self)
            zero = held.from_(ir.as_expr(0, self.types[1]))
            end = self.scan.each(
                lambda t: ir.If(t.equal(0), ir.Store(total, (r, p), held.carry[t, 0]))
            )
            return [*held.allocated(back=False), zero, *held.scanned(r, p), end]

        return self._parts(rows, part)

    def _firsts(self, rows: ir.Expr, total: ir.Buffer, first: ir.Buffer) -> ir.For:
        """The exclusive prefix sums of the parts of each row."""
        kind = self.types[1]
        scan = replace(
            self,
            length=self.parts,
            read=lambda r, p: total[r, p],
            write=lambda r, p, value: ir.Store(first, (r, p), value),
            types=(kind, kind, kind),
            reverse=False,
            inclusive=False,
            wide=False,
        )
        return scan.in_order(rows)

    def _apart(self, rows: ir.Expr, first: ir.Buffer) -> ir.For:
        """All sums, each part from its start value."""

        def part(r: ir.Expr, p: ir.Expr) -> list[ir.Stmt]:
            held = _Held(self)
            return [*held.allocated(), held.from_(first[r, p]), held.summed(r, p)]

        return self._parts(rows, part)

    def _parts(
        self, rows: ir.Expr, body: Callable[[ir.Expr, ir.Expr], list[ir.Stmt]]
    ) -> ir.For:
        """A loop over all parts of all rows, one block each."""
        r, p = ir.Var("r", ir.i64), ir.Var("p", ir.i64)

        def block(b: ir.Var) -> list[ir.Stmt]:
            if rows == ir.as_expr(1):
                return body(rows - 1, b)
            own = [ir.Let(r, b // self.parts), ir.Let(p, b % self.parts)]
            return [*own, *body(r, p)]

        return over("block", rows * self.parts, "block.x", block)


class _Held:
    """A block's registers and shared memory for a part, and the steps on them."""

    def __init__(self, rows: RowScan) -> None:
        read, kind, made = rows.types
        scan, chunks = rows.scan, rows.chunk // WIDE
        self.rows = rows
        self.items = scan.own("items", read, rows.chunk)
        self.sums = scan.own("sums", kind, chunks)
        self.before = scan.own("before", kind, chunks)
        self.start = scan.own("start", kind, chunks)
        self.carry = scan.own("carry", kind, 1)
        self.made = scan.own("made", made, rows.chunk)
        self.warps = scan.totals("warps", self.sums)

    def allocated(self, *, back: bool = True) -> list[ir.Stmt]:
        """The allocations; with `back`, those for results too."""
        held = (self.items, self.sums, self.before, self.start, self.carry, self.warps)
        return [ir.Alloc(buffer) for buffer in (*held, *([self.made] if back else []))]

    def from_(self, value: ir.Expr) -> ir.For:
        """Initialise the carry, the sum before the first part."""
        return self.rows.scan.each(
            lambda t: ir.Store(self.carry, (t, ir.as_expr(0)), value)
        )

    def summed(self, r: ir.Expr, p: ir.Expr) -> ir.Stmt:
        """The prefix sums of a part."""
        return ir.seq(*self.scanned(r, p), self._added(), self._moved(r, p, back=True))

    def scanned(self, r: ir.Expr, p: ir.Expr) -> list[ir.Stmt]:
        """The start value of each chunk of a part."""
        scan = self.rows.scan
        return [
            self._moved(r, p, back=False),
            self._chunks(),
            scan.scanned(self.sums, self.before, self.warps),
            scan.chained(self.warps, self.before, self.carry, self.start),
        ]

    def _chunks(self) -> ir.For:
        """The sum of each chunk."""
        kind = self.sums.dtype

        def chunk(t: ir.Var, s: ir.Var) -> ir.Stmt:
            total: ir.Expr = self.items[t, s * WIDE].cast(kind)
            for lane in range(1, WIDE):
                total = total + self.items[t, s * WIDE + lane].cast(kind)
            return ir.Store(self.sums, (t, s), total)

        return self._over_chunks(chunk)

    def _added(self) -> ir.For:
        """The prefix sums within each chunk."""
        kind, made = self.sums.dtype, self.made.dtype

        def chunk(t: ir.Var, s: ir.Var) -> list[ir.Stmt]:
            out: list[ir.Stmt] = []
            total: ir.Expr = self.start[t, s]
            for lane in range(WIDE):
                place = (t, s * WIDE + lane)
                now = ir.Var(f"sum{lane}", kind)
                out.append(ir.Let(now, total + self.items[place].cast(kind)))
                shown = now if self.rows.inclusive else total
                out.append(ir.Store(self.made, place, shown.cast(made)))
                total = now
            return out

        return self._over_chunks(chunk)

    def _over_chunks(
        self, body: Callable[[ir.Var, ir.Var], ir.Stmt | list[ir.Stmt]]
    ) -> ir.For:
        """A loop over the chunks of each thread."""
        chunks = self.rows.chunk // WIDE
        return self.rows.scan.each(
            lambda t: over("s", chunks, "unrolled", lambda s: body(t, s))
        )

    def _moved(self, r: ir.Expr, p: ir.Expr, *, back: bool) -> ir.For:
        """Load or store a part, in vectors if the length is a multiple of four."""
        rows, n = self.rows, self.rows.length
        chunks = rows.chunk // WIDE

        def move(at: ir.Expr, place: tuple[ir.Expr, ir.Expr]) -> ir.Store:
            if back:
                return rows.write(r, at, self.made[place])
            return ir.Store(self.items, place, rows.read(r, at))

        def first(t: ir.Var, s: ir.Expr) -> ir.Expr:
            return p * rows.part + s * (rows.scan.threads * WIDE) + t * WIDE

        def clear(place: tuple[ir.Expr, ir.Expr]) -> ir.Stmt:
            return ir.Store(self.items, place, ir.as_expr(0, self.items.dtype))

        def wide(t: ir.Var, s: ir.Var) -> ir.Stmt:
            start = first(t, s)
            at = n - WIDE - start if rows.reverse else start

            def lane(v: ir.Var) -> ir.Stmt:
                own = WIDE - 1 - v if rows.reverse else v
                return move(at + v, (t, s * WIDE + own))

            return over("v", WIDE, "vectorized", lane)

        def guarded(t: ir.Var, s: ir.Var) -> ir.Stmt:
            none = over("v", WIDE, "unrolled", lambda v: clear((t, s * WIDE + v)))
            there = ir.If(first(t, s) < n, wide(t, s))
            return there if back else ir.seq(none, there)

        def single(t: ir.Var, s: ir.Var) -> ir.Stmt:
            def lane(v: ir.Var) -> list[ir.Stmt]:
                element, place = first(t, s) + v, (t, s * WIDE + v)
                at = n - 1 - element if rows.reverse else element
                there = ir.If(element < n, move(at, place))
                return [there] if back else [clear(place), there]

            return over("v", WIDE, "unrolled", lane)

        def program(t: ir.Var) -> ir.Stmt:
            apart = over("s", chunks, "unrolled", lambda s: single(t, s))
            if not rows.wide:
                return apart
            together = over("s", chunks, "unrolled", lambda s: wide(t, s))
            some = over("s", chunks, "unrolled", lambda s: guarded(t, s))
            whole = (p + 1) * rows.part <= n
            return ir.If((n % WIDE).equal(0), ir.If(whole, together, some), apart)

        return rows.scan.each(program)
