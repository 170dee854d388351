"""Sorting rows by bitonic networks: exchanges at fixed distances, in vectors.

Batcher, "Sorting networks and their applications", 1968. All exchanges put the smaller
key first, so that a last incomplete block needs no keys behind it: sorted runs are
merged by comparing the first with the mirror image of the second.

Blocks are sorted in registers. Sorted blocks are merged as soon as there are two of a
size, and halves of a merge finish one after the other: at every size of a cache, what
fits is done before anything else is read.

Lanes exchange keys in lockstep, which the definition says: its loops over lanes are
vectorized. Positions are sorted as the lower half of a key twice as wide: no two keys
are equal, and the order is stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ir.natives import clz, popcount
from tensorlang.ops.math.block_scans import over
from tensorlang.ops.math.sort_keys import key_type

if TYPE_CHECKING:
    from tensorlang.ops.math.sort_definitions import Sort

BYTES: Final = 512  # of a block: with as much besides, 16 or 32 vector registers
_LANES: Final = 64  # keys of a register buffer, at most
SHORTEST: Final = 16  # keys of the smallest block
_HALF: Final = 32  # bits of a position
_ROW: Final = ir.Var("r", ir.i64)
_ZERO, _ONE = ir.as_expr(0), ir.as_expr(1)
Pairs: TypeAlias = "Sequence[tuple[int, int]]"


def by_network(sort: Sort) -> ir.Tensor:
    """The result of sorting each row by a network; positions of 32-bit keys only."""
    kind = ir.u64 if sort.ordered else key_type(sort.array.dtype)
    size = BYTES // kind.bytes
    blocks = ir.Binary("max", (sort.rows.length + (size - 1)) // size, _ONE)
    keys = ir.Buffer("row_keys", kind, (blocks * size,))
    end = ir.nests.axis("end", ir.as_expr(size))
    last = ((blocks - 1) * size + end.var,)
    row = ir.seq(
        ir.Alloc(keys),
        _along("padding", end, ir.Store(keys, last, _largest(kind))),
        _encoded(sort, keys),
        _exchanges(sort.rows.length, _Network(keys, blocks, size)),
        _decoded(sort, keys),
    )
    return sort.made(ir.For(_ROW, sort.rows.count, "serial", row))


def _exchanges(length: ir.Expr, network: _Network) -> ir.Stmt:
    """All exchanges of a row; a short one is one block of half the size or less."""
    made, size = network.sorted(), network.size
    while size > SHORTEST:
        size //= 2
        short = replace(network, size=size).block("short", _ZERO, sorting(size))
        made = ir.If(length <= size, short, made)
    return made


def _encoded(sort: Sort, keys: ir.Buffer) -> ir.Stmt:
    """The keys of a row, with positions if these are wanted.

    Vectors are stored whole, with the largest keys behind the row: loads of what a
    masked store wrote wait for the cache.
    """
    length = sort.rows.length
    step = ir.nests.axis("first", (length + (SHORTEST - 1)) // SHORTEST * SHORTEST)
    row, inside = _owner(sort, "keys"), step.var < length
    key = sort.key(row.var, step.var, exact=not sort.ordered, inside=inside)
    if sort.ordered:
        high = ir.Binary("shl", key.cast(ir.u64), ir.as_expr(_HALF, ir.u64))
        key = high | step.var.cast(ir.u64)
    key = ir.Select(inside, key, _largest(keys.dtype))
    return _along("keys", step, ir.Store(keys, (step.var,), key), row)


def _decoded(sort: Sort, keys: ir.Buffer) -> ir.Stmt:
    """The results of a row."""
    step = ir.nests.axis("last", sort.rows.length, "disjoint")
    row, key = _owner(sort, "results"), keys[step.var]
    at = (key & ((1 << _HALF) - 1)).cast(ir.i64) if sort.ordered else step.var
    value = key if sort.ordered else sort.value(key)
    return _along("results", step, sort.placed(row.var, step.var, at, value), row)


def _largest(kind: ir.DType) -> ir.Const:
    return ir.Const((1 << kind.bits) - 1, kind)


def _owner(sort: Sort, name: str) -> ir.Axis:
    return ir.Axis(ir.Var(f"vr_{name}", ir.i64), "spatial", sort.rows.count, _ROW)


def _along(name: str, step: ir.Axis, body: ir.Stmt, *around: ir.Axis) -> ir.Stmt:
    assert isinstance(step.value, ir.Var)
    block = ir.Block(name, (*around, step), body)
    return ir.For(step.value, step.extent, "serial", block)


def merging(size: int) -> list[int]:
    """Distances that sort a block whose halves have no larger one in the first."""
    return [size >> n for n in range(1, size.bit_length())]


def sorting(size: int) -> list[int]:
    """Exclusive-or of the positions exchanged in each step that sorts a block."""
    sizes = [1 << n for n in range(1, size.bit_length())]
    return [mask for n in sizes for mask in (n - 1, *merging(n // 2))]


@frozen
class _Network:
    """A network over `keys`."""

    keys: ir.Buffer  # keys of a row, a whole number of blocks
    blocks: ir.Expr  # number of blocks
    size: int  # number of keys of a block, a power of two

    @property
    def lanes(self) -> int:
        """The number of keys of a register buffer."""
        return min(self.size, _LANES)

    def block(self, name: str, number: ir.Expr, masks: Sequence[int]) -> ir.Stmt:
        """Exchanges inside a block, each step from registers to registers."""
        first, lanes = number * self.size, self.lanes
        parts = range(self.size // lanes)
        held = [
            [self._registers(f"{name}_{n}_{part}") for part in parts]
            for n in range(len(masks) + 1)
        ]

        def step(n: int, e: ir.Var, part: int) -> ir.Stmt:
            mask, to = masks[n], held[n + 1][part]
            other = ir.Binary("xor", e, ir.as_expr(mask % lanes))
            both = held[n][part][e], held[n][part ^ (mask // lanes)][other]
            low, high = ir.Binary("min", *both), ir.Binary("max", *both)
            highest = 1 << (mask.bit_length() - 1)
            if highest >= lanes:
                return ir.Store(to, (e,), high if part * lanes & highest else low)
            return ir.Store(to, (e,), ir.Select((e & highest).equal(0), low, high))

        def load(e: ir.Var, part: int) -> ir.Stmt:
            key = self.keys[first + part * lanes + e]
            return ir.Store(held[0][part], (e,), key)

        def store(e: ir.Var, part: int) -> ir.Stmt:
            place = first + part * lanes + e
            return ir.Store(self.keys, (place,), held[-1][part][e])

        def each(what: str, part_of: Callable[[ir.Var, int], ir.Stmt]) -> ir.For:
            def lane(e: ir.Var) -> ir.Stmt:
                return ir.seq(*(part_of(e, part) for part in parts))

            return over(f"{name}_{what}", lanes, "vectorized", lane)

        return ir.seq(
            [ir.Alloc(buffer) for each_step in held for buffer in each_step],
            each("load", load),
            [each(f"step_{n}", partial(step, n)) for n in range(len(masks))],
            each("store", store),
        )

    def _registers(self, name: str) -> ir.Buffer:
        shape = (ir.as_expr(self.lanes),)
        return ir.Buffer(name, self.keys.dtype, shape, "register")

    def sorted(self) -> ir.Stmt:
        """Sort block after block, and merge all runs that this completes."""

        def next_block(b: ir.Var) -> ir.Stmt:
            merges = ir.Var("merges", ir.i64)
            every = 64 - clz(self.blocks - 1).cast(ir.i64)
            is_last = (b + 1).equal(self.blocks)
            return ir.seq(
                self.block("sort", b, sorting(self.size)),
                ir.Let(merges, ir.Select(is_last, every, _trailing_zeros(b + 1))),
                over("level", merges, "serial", lambda level: self._merged(b, level)),
            )

        return over("block", self.blocks, "serial", next_block)

    def _merged(self, b: ir.Var, level: ir.Var) -> ir.Stmt:
        """Merge two runs of `2**level` blocks, the second of which ends at block b."""
        half, start = ir.Var("half", ir.i64), ir.Var("start", ir.i64)
        missing = ir.Var("missing", ir.i64)
        end = start + half * 2

        def mirrored(p: ir.Var) -> ir.Stmt:
            low, high = start + missing + p, end - missing - p
            return self._exchanged(
                "mirrored",
                lambda e: [low * self.size + e, high * self.size - 1 - e],
                [(0, 1)],
            )

        count = ir.Binary("min", half * 2, self.blocks - start)
        merge = ir.seq(
            ir.Let(missing, ir.Binary("max", end - self.blocks, _ZERO)),
            over("p", half - missing, "serial", mirrored),
            over("c", count, "serial", lambda c: self._finished(start, c, level)),
        )
        return ir.seq(
            ir.Let(half, ir.Binary("shl", _ONE, level)),
            ir.Let(start, b & ~(half * 2 - 1)),
            ir.If(start + half <= b, merge),
        )

    def _finished(self, start: ir.Var, c: ir.Var, level: ir.Var) -> ir.Stmt:
        """Exchanges, by distance, of the parts that start at a block, and inside it.

        Two steps at a time; the first alone if they are odd in number.
        """
        first, steps = ir.Var("first", ir.i64), ir.Var("steps", ir.i64)
        one = ir.Binary("shl", _ONE, steps - 1)
        return ir.seq(
            ir.Let(first, start + c),
            ir.Let(steps, ir.Binary("min", _trailing_zeros(c), level)),
            ir.If((steps % 2).equal(1), self._straight("single", first, one)),
            over(
                "two", steps // 2, "serial", lambda n: self._twice(first, steps // 2, n)
            ),
            self.block("merge", first, merging(self.size)),
        )

    def _twice(self, first: ir.Var, twos: ir.Expr, n: ir.Var) -> ir.Stmt:
        """Exchanges at a distance of `2 * near` blocks, and then of `near`."""
        near = ir.Var("near", ir.i64)

        def four(q: ir.Var) -> ir.Stmt:
            starts = [(first + q + near * part) * self.size for part in range(4)]
            pairs = [(0, 2), (1, 3), (0, 1), (2, 3)]
            return self._exchanged("four", lambda e: [at + e for at in starts], pairs)

        apart = (
            self._straight("farther", first, near * 2),
            self._straight("nearer", first, near),
        )
        return ir.seq(
            ir.Let(near, ir.Binary("shl", _ONE, (twos - 1 - n) * 2)),
            ir.If(
                first + near * 4 <= self.blocks,
                over("q", near, "serial", four),
                ir.seq(*apart),
            ),
        )

    def _straight(self, name: str, first: ir.Var, distance: ir.Expr) -> ir.For:
        """Exchange each of the next `distance` blocks with that at the distance."""
        to = first + distance
        count = ir.Binary("min", distance, self.blocks - to)
        return over(
            name,
            count,
            "serial",
            lambda q: self._exchanged(
                f"{name}_lane",
                lambda e: [at * self.size + e for at in (first + q, to + q)],
                [(0, 1)],
            ),
        )

    def _exchanged(
        self, name: str, places: Callable[[ir.Expr], list[ir.Expr]], pairs: Pairs
    ) -> ir.For:
        """Exchange keys of two blocks or more in memory, those of each pair in turn."""

        def lane(e: ir.Expr) -> ir.Stmt:
            at, made = places(e), list[ir.Stmt]()

            def named(value: ir.Expr) -> ir.Expr:
                var = ir.Var(f"{name}_{len(made)}", self.keys.dtype)
                made.append(ir.Let(var, value))
                return var

            held = [named(self.keys[place]) for place in at]
            for first, second in pairs:
                both = held[first], held[second]
                held[first] = named(ir.Binary("min", *both))
                held[second] = named(ir.Binary("max", *both))
            stores = [
                ir.Store(self.keys, (place,), key)
                for place, key in zip(at, held, strict=True)
            ]
            return ir.seq(*made, *stores)

        def part(n: ir.Var) -> ir.Stmt:
            first = n * self.lanes
            return over(
                f"{name}_lane", self.lanes, "vectorized", lambda e: lane(first + e)
            )

        return over(f"{name}_part", self.size // self.lanes, "serial", part)


def _trailing_zeros(x: ir.Expr) -> ir.Expr:
    """The number of zeros below the lowest bit that is set; 64 if there is none."""
    return popcount(~x & (x - 1)).cast(ir.i64)
