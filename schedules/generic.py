"""A good schedule by shape alone, for operators that have none of their own.

Each stage is scheduled by its kind. Producers that cost nothing to compute again go
into their readers; elementwise stages run as one long loop, chunks to threads and lanes
to vectors; reductions keep partial results in lanes; contractions run in register
tiles.

Whatever a stage does not allow is left out: every way is tried, and where a primitive
refuses, a simpler one follows. What is not recognised stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from tensorlang.ir.contents import allocations, blocks, free_vars
from tensorlang.ir.nodes import Load
from tensorlang.ir.visit import walk
from tensorlang.schedules import contraction, elementwise, reductions
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import (
    CONTRACTION,
    INJECTIVE,
    REDUCTION,
    Stage,
    extent_of,
    is_cheap,
    kind_of,
    stages,
    steps_of,
)
from tensorlang.schedules.tiling import attempt
from tensorlang.scheduling import Knobs, Schedule, schedule

_MOST_FOLDED: Final = 64  # steps of what is folded into tiles
_Way: TypeAlias = Callable[[Plan], None]

_FOLDS: Final[tuple[_Way, ...]] = (
    reductions.long_parts,
    reductions.folded_rows,
    reductions.folded_columns,
    elementwise.shared,
)
_WAYS: Final[dict[str, tuple[_Way, ...]]] = {
    INJECTIVE: (
        elementwise.flat,
        elementwise.long_rows,
        elementwise.vector_rows,
        elementwise.masked_lanes,
        elementwise.shared,
    ),
    REDUCTION: _FOLDS,
    CONTRACTION: (contraction.tiles, *_FOLDS),
}


@schedule("generic")
def generic(s: Schedule, knobs: Knobs) -> None:
    """Every stage by its kind; never refuses a function."""
    inline_producers(s)
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is not None and 0 not in map(extent_of, stage.loops):
            plan = Plan(s, knobs, stage)
            kind = kind_of(stage)
            any(attempt(s, way, plan) for way in _WAYS[kind])
            if kind == CONTRACTION:
                _fold_epilogues(s, stage)


def inline_producers(s: Schedule) -> None:
    """Compute what is as well computed again where it is read."""
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is not None and _free_to_inline(s, stage):
            attempt(s, s.inline, name)


def _fold_epilogues(s: Schedule, made: Stage) -> None:
    """Put what follows elementwise where the tiles are written back.

    A tile is written out, element by element: what takes very many steps, such as a
    hash, stays in a loop of its own. That compiles in a quarter of the time, and the
    loop is as fast or faster.
    """
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is None or kind_of(stage) != INJECTIVE:
            continue
        if steps_of(stage.block) > _MOST_FOLDED:
            continue
        if made.output in {load.buffer for load in stage.loads}:
            attempt(s, partial(s.inline, reverse=True), name)


def stage_names(s: Schedule) -> list[str]:
    """The blocks of the recognised stages, in program order."""
    return [stage.name for stage in stages(s.function)]


def stage_named(s: Schedule, name: str) -> Stage | None:
    """The stage of a block; None where it is none any more."""
    return next((stage for stage in stages(s.function) if stage.name == name), None)


def _free_to_inline(s: Schedule, stage: Stage) -> bool:
    """Whether a stage makes a temporary that is as well computed where it is read.

    That is so for what is cheap, and for what one place reads, each element once.
    """
    output = stage.output
    if kind_of(stage) != INJECTIVE or output not in set(allocations(s.function)):
        return False
    readers = [
        (block, node.indices)
        for block in blocks(s.function)
        for node in walk(block)
        if isinstance(node, Load) and node.buffer == output
    ]
    if not readers or is_cheap(stage.block):
        return bool(readers)
    (block, indices), *others = readers
    used = frozenset().union(*(free_vars(index) for index in indices))
    return not others and {axis.var for axis in block.axes} <= used
