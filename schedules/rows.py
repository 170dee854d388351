"""Row-wise programs on a CPU: all stages run on a row while it is in the cache.

    for i in range(m): top[i] = max of x[i, :]      for i in parallel(m):
    for i in range(m): e[i, :] = exp(x - top[i])        top[0] = max of x[i, :]
    for i in range(m): total[i] = sum of e[i, :]   ->   y[i, :] = exp(x - top[0])
    for i in range(m): y[i, :] = e / total[i]           total[0] = sum of y[i, :]
                                                        y[i, :] = y / total[0]

Nests over the same rows merge. A temporary as large as the result is stored in it, any
other in a buffer of one row, reduction state in registers. Rows go to threads, loops
along them to lanes, with several partial sums side by side.

Strided rows, `[m, n, i]`, are handled in blocks of neighbours, one lane each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.contents import allocations, touches
from tensorlang.ir.nodes import Buffer, Expr, For, as_expr
from tensorlang.schedules.contraction.space import USUAL_SIZE
from tensorlang.schedules.cost.core import PAGE, core_of
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.reductions import fold_any_length, fold_in_lanes
from tensorlang.schedules.row_blocks import row_blocks
from tensorlang.schedules.stages import Stage, contiguous_loop, extent_of, stages
from tensorlang.schedules.streaming import LANES, loop_named, nearest_option
from tensorlang.schedules.tiling import fused, in_lanes
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis.tree import find_buffer

_PARTS: Final = (8, 16, 32, 64, 128, 256)  # rows of a chunk
_REGISTERS: Final = 4  # of a temporary, or of elements side by side
_PAGES: Final = 4  # of a chunk of rows


@frozen
class _Pass:
    """One stage's pass along a row: its loop, and whether it is a reduction."""

    stage: Stage
    along: str | None
    folds: bool


@dataclass(slots=True)
class _Group:
    """Stages with merged row loops, and their passes, grouped as merged.

    If chunks of rows go to threads, `outer` is the loop over the chunks.
    """

    outer: str | None
    loop: str
    passes: list[list[_Pass]]

    @property
    def shared(self) -> str:
        """The parallel loop."""
        return self.outer or self.loop


@schedule("rows")
def rows(s: Schedule, knobs: Knobs) -> None:
    """Rows to threads, each running all its stages together."""
    first, *others = stages(s.function)
    if not others and not first.driven("reduction"):
        generic(s, knobs)
        return
    _in_results(s)
    if _is_strided(s):
        row_blocks(s, knobs)
        generic(s, knobs)
        return
    groups = list(_merged(s, knobs))
    for group in groups:
        _private_temporaries(s, group.loop)
    for group in groups:
        for joined in group.passes:
            _in_lanes(s, knobs, joined)
        s.parallel(group.shared)
    generic(s, knobs)


def _is_strided(s: Schedule) -> bool:
    """Whether rows are strided, judged by the first reduction."""
    for stage in stages(s.function):
        folded, spatial = stage.driven("reduction"), stage.driven("spatial")
        if folded:
            return bool(spatial) and contiguous_loop(stage) is spatial[-1]
    return False


def _in_results(s: Schedule) -> None:
    """Store temporaries in the results computed from them."""
    results = [p.buffer.name for p in s.function.params if p.role == "out"]
    for buffer in list(allocations(s.function)):
        any(s.attempt(s.store_in, buffer.name, name) for name in results)


def _merged(s: Schedule, knobs: Knobs) -> Iterator[_Group]:
    """Row stages, adjacent ones merged as far as possible."""
    found = list(stages(s.function))
    rows = rows_of(found[0]) if found else ()
    down = [stage for stage in found if _folds_rows(stage, rows)]
    size = None
    if down:
        length = _PAGES * PAGE // (down[0].output.dtype.bytes * USUAL_SIZE)
        size = knobs.choice(
            "part",
            _PARTS,
            default=nearest_option(length, _PARTS),
            why=f"rows of {USUAL_SIZE} elements that fill {_PAGES} pages of memory",
        )
    group: _Group | None = None
    for stage in found:
        if stage.driven("reduction") and stage not in down:
            rows = rows_of(stage)
        own = _group_of(s, stage, rows, size, down=stage in down)
        if own and group and _merge(s, group, own):
            continue
        if group is not None:
            yield group
        group = own
    if group is not None:
        yield group


