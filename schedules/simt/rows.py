"""Row-wise programs: each row is processed by some threads, all stages fused.

    for i in range(m): top[i] = max of x[i, :]      for i_0 in bound(m / 4, "block.x"):
    for i in range(m): e[i, :] = exp(x - top[i])        for i in bound(4, "thread.y"):
    for i in range(m): total[i] = sum of e[i, :]   ->       x_row = x[i, :]
    for i in range(m): y[i, :] = e / total[i]               top = max of x_row
                                                            e = exp(x_row - top)
                                                            total = sum of e
                                                            y[i, :] = e / total

Each thread owns the same positions in all stages, so that a row that is read or
computed more than once stays in registers; reductions are cooperative. Where a row is
too long for that, its values are reloaded and recomputed.

Reductions over rows, and strided rows, are scheduled generically.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tensorlang.ir.contents import allocations, blocks, reads
from tensorlang.ir.nodes import Expr, as_expr
from tensorlang.schedules.rows import rows_of
from tensorlang.schedules.simt.generic import generic
from tensorlang.schedules.simt.row_threads import RowThreads, distribute_row, row_knobs
from tensorlang.schedules.stages import (
    INJECTIVE,
    Stage,
    contiguous_loop,
    extent_of,
    kind_of,
    stages,
)
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis.tree import find_buffer

_HELD_WORDS: Final = 64  # of a thread's registers, for its share of rows


@dataclass(slots=True)
class _Group:
    """Stages over the same rows, their row loops merged."""

    outer: str  # loop over blocks of rows
    row: str  # loop over the rows of a block
    # loop along the row, for each stage that has one
    along: dict[str, str] = field(default_factory=dict)


@schedule("rows", model="simt")
def rows(s: Schedule, knobs: Knobs) -> None:
    """Distribute contiguous rows over the threads of a block."""
    first = _first_fold(s)
    if first is None:
        generic(s, knobs)
        return
    (folded,) = first.driven("reduction")
    _inline_numbers(s)
    how = row_knobs(knobs, extent_of(folded), _bits(first))
    held = knobs.flag("held", default=_fits(s, how))
    if not held:
        _inline_elementwise(s)
    for group in list(_merged(s, how)):
        _per_row_temporaries(s, group, how, held=held)
        for loop in group.along.values():
            distribute_row(s, loop, how)
        s.bind(group.outer, "block.x")
        if how.rows > 1:
            s.bind(group.row, "thread.y")
    generic(s, knobs)


def _first_fold(s: Schedule) -> Stage | None:
    """The first stage that reduces rows, if rows are contiguous."""
    for stage in stages(s.function):
        folded, spatial = stage.driven("reduction"), stage.driven("spatial")
        if folded:
            fits = len(folded) == 1 and contiguous_loop(stage) is folded[0]
            long = fits and extent_of(folded[0]) not in (0, 1)
            several = any(loop.extent != as_expr(1) for loop in spatial)
            return stage if long and several else None
    return None


def _inline_numbers(s: Schedule) -> None:
    """Inline temporaries with one element per row where they are read."""
    for stage in list(stages(s.function)):
        made = stage.output in set(allocations(s.function)) and stage.output.ndim == 1
        if made and kind_of(stage) == INJECTIVE:
            s.attempt(s.inline, stage.name)


def _bits(stage: Stage) -> int:
    return max(load.buffer.dtype.bits for load in stage.loads)


def _fits(s: Schedule, how: RowThreads) -> bool:
    """Whether a thread's share of all rows that are kept fits its registers."""
    if how.steps is None:
        return False
    kept = sum(1 for b in allocations(s.function) if b.ndim > 1)
    kept += sum(times > 1 for times in _readers(s).values())
    return how.each * kept <= _HELD_WORDS


def _readers(s: Schedule) -> Counter[str]:
    """The number of stages that read each parameter that has rows."""
    given = {b for b in s.function.buffers if b.ndim > 1}
    return Counter(
        name
        for stage in stages(s.function)
        for name in {load.buffer.name for load in stage.loads if load.buffer in given}
    )


