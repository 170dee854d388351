"""Attention on a CPU: blocks of queries to threads, register tiles for both products.

for z_h_g in parallel(...):
    for t in range(...):
        for u_0, jj in range(...):
            tile = alloc(f32[8, 2, 16], scope="register")   # scores
            for c in range(depth): ...
        ...
        for f, r_0, e_0 in range(...):
            tile = alloc(f32[4, 4, 16], scope="register")   # results
            for j in range(length): ...
"""

from __future__ import annotations

from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.contents import blocks
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import Block, Reduce, Store, seq
from tensorlang.ir.visit import walk
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.reductions import fold_in_lanes
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.schedules.tiling import cut_at, extent, parallelize, written
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block

_LANES: Final = 16
_SIDES: Final = (1, 2, 4, 8)
_SCORE_LOOPS: Final = 5  # queries, keys twice, lanes, and the depth
_SUM_LOOPS: Final = 4  # rows twice, columns, and what is summed over


@schedule("attention", algorithm="online")
def online(s: Schedule, knobs: Knobs) -> None:
    """Blocks of queries to threads, tiles of scores and of sums in registers."""
    score, value = _Tile.of(s, knobs, "score"), _Tile.of(s, knobs, "value")
    outer: dict[str, list[str]] = {}
    for block in blocks(s.function):
        around = s.loops(block.name)
        own = [loop for loop in around if loop.startswith(f"{block.name}_")]
        own = own or list(around[1:])
        outer.setdefault(around[0], [n for n in around if n not in own and n[0] != "t"])
        _inner(s, block, own, (score, value))
    for loops in outer.values():
        if not s.attempt(parallelize, s, loops):
            s.parallel(loops[0])  # sums go on from one block of queries to the next


def _inner(
    s: Schedule, block: Block, own: list[str], tiles: tuple[_Tile, _Tile]
) -> None:
    """Schedule the loops of one block."""
    folded = block.axes[-1].kind == "reduction"
    if folded and len(own) == _SCORE_LOOPS:
        _scores(s, block.name, own, tiles[0])
    elif folded and len(own) == _SUM_LOOPS:
        _sums(s, block.name, own, tiles[1])
    elif folded and block.init != seq():
        fold_in_lanes(s, loop_named(s, own[-1]), _LANES)
    elif _is_contiguous(block):
        for part in _columns(s, block.name, own):
            _, lane = s.split(part[-1], [None, _wide(s, part[-1])])
            s.vectorize(lane)


def _is_contiguous(block: Block) -> bool:
    """Whether the innermost loop drives the last index of what is written."""
    updates = (n for n in walk(block.body) if isinstance(n, Store | Reduce))
    return all(update.indices[-1] == block.axes[-1].var for update in updates)


@frozen
class _Tile:
    """The rows of a register tile, and its vectors of lanes."""

    rows: int
    vectors: int

    @classmethod
    def of(cls, s: Schedule, knobs: Knobs, name: str) -> _Tile:
        """The knobs; by default the tile with the most products per operand loaded."""
        kind = s.function.buffers[-1].dtype
        core = core_of(s.target, max(kind, f32, key=lambda each: each.bits))
        per = max(_LANES // core.lanes, 1)
        fitting = [
            (rows * vectors / (rows + vectors * per), vectors, rows)
            for rows in _SIDES
            for vectors in _SIDES[:3]
            if (rows * vectors + vectors) * per < core.registers
        ]
        products, vectors, rows = max(fitting)
        why = (
            f"{products:.3g} products for each operand loaded, the most of "
            f"{len(fitting)} tiles that fit {core.registers} registers"
        )
        return cls(
            knobs.choice(f"{name}_rows", _SIDES, default=rows, why=why),
            knobs.choice(f"{name}_vectors", _SIDES[:3], default=vectors, why=why),
        )


def _scores(s: Schedule, block: str, own: list[str], tile: _Tile) -> None:
    """Tiles of keys by queries, and of one vector of queries for those left."""
    whole = whole_steps(s, loop_named(s, own[0]).extent, tile.vectors)
    parts = [block] if tile.vectors == 1 else cut_at(s, block, own[0], whole)
    for part, vectors in zip(parts, (tile.vectors, 1), strict=False):
        u, several, row, lane, c = s.loops(part)[-_SCORE_LOOPS:]
        u_0, u_1 = s.split(u, [None, vectors])
        rows, row = s.split(row, [None, min(tile.rows, extent(s, row) or 1)])
        s.reorder(u_0, several, rows, c, row, u_1, lane)
        _in_registers(s, part, rows, (row, u_1, lane))


def _sums(s: Schedule, block: str, own: list[str], tile: _Tile) -> None:
    """Tiles of rows by columns."""
    *outer, column, folded = own
    s.reorder(*outer, folded, column)
    for mine in _columns(s, block, [*outer, folded, column]):
        several, row, k, e = mine
        wide = _wide(s, e)
        many = (extent(s, e) or 1) // wide
        vectors = max(n for n in range(1, tile.vectors + 1) if many % n == 0)
        rows, row = s.split(row, [None, min(tile.rows, extent(s, row) or 1)])
        e_0, e_1, lane = s.split(e, [None, vectors, wide])
        s.reorder(several, rows, e_0, k, row, e_1, lane)
        _in_registers(s, _block_in(s, lane), e_0, (row, e_1, lane))


def _block_in(s: Schedule, loop: str) -> str:
    """The block in a loop."""
    return next(b.name for b in blocks(loop_named(s, loop)))


def _in_registers(
    s: Schedule, block: str, at: str, inner: tuple[str, str, str]
) -> None:
    """Keep the tile that a loop computes in registers; unroll it, with vectors."""
    kept = block_of(find_block(s.function, block)).init == seq()
    write, _ = s.cache_write(
        block, written(s, block), "register", at=at, accumulate=kept
    )
    loops = s.loops(write)
    *others, last = loops[loops.index(at) + 1 :]
    vector, lane = s.split(last, [None, _wide(s, last)])
    for loop in (*inner[:2], *others, vector):
        s.unroll(loop)
    for loop in (inner[2], lane):
        s.vectorize(loop)


def _columns(s: Schedule, block: str, own: list[str]) -> list[list[str]]:
    """The loops over whole vectors of columns, and over those narrower than one."""
    column = own[-1]
    length = extent(s, column) or 1
    whole = length // _LANES * _LANES
    if whole in {0, length}:
        return [own]
    s.reorder(column, *own[:-1])
    found = []
    for part in cut_at(s, block, column, whole):
        first, *others = s.loops(part)[-len(own) :]
        s.reorder(*others, first)
        found.append([*others, first])
    return found


def _wide(s: Schedule, loop: str) -> int:
    """Lanes for a loop: a full vector, or all of a shorter loop."""
    return min(_LANES, extent(s, loop) or _LANES)
