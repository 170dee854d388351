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

from dataclasses import dataclass
from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.schedules.reductions import fold_in_lanes
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.schedules.tiling import cut_at, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule

_LANES: Final = 16
_SIDES: Final = (1, 2, 4, 8)


@schedule("attention", algorithm="online")
def online(s: Schedule, knobs: Knobs) -> None:
    """Blocks of queries to threads, tiles of scores and of results in registers."""
    names = [block.name for block in blocks(s.function)]
    around = s.loops("scores")
    outer = around[: around.index("t")]
    _scores(s, _Tile.of(s, knobs, "score"))
    fold_in_lanes(s, loop_named(s, s.loops("dots")[-1]), _LANES)
    for name in ("start", "mask", "peak", "grow", "weights"):
        if name in names:
            s.vectorize(s.loops(name)[-1])
    _sums(s, _Tile.of(s, knobs, "value"))
    for name in ("clear", "fades", "y"):
        for part in _columns(s, name, f"{name}_e"):
            _, lane = s.split(s.loops(part)[-1], [None, _wide(s, s.loops(part)[-1])])
            s.vectorize(lane)
    parallelize(s, outer)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The rows of a register tile, and its vectors of lanes."""

    rows: int
    vectors: int

    @classmethod
    def of(cls, s: Schedule, knobs: Knobs, name: str) -> _Tile:
        """The knobs; by default the tile with the most products per operand loaded."""
        target, kind = s.target, s.function.buffers[-1].dtype
        bits, registers = 512, 32
        if target is not None:
            bits, registers = target.vector_bits, target.vector_registers
        per = max(_LANES * max(kind.bits, 32) // bits, 1)
        fitting = [
            (rows * vectors / (rows + vectors * per), vectors, rows)
            for rows in _SIDES
            for vectors in _SIDES[:3]
            if (rows * vectors + vectors) * per < registers
        ]
        _, vectors, rows = max(fitting)
        return cls(
            knobs.choice(f"{name}_rows", _SIDES, default=rows),
            knobs.choice(f"{name}_vectors", _SIDES[:3], default=vectors),
        )


def _scores(s: Schedule, tile: _Tile) -> None:
    """Tiles of keys by queries, and of one vector of queries for those left."""
    u = s.loops("scores")[-5]
    whole = whole_steps(s, loop_named(s, u).extent, tile.vectors)
    parts = ["scores"] if tile.vectors == 1 else cut_at(s, "scores", u, whole)
    for part, vectors in zip(parts, (tile.vectors, 1), strict=False):
        u, several, row, lane, c = s.loops(part)[-5:]
        u_0, u_1 = s.split(u, [None, vectors])
        rows, row = s.split(row, [None, min(tile.rows, extent(s, row) or 1)])
        s.reorder(u_0, several, rows, c, row, u_1, lane)
        _in_registers(s, part, "scores", rows, (row, u_1, lane))


def _sums(s: Schedule, tile: _Tile) -> None:
    """Tiles of queries by columns of values."""
    for part in _columns(s, "sums", "sums_e"):
        fours, row, e, j = s.loops(part)[-4:]
        wide = _wide(s, e)
        many = (extent(s, e) or 1) // wide
        vectors = max(n for n in range(1, tile.vectors + 1) if many % n == 0)
        rows, row = s.split(row, [None, min(tile.rows, extent(s, row) or 1)])
        e_0, e_1, lane = s.split(e, [None, vectors, wide])
        s.reorder(fours, rows, e_0, j, row, e_1, lane)
        _in_registers(s, part, "result", e_0, (row, e_1, lane), accumulate=True)


def _in_registers(
    s: Schedule,
    block: str,
    buffer: str,
    at: str,
    inner: tuple[str, str, str],
    *,
    accumulate: bool = False,
) -> None:
    """Keep the tile that a loop computes in registers; unroll it, with vectors."""
    write, _ = s.cache_write(block, buffer, "register", at=at, accumulate=accumulate)
    loops = s.loops(write)
    *others, last = loops[loops.index(at) + 1 :]
    vector, lane = s.split(last, [None, _wide(s, last)])
    for loop in (*inner[:2], *others, vector):
        s.unroll(loop)
    for loop in (inner[2], lane):
        s.vectorize(loop)


def _columns(s: Schedule, block: str, column: str) -> list[str]:
    """The blocks of whole vectors of columns, and of what is narrower than one."""
    length = extent(s, column) or 1
    whole = length // _LANES * _LANES
    if whole in {0, length}:
        return [block]
    own = [name for name in s.loops(block) if name.startswith(f"{block}_")]
    ahead = own[: own.index(column)]
    s.reorder(column, *ahead)
    parts = cut_at(s, block, column, whole)
    for part in parts:
        mine = s.loops(part)[-len(own) :]
        s.reorder(*mine[1 : len(ahead) + 1], mine[0])
    return parts


def _wide(s: Schedule, loop: str) -> int:
    """Lanes for a loop: a full vector, or all of a shorter loop."""
    return min(_LANES, extent(s, loop) or _LANES)
