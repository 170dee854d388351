"""The time of a contraction on a CPU, predicted from sizes, blocks and machine.

Arithmetic at the rate of the tiles, remainders included, overlaps in part with what
moves between caches; added are copies of operands, what accumulating in memory moves,
and starting threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, hypot, prod

from tensorlang.frozen import frozen
from tensorlang.schedules.contraction.space import SMALL, Blocks
from tensorlang.schedules.cost.core import REFILL, Core
from tensorlang.schedules.cost.tiles import Nest, shared
from tensorlang.schedules.cost.traffic import (
    Loops,
    Operand,
    held,
    missed,
    moved,
    period_of,
    places,
)
from tensorlang.schedules.tiling import nearest


@frozen
class Product:
    """Sizes of a contraction, `result[m, n] += left[m, k] * right[k, n]`."""

    batch: int  # number of products
    rows: int  # extent of `m`; a representative one if it is open
    columns: int  # extent of `n`, likewise
    depth: int  # extent of `k`, likewise
    left: Operand  # operand of the rows
    right: Operand  # operand of the columns
    result: Operand
    # whether the kernel is for any number of rows, so that a remainder is made of
    # several tiles
    open_rows: bool = False
    open_depth: bool = False  # whether the kernel is for any depth


def cycles(core: Core, product: Product, rows: int, vectors: int, how: Blocks) -> float:
    """Cycles of a contraction in blocks, in tiles of `rows` by `vectors`."""
    return sum(part.cycles for part in _parts(core, product, rows, vectors, how))


def terms(
    core: Core, product: Product, rows: int, vectors: int, how: Blocks
) -> dict[str, float]:
    """What `cycles` are made of, by name."""
    found: dict[str, float] = {}
    for part in _parts(core, product, rows, vectors, how):
        for name, time in part.terms.items():
            found[name] = found.get(name, 0.0) + time
    return found


def _parts(
    core: Core, product: Product, rows: int, vectors: int, how: Blocks
) -> Iterator[_Part]:
    """Columns in whole strips, in whole vectors, and those left."""
    left, wide = product.columns, vectors * core.lanes
    for width in (wide, core.lanes, 1):
        if left >= width:
            own = left // width * width
            strip = width if width == wide else own
            yield _Part(core, replace(product, columns=own), rows, strip, how)
            left -= own


@frozen
class _Copy:
    """An operand copied inside of `at` loops."""

    source: Operand
    copy: Operand  # what is read instead
    at: int  # number of loops around the copy


@frozen
class _Work:
    """Cycles of a part."""

    share: float  # share of a thread
    busy: float  # arithmetic of all threads
    moving: Sequence[float]  # what moves into each cache
    write: float  # accumulating in memory
    copying: float  # copies of operands
    starts: float  # handing work over


class _Part:
    """Columns in strips of one width."""

    def __init__(
        self, core: Core, product: Product, rows: int, width: int, how: Blocks
    ) -> None:
        self.core, self.product, self.width = core, product, width
        strips = product.columns // width
        inner = nearest(strips, how.strips)
        self.depth = product.depth
        if 0 < how.depth < product.depth:
            self.depth = nearest(product.depth, how.depth)
        split = self.depth < product.depth
        self.parts = tuple(_row_parts(product, how.tiles, rows))
        _, tiles, tall = self.parts[0]
        self.tile: dict[str, float] = {"m": tall, "n": width, "k": self.depth}
        self.trips = {
            "n": strips / inner,
            "m": product.rows / (tall * tiles),
            "k": product.depth / self.depth,
        }
        self.order = "".join(dim for dim in how.order if split or dim != "k")
        inside = (("n", float(inner)), ("m", float(tiles)))
        around = tuple((dim, self.trips[dim]) for dim in self.order)
        self.loops: Loops = around + (inside if how.strips_first else inside[::-1])
        self.copies = tuple(self._copies(how, tiles))
        self.crossing = core.crossing if how.packing == "none" else 1.0

    def _copies(self, how: Blocks, tiles: int) -> Iterator[_Copy]:
        """The operands that are packed."""
        right, left = self.product.right, self.product.left
        places = [n for n, dim in enumerate(self.order, 1) if dim in right.dims]
        if how.packing != "none":
            at = places[-1] if how.packing == "inside" else 0
            yield _Copy(right, replace(right, run="n", pitch=0, inside=at), at)
        if how.rows_packed and tiles > 1:
            at = [n for n, dim in enumerate(self.order, 1) if dim in left.dims][-1]
            yield _Copy(left, replace(left, run="k", pitch=0, inside=at), at)

    @property
    def cycles(self) -> float:
        """Cycles of the slowest thread."""
        work = self._work_of_a_thread()
        alone = work.copying + self.core.beside(work.busy, work.moving) + work.write
        team = work.copying + work.share * (alone - work.copying) + work.starts
        return min(alone, team) if work.share == 1.0 else team

    @property
    def terms(self) -> dict[str, float]:
        """What the cycles are made of, by name."""
        work = self._work_of_a_thread()
        into = (f"into L{level.cache.level}" for level in self.core.levels)
        return {
            "arithmetic": work.share * work.busy,
            **dict(zip(into, (work.share * m for m in work.moving), strict=True)),
            "sums in memory": work.share * work.write,
            "packing": work.copying,
            "handing over": work.starts if work.share < 1.0 else 0.0,
        }

    def _work_of_a_thread(self) -> _Work:
        batch, core = self.product.batch, self.core
        first, shared = self._shared()
        apart = shared[:1] == "m" and batch == 1
        busy = [batch * own for own in self._arithmetic()]
        total = sum(busy)
        spread = sum(
            own * self._share(part, shared)
            for own, part in zip(busy, self.parts, strict=True)
        )
        share = spread / total
        moving, write = self._moving()
        copying = batch * sum(
            self._copying(copy) * self._copied(copy, first, share)
            for copy in self.copies
        )
        regions = prod(self.trips[dim] for dim in self.order[:first])
        starts = (len(self.parts) if apart else 1) * (regions if batch == 1 else 1)
        times = [batch * m for m in moving]
        return _Work(
            share, total, times, batch * write, copying, starts * core.handover
        )

    def _shared(self) -> tuple[int, str]:
        """The first parallel loop's place, and the dimensions that threads share."""
        order = self.order
        if self.product.batch == 1 and self.trips["n"] == 1:
            first = order.index("m")
            last = first + 1
        else:
            first = int(self.product.batch == 1 and order[0] == "k")
            last = order.index("k", first) if "k" in order[first:] else len(order)
        inside = [copy.at for copy in self.copies if copy.at > first]
        shared = order[first : min([last, *inside])]
        if len(self.parts) > 1 and (self.product.batch > 1 or shared[:1] != "m"):
            shared = shared.partition("m")[0]  # parts follow each other inside
        return first, shared

    def _share(self, part: tuple[int, int, int], shared: str) -> float:
        """The largest share of a part of the rows that a thread computes."""
        trips = {**self.trips, "m": float(part[0])}
        chunks = self.product.batch * prod(ceil(trips[dim]) for dim in shared)
        return ceil(chunks / self.core.threads) / chunks

    def _copied(self, copy: _Copy, first: int, share: float) -> float:
        """The largest share of copies that a thread makes."""
        if copy.at == 0:  # vectors of columns to threads
            return self._share((1, 1, 1), "n") if self.width > 1 else share
        return share if self.product.batch > 1 or copy.at > first else 1.0

    def _arithmetic(self) -> Iterator[float]:
        """Cycles of each part of the rows on one core."""
        core, deep = self.core, self.trips["k"]
        broadcast = core.converted(self.product.left.bytes)
        loaded = core.converted(self.product.right.bytes) * self.crossing
        vectors = -(-self.width // core.lanes)
        for trips, tiles, rows in self.parts:
            stores = rows * vectors * (2 if deep > 1 else 1)
            loads = rows * broadcast + vectors * loaded
            steps = self.product.depth * core.tile(rows, vectors, loads)
            ends = deep * (REFILL + core.latency + stores)
            yield trips * tiles * self.product.columns / self.width * (steps + ends)

    def _operands(self) -> list[Operand]:
        """What a tile reads and writes: left, right, result."""
        copied = {copy.source: copy.copy for copy in self.copies}
        product = self.product
        read = [copied.get(each, each) for each in (product.left, product.right)]
        return [*read, replace(product.result, moves=2)]

    def _moving(self) -> tuple[list[float], float]:
        """Cycles for what comes into each cache, and for accumulating in memory.

        Sums that are read, added to and written back wait for the first cache; a tile
        of those that have left the core's own caches also for the first of its lines.
        """
        operands, times, write = self._operands(), [], 0.0
        split, levels = self.trips["k"] > 1, self.core.levels
        came = moved(self.loops, self.tile, operands, levels)
        for n, (level, bytes_) in enumerate(zip(levels, came, strict=True)):
            if n == 0:
                bytes_[0] *= self._again()
                if split:
                    write, bytes_[2] = bytes_[2] / level.rate, 0.0
            elif n == 1 and split:
                tile = 2 * operands[2].size(self.tile, level.cache)
                write += bytes_[2] / tile * self.core.transfer
            times.append(sum(bytes_) / level.rate)
        return times, write

    def _again(self) -> float:
        """How often a line of the left operand comes into the first cache for a tile.

        A line has values for several steps. Until they are used, lines of other rows
        and of the right operand may take its place.
        """
        left, right, _ = self._operands()
        cache = self.core.levels[0].cache
        if left.run != "k" or not left.pitch or not cache.ways:
            return 1.0
        period, steps = period_of(cache), cache.line // left.bytes
        if right.pitch > self.width * right.bytes:
            others = ceil(steps / places(right.pitch, period))
        else:
            others = ceil(steps * self.width * right.bytes / period)
        ways = ceil(self.tile["m"] / places(left.pitch, period)) + others
        return 1.0 + (steps - 1) * max(0.0, 1.0 - cache.ways / ways)

    def _copying(self, made: _Copy) -> float:
        """Cycles for all copies of an operand: instructions, or what they move."""
        core, around, block = self.core, self.loops[: made.at], dict(self.tile)
        for dim, trips in self.loops[made.at :]:
            block[dim] *= trips
        copies = prod(trips for _, trips in around)
        elements = copies * prod(block[dim] for dim in made.source.dims)
        busy = elements / core.lanes * self._work(made) / core.products
        operands, moving = [made.source, *self._operands()], []
        came = moved(around, block, operands, core.levels)
        needed = held(operands, block, core.levels)
        for level, (read, *_), need in zip(core.levels, came, needed, strict=True):
            gone = missed(need, level.capacity)
            written = 2 * copies * made.copy.size(block, level.cache) * gone
            moving.append((read + written) / level.rate)
        return hypot(busy, *moving)

    def _work(self, made: _Copy) -> float:
        """Instructions to copy a vector: more if it is transposed, in squares."""
        lanes = self.core.lanes
        if made.source.run == made.copy.run:
            return 2.0
        wide = self.width // lanes * lanes / self.width
        whole = wide * (self.depth // lanes * lanes) / self.depth
        return whole * (1 + lanes.bit_length()) + (1 - whole) * 2 * lanes


def _row_parts(
    product: Product, tiles: int, rows: int
) -> Iterator[tuple[int, int, int]]:
    """Parts of the rows: number of blocks, tiles of a block, rows of a tile."""
    small = [size for size in SMALL if size < rows] if product.open_rows else []
    rest = product.rows
    sizes = ((tiles, rows),) * (tiles > 1) + ((1, rows),)
    for many, tall in (*sizes, *((1, size) for size in small)):
        if rest >= many * tall:
            yield rest // (many * tall), many, tall
            rest %= many * tall
    if rest:
        yield 1, 1, rest


def dot_cycles(core: Core, product: Product, rows: int, columns: int) -> float:
    """Cycles of a contraction in tiles of dot products of `rows` by `columns`."""
    rows, columns = min(rows, product.rows), min(columns, product.columns)
    steps, rest = divmod(product.depth, core.lanes)
    halvings = core.lanes.bit_length() - 1
    total = 0.0
    for tall, high in _divided(product.rows, rows):
        for wide, across in _divided(product.columns, columns):
            sums = tall * wide
            end = REFILL + core.latency * (1 + halvings)
            end += sums * (2 * halvings + rest) / core.products
            total += (
                high
                * across
                * (steps * core.dots(tall, wide, product.left.bytes) + end)
            )
    trips = {"m": product.rows / rows, "n": product.columns / columns}
    loops = (("n", trips["n"]), ("m", trips["m"]))
    tile = {"m": rows, "n": columns, "k": product.depth}
    operands = (product.left, product.right, replace(product.result, moves=2))
    chunks = product.batch * prod(ceil(each) for each in trips.values())
    nest = Nest(total, chunks, loops, tile, operands)
    return shared(core, product.batch * nest.alone(core), chunks)


@cache
def _divided(length: int, part: int) -> list[tuple[int, int]]:
    """The sizes of the parts of a length, and their numbers."""
    whole, rest = divmod(length, part)
    return [(part, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)
