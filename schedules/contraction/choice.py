"""The default of a contraction's knobs: what the model predicts to be fastest.

Register tiles that fit the registers, blocks that fit a cache, and a few orders of
loops are compared by `contraction_model`; simpler ones come first, and win where the
model does not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product as every
from math import ceil, inf, prod
from statistics import geometric_mean
from typing import Final, TypeVar

from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Const, Expr, Load, Var
from tensorlang.schedules.contraction import space
from tensorlang.schedules.contraction.model import Product, cycles, dot_cycles, terms
from tensorlang.schedules.cost.core import Core
from tensorlang.schedules.cost.traffic import Operand
from tensorlang.schedules.stages import Stage, extent_of, tile_axes
from tensorlang.scheduling.knobs import Candidate, Value

T = TypeVar("T")
_FEW_AND_MANY: Final = (24, 512)  # rows, where their number is open
_USUAL_BATCH: Final = 8  # the number of products if that is open
USUAL: Final = Product(
    1,
    space.USUAL_SIZE,
    space.USUAL_SIZE,
    space.USUAL_SIZE,
    Operand("km", "k", 0, 4),
    Operand("kn", "n", 0, 4),
    Operand("mn", "n", 0, 4),
    open_rows=True,
)
_PACKING: Final = ("inside", "before", "none")
_RESOLVED: Final = 0.98  # predictions closer to each other than this count as equal
_SHORTER: Final = 2  # tiles that are shorter than the tallest of a width
_MANY_TILES: Final = 16  # of a block of rows that is read from a cache
_TILES: Final = 2  # register tiles that are compared in all blocks
# order, strips, tiles, whether strips are the outer loop of a block; the simplest first
_LOOPS: Final = (("nkm", 1, 1, True), ("nkm", 4, 1, False))
_LOOPS_OF_MANY: Final = (  # of a known number of rows, enough for all threads
    ("mnk", 1, 1, True),
    ("nkm", space.STRIPS[-1], 1, True),
    ("mnk", space.STRIPS[-1], _MANY_TILES, True),
)
_BLOCKS_OF_ALL: Final = ("nkm", space.STRIPS[-1], _MANY_TILES)  # both are packed
_PACKED_ROWS: Final = (
    "mnk",
    space.STRIPS[-1],
    4,
)  # few tiles: rows left are not packed


@frozen
class Choice:
    """Defaults of a contraction."""

    rows: int  # rows of a register tile
    vectors: int  # vectors of columns of a register tile
    blocks: space.Blocks
    dots: bool  # whether both operands are contiguous along the reduction
    by_depth: bool  # whether lanes along the reduction are faster
    dot_rows: int  # rows of a tile of dot products
    dot_columns: int  # columns of a tile of dot products


def product_of(stage: Stage) -> Product | None:
    """The sizes of a contraction; None if several operands have its columns."""
    found, folded = tile_axes(stage), stage.driven("reduction")
    if found is None or not folded:
        return None
    row, column = found
    letters = {stage.axis(row): "m", stage.axis(column): "n"}
    letters |= {stage.axis(loop): "k" for loop in folded}
    others = [x for x in stage.driven("spatial") if x not in {row, column}]
    loads = [_operand(load, letters) for load in stage.loads if load.indices]
    left = [each for each in loads if "n" not in each.dims]
    right = [each for each in loads if "n" in each.dims]
    if not left or len(right) != 1:
        return None
    columns, depths = extent_of(column), [extent_of(loop) for loop in folded]
    output, columns = stage.output, columns if columns is not None else space.USUAL_SIZE
    size = output.dtype.bytes
    return Product(
        prod(extent_of(loop) or _USUAL_BATCH for loop in others),
        extent_of(row) or space.USUAL_SIZE,
        columns,
        prod(space.USUAL_SIZE if depth is None else depth for depth in depths),
        left[0],
        right[0],
        Operand("mn", "n", columns * size, size),
        open_rows=extent_of(row) is None,
        open_depth=None in depths,
    )


def _operand(load: Load, letters: Mapping[Var, str]) -> Operand:
    """An operand as the model sees it."""

    def of(index: Expr) -> set[str]:
        return {letters[var] for var in free_vars(index) if var in letters}

    dims = set[str]().union(*map(of, load.indices))
    last, length = of(load.indices[-1]), load.buffer.shape[-1]
    run = min(last or dims or {"k"})
    size = load.buffer.dtype.bytes
    pitch = int(length.value) * size if isinstance(length, Const) else 0
    return Operand("".join(sorted(dims | {run})), run, pitch, size)


def tiles(core: Core, rows: int) -> list[tuple[int, int]]:
    """Register tiles that fit the registers, of at most so many rows."""
    found = []
    for vectors in space.VECTORS:
        fits = [n for n in space.ROWS if n == vectors == 1 or core.holds(n, vectors)]
        tall = min(max(fits, default=0), rows)
        found += [(n, vectors) for n in range(tall, max(tall - _SHORTER, 1) - 1, -1)]
    return found


def blocks(
    core: Core, product: Product, tile: tuple[int, int]
) -> Iterator[space.Blocks]:
    """Blocks to compare for a register tile, the simplest first."""
    orders = _LOOPS if product.open_rows else (*_LOOPS, *_LOOPS_OF_MANY)
    rows, vectors = tile
    step = vectors * core.lanes * product.right.bytes + rows * product.left.bytes
    room = [level.capacity / step for level in core.levels[:2]]
    fits = {max([n for n in space.DEPTHS if 0 < n <= most], default=0) for most in room}
    depths = sorted((n for n in fits if 0 < n < product.depth), reverse=True)
    strips = product.columns // (vectors * core.lanes)
    if _far_lines(core, product):
        for packing, depth in every(_PACKING[:2], [0, *reversed(depths)]):
            yield space.Blocks(*_PACKED_ROWS, depth, packing, rows_packed=True)
        return
    cuts = [*every(orders, [0]), *every(_LOOPS, depths)]
    for packing in _PACKING if product.right.run == "n" else _PACKING[:2]:
        for (order, most, many, first), depth in cuts:
            if (most > 1 and strips <= 1) or (depth and packing == "before"):
                continue
            yield space.Blocks(order, most, many, depth, packing, strips_first=first)
    for depth in () if product.open_rows else depths:
        yield space.Blocks(*_BLOCKS_OF_ALL, depth, rows_packed=True)


def _far_lines(core: Core, product: Product) -> bool:
    """Whether a tile's rows are elements of more lines than the first cache has.

    Each line has rows of a few tiles, and is gone before the next of them. An open
    depth counts as a large one.
    """
    first = core.levels[0] if core.levels else None
    return (
        first is not None
        and product.left.run == "m"
        and (product.open_depth or product.depth * first.cache.line > first.capacity)
    )


def _dots(core: Core, product: Product) -> list[tuple[int, int]]:
    """Tiles of dot products that fit the registers."""
    return [
        (tall, wide)
        for tall, wide in every(space.SIDES, space.SIDES)
        if tall * wide + min(tall, wide) < core.registers
        and tall <= product.rows
        and wide <= product.columns
    ]


@cache
def choice(core: Core, product: Product, *, dots: bool) -> Choice:
    """The fastest of all candidates, as predicted.

    Args:
        core: A core of the machine.
        product: The contraction; of open rows, all numbers count alike.
        dots: Whether both operands are contiguous along the reduction.
    """
    sizes = sizes_of(core, product)

    def by_dots(sides: tuple[int, int]) -> float:
        return prod([dot_cycles(core, size, *sides) for size in sizes])

    (tile, how), least = _best(
        candidates(core, product), lambda each: _spent(core, sizes, *each)
    )
    sides, quickest = (1, 1), inf
    if dots:
        sides = min(_dots(core, product), key=by_dots)
        quickest = by_dots(sides)
    return Choice(*tile, how, dots, quickest < least, *sides)


def candidates(
    core: Core, product: Product
) -> list[tuple[tuple[int, int], space.Blocks]]:
    """What is compared: the fastest tiles without blocks, in all blocks.

    Of open rows, few and many tell which tiles are fast.
    """
    sizes, base = sizes_of(core, product)[:2], space.Blocks("nkm")
    shapes = sorted(
        tiles(core, product.rows), key=lambda tile: _spent(core, sizes, tile, base)
    )
    return [
        (tile, how) for tile in shapes[:_TILES] for how in blocks(core, product, tile)
    ]


def _spent(
    core: Core, sizes: Sequence[Product], tile: tuple[int, int], how: space.Blocks
) -> float:
    """The product of the cycles for some sizes."""
    return prod([cycles(core, size, *tile, how) for size in sizes])


def compared(
    core: Core, product: Product, prefix: str = "", *, dots: bool = False
) -> Iterator[Candidate]:
    """What `choice` compares; terms are those of the most rows if they are open.

    Args:
        core: A core of the machine.
        product: The contraction.
        prefix: What the names of its knobs of blocks begin with.
        dots: Whether both operands are contiguous along the reduction.
    """
    sizes = sizes_of(core, product)
    numbers = [f"{size.rows} rows" for size in sizes] if product.open_rows else []
    for tile, how in candidates(core, product):
        each = [cycles(core, size, *tile, how) for size in sizes]
        yield Candidate(
            _tiled(tile, how, prefix) | {"lanes_along": "columns"},
            geometric_mean(each),
            terms(core, sizes[-1], *tile, how),
            dict(zip(numbers, each, strict=False)),
        )
    for tall, wide in _dots(core, product) if dots else ():
        each = [dot_cycles(core, size, tall, wide) for size in sizes]
        yield Candidate(
            {"lanes_along": "depth", "dot_rows": tall, "dot_columns": wide},
            geometric_mean(each),
            {},
            dict(zip(numbers, each, strict=False)),
        )


def predicted(
    core: Core,
    product: Product,
    best: Choice,
    prefix: str,
    values: Mapping[str, Value],
) -> float:
    """Cycles of a contraction by its knobs, absent ones as in `best`.

    Args:
        core: A core of the machine.
        product: The contraction.
        best: The defaults.
        prefix: What the names of its knobs of blocks begin with.
        values: Values by name.
    """
    of = {**_values(best, prefix), **values}
    of |= {name: of[f"{prefix}{name}"] for name in space.OF_BLOCKS}
    if product.right.run != "n" and of["packing"] == "none":
        of["packing"] = "inside"  # as columns that are not contiguous always are
    sizes = sizes_of(core, product)
    if best.dots and of["lanes_along"] == "depth":
        sides = int(of["dot_rows"] or 1), int(of["dot_columns"] or 1)
        each = [dot_cycles(core, size, *sides) for size in sizes]
    else:
        how = space.Blocks(
            order=str(of["blocks"]),
            strips=int(of["block_strips"] or 1),
            tiles=int(of["block_tiles"] or 1),
            depth=int(of["block_depth"] or 0),
            packing=str(of["packing"]),
            rows_packed=bool(of["rows_packed"]),
            strips_first=bool(of["strips_first"]),
        )
        tile = int(of["rows"] or 1), int(of["vectors"] or 1)
        each = [cycles(core, size, *tile, how) for size in sizes]
    return geometric_mean(each)


def _values(best: Choice, prefix: str) -> dict[str, Value]:
    """The values of the knobs by default, by name."""
    return {
        **_tiled((best.rows, best.vectors), best.blocks, prefix),
        "lanes_along": "depth" if best.by_depth else "columns",
        "dot_rows": best.dot_rows,
        "dot_columns": best.dot_columns,
    }


def _tiled(tile: tuple[int, int], how: space.Blocks, prefix: str) -> dict[str, Value]:
    """The values of the knobs of a tile in blocks."""
    values: tuple[Value, ...] = (
        how.order,
        how.strips,
        how.tiles,
        how.depth,
        how.packing,
        how.rows_packed,
        how.strips_first,
    )
    names = (f"{prefix}{name}" for name in space.OF_BLOCKS)
    return {
        "rows": tile[0],
        "vectors": tile[1],
        **dict(zip(names, values, strict=True)),
    }


def sizes_of(core: Core, product: Product) -> list[Product]:
    """The contraction; if its rows are open, with few, many, and more than caches hold.

    Rows that come from memory for each block of columns want wide blocks.
    """
    if not product.open_rows:
        return [product]
    row = product.depth * product.left.bytes
    largest = max((level.capacity for level in core.levels), default=0.0)
    some = {*_FEW_AND_MANY, max(ceil(largest / row), *_FEW_AND_MANY)}
    return [replace(product, rows=rows) for rows in sorted(some)]


def far(core: Core, product: Product) -> bool:
    """Whether the matrix of a product with a vector exceeds every cache of a core.

    Several of its rows at a time then keep more lines on their way than one.
    """
    rows = _FEW_AND_MANY[-1] if product.open_rows else product.rows
    elements = product.batch * rows * product.columns * product.depth
    caches = [level.capacity for level in core.levels]
    bytes_ = elements * max(product.left.bytes, product.right.bytes)
    return bytes_ > max(caches, default=0.0)


def _best(candidates: Sequence[T], spent: Callable[[T], float]) -> tuple[T, float]:
    """The first candidate that the model does not tell from a faster one."""
    best, least = candidates[0], inf
    for candidate in candidates:
        if (time := spent(candidate)) < least * _RESOLVED:
            best, least = candidate, time
    return best, least