def _inline_elementwise(s: Schedule) -> None:
    """Inline elementwise temporaries of rows where they are read."""
    for stage in list(stages(s.function)):
        made = stage.output in set(allocations(s.function)) and stage.output.ndim > 1
        if made and kind_of(stage) == INJECTIVE:
            s.attempt(s.inline, stage.name)


def _merged(s: Schedule, how: RowThreads) -> Iterator[_Group]:
    """Row stages, adjacent ones merged as far as possible."""
    rows: tuple[Expr, ...] = ()
    group: _Group | None = None
    for stage in list(stages(s.function)):
        folded = stage.driven("reduction")
        if len(folded) == 1 and contiguous_loop(stage) is folded[0]:
            rows = rows_of(stage)
        before = s.function, s.trace
        own = _alone(s, stage, rows, how)
        if own and group and _merge(s, group, own):
            continue
        if own and not own.along:  # its elements are scheduled generically
            (s.function, s.trace), own = before, None
        if group is not None:
            yield group
        group = own
    if group is not None:
        yield group


def _alone(
    s: Schedule, stage: Stage, rows: tuple[Expr, ...], how: RowThreads
) -> _Group | None:
    """A group of one stage over these rows, in blocks; None for any other stage."""
    folded, spatial = stage.driven("reduction"), stage.driven("spatial")
    leading, rest = spatial[: len(rows)], [*spatial[len(rows) :], *folded]
    if not rows or tuple(loop.extent for loop in leading) != rows or len(rest) > 1:
        return None
    if folded and contiguous_loop(stage) is not folded[0]:
        return None
    if rest and extent_of(rest[0]) != how.length:
        return None
    if stage.loops != (*leading, *rest):
        return None
    loop = fused(s, [each.var.name for each in leading])
    outer, row = s.split(loop, [None, how.rows])
    passes = {stage.name: rest[0].var.name} if rest else {}
    return _Group(outer, row, passes)


def _merge(s: Schedule, group: _Group, own: _Group) -> bool:
    """Merge a stage's group into the one before it, if possible."""
    if not s.attempt(s.merge, group.outer, own.outer):
        return False
    s.merge(group.row, own.row)
    group.along |= own.along
    return True


def _per_row_temporaries(
    s: Schedule, group: _Group, how: RowThreads, *, held: bool
) -> None:
    """Make temporaries per row, and copy rows that are read more than once."""
    length = as_expr(how.length or 0)
    for buffer in list(allocations(s.function)):
        stored = s.attempt(s.store_at, buffer.name, group.row)
        if (
            stored
            and held
            and find_buffer(s.function, buffer.name).shape[-1:] == (length,)
        ):
            s.attempt(s.transform_layout, buffer.name, how.layout(buffer.ndim))
    if held:
        _copies(s, group, how)


def _copies(s: Schedule, group: _Group, how: RowThreads) -> None:
    """Load each row that several stages of a group read only once."""
    readers: dict[str, list[str]] = {}
    for block in blocks(s.function):
        if block.name in group.along:
            for buffer in sorted(reads(block.body), key=lambda buffer: buffer.name):
                readers.setdefault(buffer.name, []).append(block.name)
    given = {b.name: b for b in s.function.buffers if b.ndim > 1}
    for name, found in readers.items():
        if name in given and len(found) > 1:
            s.attempt(_copy, s, group, how, name, found)


def _copy(
    s: Schedule, group: _Group, how: RowThreads, name: str, readers: list[str]
) -> None:
    """One copy of a row, shared by all its readers."""
    first, *others = readers
    block, copy = s.cache_read(first, name, "global", at=group.row)
    for reader in others:
        _, again = s.cache_read(reader, name, "global", at=group.row)
        s.share(copy, again)
    s.transform_layout(copy, how.layout(find_buffer(s.function, copy).ndim))
    group.along[block] = s.loops(block)[-1]
