"""A good schedule from shapes alone, for operators without one of their own.

Each stage is scheduled by its kind. Cheap producers are inlined into their readers;
elementwise stages run as one long loop, chunks to threads and lanes to vectors;
reductions keep partial results in lanes; contractions use register tiles; of nests with
ordered loops, what is independent goes to threads and lanes.

Candidates are attempted in turn: where a primitive refuses, a simpler one follows.
Unrecognised stages are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from tensorlang.ir.contents import allocations, blocks, free_vars
from tensorlang.ir.nodes import Load
from tensorlang.ir.visit import walk
from tensorlang.schedules import elementwise, reductions
from tensorlang.schedules.contraction import dot_groups
from tensorlang.schedules.contraction import register_tiles as contraction
from tensorlang.schedules.ordered import ordered_nests
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
from tensorlang.scheduling import Knobs, Schedule, schedule

_MOST_FOLDED: Final = 64  # operations of an epilogue fused into tiles
_Strategy: TypeAlias = Callable[[Plan], None]

_REDUCTIONS: Final[tuple[_Strategy, ...]] = (
    reductions.long_parts,
    reductions.folded_rows,
    reductions.folded_columns,
    elementwise.shared,
)
_STRATEGIES: Final[dict[str, tuple[_Strategy, ...]]] = {
    INJECTIVE: (
        elementwise.flat,
        elementwise.cases,
        elementwise.long_rows,
        elementwise.vector_rows,
        elementwise.masked_lanes,
        elementwise.shared,
    ),
    REDUCTION: _REDUCTIONS,
    CONTRACTION: (contraction.tiles, *_REDUCTIONS),
}


@schedule("generic")
def generic(s: Schedule, knobs: Knobs) -> None:
    """Schedule every stage by its kind; never refuses a function."""
    inline_producers(s)
    each_stage(s, knobs)
    ordered_nests(s)


def each_stage(s: Schedule, knobs: Knobs) -> None:
    """Schedule the recognised stages, each by its kind."""
    last = dot_groups.made_factors(s)  # packed by their reader, if it does
    for name in sorted(stage_names(s), key=last.__contains__):
        one_stage(s, knobs, name)


def one_stage(s: Schedule, knobs: Knobs, name: str) -> None:
    """Schedule the stage of a block by its kind, if it is one."""
    stage = stage_named(s, name)
    if stage is not None and 0 not in map(extent_of, stage.loops):
        plan = Plan(s, knobs, stage)
        kind = kind_of(stage)
        any(s.attempt(way, plan) for way in _STRATEGIES[kind])
        if kind == CONTRACTION:
            _fold_epilogues(s, stage)


def inline_producers(s: Schedule) -> None:
    """Inline producers that are as cheap to recompute where they are read.

    Those that dot products read stay: they may pack, too.
    """
    kept = dot_groups.made_factors(s)
    for name in stage_names(s):
        if name in kept:
            continue
        stage = stage_named(s, name)
        if stage is not None and _free_to_inline(s, stage):
            s.attempt(s.inline, name)


def _fold_epilogues(s: Schedule, made: Stage) -> None:
    """Inline elementwise consumers into the write-back of tiles.

    Write-backs are unrolled, so computations of very many steps, such as a hash, stay
    in a loop of their own: it compiles in a quarter of the time and is no slower.
    """
    for name in stage_names(s):
        stage = stage_named(s, name)
        if stage is None or kind_of(stage) != INJECTIVE:
            continue
        if steps_of(stage.block) > _MOST_FOLDED:
            continue
        if made.output.name in {load.buffer.name for load in stage.loads}:
            s.attempt(partial(s.inline, reverse=True), name)


def stage_names(s: Schedule) -> list[str]:
    """The block names of the recognised stages, in program order."""
    return [stage.name for stage in stages(s.function)]


def stage_named(s: Schedule, name: str) -> Stage | None:
    """The stage of a block; None if it is no longer one."""
    return next((stage for stage in stages(s.function) if stage.name == name), None)


def _free_to_inline(s: Schedule, stage: Stage) -> bool:
    """Whether a stage makes a temporary that may as well be computed where it is read.

    True of cheap values, and of those read in one place, each element once.
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