def rows_of(stage: Stage) -> tuple[Expr, ...]:
    """The row extents, per dimension, of a stage that reduces rows."""
    return tuple(loop.extent for loop in stage.driven("spatial"))


def _folds_rows(stage: Stage, rows: tuple[Expr, ...]) -> bool:
    """Whether a stage reduces over all rows, for each column."""
    folded = tuple(loop.extent for loop in stage.driven("reduction"))
    return bool(folded) and folded == rows and len(stage.driven("spatial")) == 1


def _group_of(
    s: Schedule, stage: Stage, rows: tuple[Expr, ...], size: int | None, *, down: bool
) -> _Group | None:
    """A group of one stage, its rows in chunks of `size` if given."""
    folded, spatial = stage.driven("reduction"), stage.driven("spatial")
    if down and size is not None:
        row, place = folded[0].var.name, spatial[0].var.name
        s.reorder(row, place)
        outer, loop = s.split(row, [None, size])
        s.rfactor(stage.name, outer)
        return _Group(outer, loop, [[_Pass(stage, place, folds=False)]])
    leading, rest = spatial[: len(rows)], [*spatial[len(rows) :], *folded]
    if tuple(loop.extent for loop in leading) != rows or len(rest) > 1 or not rows:
        return None
    if folded and contiguous_loop(stage) is not folded[0]:
        return None
    if not folded and all(extent == as_expr(1) for extent in rows):
        return None  # one row: its elements go to threads instead
    along = _Pass(stage, rest[0].var.name if rest else None, folds=bool(folded))
    loop = fused(s, [each.var.name for each in leading])
    if size is None:
        return _Group(None, loop, [[along]])
    outer, loop = s.split(loop, [None, size])
    return _Group(outer, loop, [[along]])


def _merge(s: Schedule, group: _Group, own: _Group) -> bool:
    """Merge a stage's group into the one before it, if possible."""
    if group.outer and own.outer:
        if not s.attempt(s.merge, group.outer, own.outer):
            return False
        s.merge(group.loop, own.loop)
    elif not s.attempt(s.merge, group.loop, own.loop):
        return False
    last, new = group.passes[-1], own.passes[0]
    both = last[0].along and new[0].along
    if both and s.attempt(s.merge, last[0].along, new[0].along):
        last += new
    else:
        group.passes.append(new)
    return True


def _private_temporaries(s: Schedule, loop: str) -> None:
    """Give each row its own temporaries, small ones in registers."""
    used = loop_named(s, loop)
    for buffer in list(allocations(s.function)):
        if touches(used, buffer) and s.attempt(s.store_at, buffer.name, loop):
            made = find_buffer(s.function, buffer.name)
            if _elements(made) <= _REGISTERS * core_of(s.target, made.dtype).lanes:
                s.set_scope(buffer.name, "register")


def _elements(buffer: Buffer) -> float:
    count = 1.0
    for extent in buffer.shape:
        count *= getattr(extent, "value", float("inf"))
    return count


def _in_lanes(s: Schedule, knobs: Knobs, joined: list[_Pass]) -> None:
    """Vectorize a pass along a row: reduced in lanes, or written in lanes."""
    first = joined[0]
    loop = first.along and loop_named(s, first.along)
    if not loop or extent_of(loop) == 0:
        return
    if any(each.folds for each in joined):
        lanes = Plan(s, knobs, first.stage).partials()
        if extent_of(loop) is None:
            fold_any_length(s, loop, lanes, [p.stage.name for p in joined if p.folds])
        else:
            fold_in_lanes(s, loop, lanes)
    else:
        wide = nearest_option(_REGISTERS * Plan(s, knobs, first.stage).width, LANES)
        why = f"{_REGISTERS} vectors side by side"
        lanes = knobs.choice("lanes", LANES, default=wide, why=why)
        _written_in_lanes(s, loop, lanes)


def _written_in_lanes(s: Schedule, loop: For, lanes: int) -> None:
    """Vectorize a loop, with a shorter vector for the remainder."""
    name, length = loop.var.name, extent_of(loop)
    if length is None:
        in_lanes(s, loop, lanes)
        return
    rest = length % lanes if length > lanes else 0
    parts = s.partition(name, length - rest) if rest else (name,)
    _, lane = s.split(parts[0], [None, min(lanes, length)])
    for each in (lane, *parts[1:]):
        s.vectorize(each)
