"""The time of a contraction by matrix products, predicted as for vectors.

Tiles of sums are in registers while a block of the reduction is added to them; then
they go to memory. What comes from the caches overlaps in part with the products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import ceil, hypot, prod
from typing import Final

from tensorlang import machine
from tensorlang.instructions import MatrixProduct, dot_product, matrix_product
from tensorlang.ir.dtypes import f32
from tensorlang.schedules.contraction.choice import Choice, choice, sizes_of
from tensorlang.schedules.contraction.model import Product, cycles, dot_cycles
from tensorlang.schedules.cost.core import Core, core_of, hypot_of
from tensorlang.schedules.cost.traffic import Operand, moved
from tensorlang.targets import Target

DEPTHS: Final = (0, 128, 256, 384, 512, 768, 1024)
SIDE: Final = 2  # tiles of sums along each side: four of eight registers
_PORTS: Final = 4.0  # power by which products and loads of tiles overlap
_BYTES: Final = 64  # of a row of a tile
_SPLITTING: Final = 16  # operations for a part of an f32 in bf16


def predicted(
    core: Core, rate: float, row: MatrixProduct, product: Product, depth: int
) -> float:
    """Cycles of a contraction in blocks of `depth` reduction steps; 0 for all."""
    side = SIDE * row.lanes
    steps = ceil(product.depth / row.depth)
    block = steps if depth == 0 else min(ceil(depth / row.depth), steps)
    blocks = ceil(steps / block)
    columns = ceil(product.columns / row.lanes) * row.lanes
    busy = 0.0
    for rows, count in _parts(product.rows, side):
        for wide, many in _parts(columns, side):
            tiles = max(1, wide // row.lanes)
            full = 2.0 * rows * row.lanes * tiles * row.depth / rate
            loads = (rows + tiles * row.steps) * _BYTES / core.vector / core.loads
            step = max(hypot_of(full, loads, power=_PORTS), core.latency)
            ends = 4.0 * rows * wide / core.lanes + 2 * side
            busy += count * many * (steps * step + blocks * ends)
    loops = (
        ("k", float(blocks)),
        ("n", columns / side),
        ("m", max(product.rows / side, 1.0)),
    )
    tile = {"m": min(side, product.rows), "n": side, "k": block * row.depth}
    operands = [
        product.left,
        replace(product.right, run="n", pitch=0),
        replace(product.result, moves=2),
    ]
    came = moved(loops, tile, operands, core.levels)
    moving = [sum(b) / level.rate for b, level in zip(came, core.levels, strict=True)]
    alone = product.batch * hypot(busy, *moving)
    packing = product.batch * _packing(core, row, product)
    chunks = product.batch * ceil(product.rows / side) * ceil(columns / side)
    share = ceil(chunks / core.threads) / chunks
    team = (alone + packing) * share + 2 * core.handover
    return min(alone + packing, team)


def _packing(core: Core, row: MatrixProduct, product: Product) -> float:
    """Cycles to interleave the columns' operand: transposed in squares, or moved."""
    bytes_ = product.columns * product.depth * product.right.bytes
    work = bytes_ / core.vector * (2 + row.lanes.bit_length()) / core.products
    held = [
        bytes_ * 3.0 / level.rate for level in core.levels if bytes_ > level.capacity
    ]
    return hypot(work, *held)


def _parts(length: int, size: int) -> Iterator[tuple[int, int]]:
    """Sizes of the parts of a length, whole ones and powers of 2, and their numbers."""
    while length and size:
        if length >= size:
            yield size, length // size
            length %= size
        size //= 2


@cache
def tiles_depth(
    core: Core, target: Target, row: MatrixProduct, product: Product, best: Choice
) -> tuple[bool, int]:
    """Whether tiles are predicted to be faster than vectors, and the best depth.

    Args:
        core: A core of the machine.
        target: The target, whose machine knows the rates of instructions.
        row: The matrix product.
        product: The contraction; of open rows, all numbers count alike.
        best: Its best schedule for vectors.
    """
    rate, sizes = _rate(target, "matrix", row.b), sizes_of(core, product)

    def spent(depth: int) -> float:
        return prod(predicted(core, rate, row, size, depth) for size in sizes)

    if not rate:
        return False, 0
    depth = min(DEPTHS, key=spent)
    dot = dot_product(target.features, (row.a, row.b))
    fused = 2.0 * core.products * core.lanes
    gain = max(1.0, _rate(target, "dot", dot.b) / fused) if dot else 1.0
    vectors = prod(_by_vectors(core, size, best) / gain for size in sizes)
    return spent(depth) < vectors, depth


def parts_are_faster(target: Target, sizes: tuple[int, int, int], parts: int) -> bool:
    """Whether f32 products as so many bf16 products are predicted to be faster.

    Args:
        sizes: Rows, columns and depth of the f32 product.
        parts: Number of bf16 products.
    """
    row, (rows, columns, depth) = matrix_product(target.features, ("bf16",) * 2), sizes
    core = core_of(target, f32)
    if row is None or not (rate := _rate(target, "matrix", row.b)):
        return False

    def product(steps: int, size: int) -> Product:
        left = Operand("km", "k", steps * size, size)
        right = Operand("kn", "k", steps * size, size)
        result = Operand("mn", "n", 4 * columns, 4)
        return Product(1, rows, columns, steps, left, right, result)

    whole, split = product(depth, 4), product(parts * depth, 2)
    vectors = _by_vectors(core, whole, choice(core, whole, dots=True))
    tiles = min(predicted(core, rate, row, split, block) for block in DEPTHS)
    elements = (rows + columns) * depth * parts
    work = elements / core.lanes * _SPLITTING / core.products
    beyond = (each.rate for each in core.levels if elements * 2 > each.capacity)
    splitting = hypot(work, *(4.0 * elements / each for each in beyond))
    return tiles + splitting / core.threads < vectors


def _by_vectors(core: Core, product: Product, best: Choice) -> float:
    """Cycles of the best schedule that multiplies vectors."""
    if best.by_depth:
        return dot_cycles(core, product, best.dot_rows, best.dot_columns)
    return cycles(core, product, best.rows, best.vectors, best.blocks)


def _rate(target: Target, kind: str, dtype: str) -> float:
    """Operations of an instruction per cycle on one core; 0 without it.

    A description that does not know the instruction is completed by what is published.
    """
    known = (found(target) for found in (machine.of, machine.published))
    rates = (each.rate(kind, dtype.replace("u8", "i8")) / each.clock for each in known)
    return next(filter(None, rates), 0.0)
