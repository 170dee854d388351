"""Programs of rows: a row to some threads, from its first nest to its last at once.

    for i in range(m): top[i] = max of x[i, :]      for i_0 in bound(m / 4, "block.x"):
    for i in range(m): e[i, :] = exp(x - top[i])        for i in bound(4, "thread.y"):
    for i in range(m): total[i] = sum of e[i, :]   ->       x_row = x[i, :]
    for i in range(m): y[i, :] = e / total[i]               top = max of x_row
                                                            e = exp(x_row - top)
                                                            total = sum of e
                                                            y[i, :] = e / total

Each thread has the same places of all of these, so that a row that is read or made
more than once stays in registers; what is folded, the threads fold together. Where a
row is too long for that, its values are computed again from what is read again.

What runs down the rows, and rows that are no neighbours in memory, go the generic way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tensorlang.ir.contents import allocations, blocks, reads
from tensorlang.ir.nodes import Buffer, Expr, as_expr
from tensorlang.schedules.rows import rows_of
from tensorlang.schedules.simt.generic import generic
from tensorlang.schedules.simt.row_threads import RowThreads, along, row_knobs
from tensorlang.schedules.stages import (
    INJECTIVE,
    Stage,
    contiguous_loop,
    extent_of,
    kind_of,
    stages,
)
from tensorlang.schedules.tiling import attempt, fused
from tensorlang.scheduling import Knobs, Schedule, schedule

_HELD_WORDS: Final = 64  # of a thread's registers, for parts of rows


@dataclass(slots=True)
class _Group:
    """Stages of the same rows, whose loops over them are one.

    Attributes:
        outer: The loop over blocks of rows.
        row: The loop over the rows of a block.
        along: Of each stage that goes along the row, the loop that does.
    """

    outer: str
    row: str
    along: dict[str, str] = field(default_factory=dict)


@schedule("rows", model="simt")
def rows(s: Schedule, knobs: Knobs) -> None:
    """Rows to threads of a block where they lie along memory."""
    first = _first_fold(s)
    if first is None:
        generic(s, knobs)
        return
    (folded,) = first.driven("reduction")
    _inline_numbers(s)
    how = row_knobs(knobs, extent_of(folded), _bits(first))
    held = knobs.flag("held", default=_fits(s, how))
    if not held:
        _again(s)
    for group in list(_merged(s, how)):
        _of_one_row(s, group, how, held=held)
        for loop in group.along.values():
            along(s, loop, how)
        s.bind(group.outer, "block.x")
        if how.rows > 1:
            s.bind(group.row, "thread.y")
    generic(s, knobs)


def _first_fold(s: Schedule) -> Stage | None:
    """The first stage that folds rows, if it does so along memory."""
    for stage in stages(s.function):
        folded, spatial = stage.driven("reduction"), stage.driven("spatial")
        if folded:
            fits = len(folded) == 1 and contiguous_loop(stage) is folded[0]
            long = fits and extent_of(folded[0]) not in (0, 1)
            several = any(loop.extent != as_expr(1) for loop in spatial)
            return stage if long and several else None
    return None


def _inline_numbers(s: Schedule) -> None:
    """What is one number a row is computed where it is read."""
    for stage in list(stages(s.function)):
        made = stage.output in set(allocations(s.function)) and stage.output.ndim == 1
        if made and kind_of(stage) == INJECTIVE:
            attempt(s, s.inline, stage.name)


def _bits(stage: Stage) -> int:
    return max(load.buffer.dtype.bits for load in stage.loads)


def _fits(s: Schedule, how: RowThreads) -> bool:
    """Whether what a thread has of all rows that are kept stays in its registers."""
    if how.steps is None:
        return False
    kept = sum(1 for b in allocations(s.function) if b.ndim > 1)
    kept += sum(times > 1 for times in _readers(s).values())
    return how.each * kept <= _HELD_WORDS


def _readers(s: Schedule) -> Counter[str]:
    """How many stages read each parameter that has rows."""
    given = {b for b in s.function.buffers if b.ndim > 1}
    return Counter(
        name
        for stage in stages(s.function)
        for name in {load.buffer.name for load in stage.loads if load.buffer in given}
    )


def _again(s: Schedule) -> None:
    """What is made of rows, element by element, is computed where it is read."""
    for stage in list(stages(s.function)):
        made = stage.output in set(allocations(s.function)) and stage.output.ndim > 1
        if made and kind_of(stage) == INJECTIVE:
            attempt(s, s.inline, stage.name)


def _merged(s: Schedule, how: RowThreads) -> Iterator[_Group]:
    """The stages of rows, neighbours merged as far as that is possible."""
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
        if own and not own.along:  # its numbers go to threads the generic way
            (s.function, s.trace), own = before, None
        if group is not None:
            yield group
        group = own
    if group is not None:
        yield group


def _alone(
    s: Schedule, stage: Stage, rows: tuple[Expr, ...], how: RowThreads
) -> _Group | None:
    """A stage of these rows by itself, its rows in blocks; None of any other stage."""
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
    """Put a stage that stands alone into a group before it, if that is possible."""
    if not attempt(s, s.merge, group.outer, own.outer):
        return False
    s.merge(group.row, own.row)
    group.along |= own.along
    return True


def _of_one_row(s: Schedule, group: _Group, how: RowThreads, *, held: bool) -> None:
    """Temporaries of one row, and copies of what is read more than once."""
    length = as_expr(how.length or 0)
    for buffer in list(allocations(s.function)):
        stored = attempt(s, s.store_at, buffer.name, group.row)
        if stored and held and _shaped(s, buffer.name).shape[-1:] == (length,):
            attempt(s, s.transform_layout, buffer.name, how.layout(buffer.ndim))
    if held:
        _copies(s, group, how)


def _copies(s: Schedule, group: _Group, how: RowThreads) -> None:
    """Each row that several stages of a group read is read once."""
    readers: dict[str, list[str]] = {}
    for block in blocks(s.function):
        if block.name in group.along:
            for buffer in sorted(reads(block.body), key=lambda buffer: buffer.name):
                readers.setdefault(buffer.name, []).append(block.name)
    given = {b.name: b for b in s.function.buffers if b.ndim > 1}
    for name, found in readers.items():
        if name in given and len(found) > 1:
            attempt(s, _copy, s, group, how, name, found)


def _copy(
    s: Schedule, group: _Group, how: RowThreads, name: str, readers: list[str]
) -> None:
    """One copy of a row for all of its readers."""
    first, *others = readers
    block, copy = s.cache_read(first, name, "global", at=group.row)
    for reader in others:
        _, again = s.cache_read(reader, name, "global", at=group.row)
        s.share(copy, again)
    s.transform_layout(copy, how.layout(_shaped(s, copy).ndim))
    group.along[block] = s.loops(block)[-1]


def _shaped(s: Schedule, name: str) -> Buffer:
    return next(b for b in allocations(s.function) if b.name == name)
