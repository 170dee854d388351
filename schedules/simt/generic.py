"""A good schedule for GPU threads from shapes alone, for any operator.

Small windows are tiled per thread, with their images; elementwise stages become one
grid; matrix products are tiled, on tensor cores where the target has them for the
dtype; reductions are scheduled by the memory order of their operand; in any other
contraction each thread accumulates one result in a register. Unrecognised nests are
bound by their outermost loops if those are independent, and otherwise run on a single
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tensorlang import lazy
from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, loops
from tensorlang.ir.integers.polynomials import poly
from tensorlang.ir.visit import walk
from tensorlang.schedules.generic import inline_producers, stage_named, stage_names
from tensorlang.schedules.simt.grid import distribute, grid_knobs, is_empty, per_thread
from tensorlang.schedules.stages import (
    CONTRACTION,
    INJECTIVE,
    REDUCTION,
    Stage,
    extent_of,
    host_steps,
    is_elementwise,
    kind_of,
)
from tensorlang.scheduling import Knobs, Schedule, schedule

with lazy.modules(__name__):  # for CPUs none is needed
    from tensorlang.schedules.simt import (
        channels_last,
        long_rows,
        reductions,
        scans,
        tensor_contractions,
        tensor_cores,
        tiles,
        transpose,
        warpgroup_windows,
        warpgroups,
        windows,
    )

_Strategy: TypeAlias = Callable[[Schedule, Knobs, Stage], None]
_ROW_THREADS: Final = (32, 64, 128, 256)
_WIDE: Final = 4  # elements of one access
_FEW: Final = 2  # arrays of which a thread reads several vectors at once
_LONG: Final = 32  # lets of a compute-bound body
_MANY: Final = 1 << 22  # elements that occupy a whole GPU with two vectors per thread


@schedule("generic", model="simt")
def generic(s: Schedule, knobs: Knobs) -> None:
    """Schedule every stage by its kind; never refuses a function."""
    warpgroups.few_rows(s, knobs)
    windows.windows(s, knobs)
    inline_producers(s)
    scans.sequential_scans(s)
    for name in _in_turn(s):
        stage = stage_named(s, name)
        if stage is not None and 0 not in map(extent_of, stage.loops):
            ways = _strategies(kind_of(stage))
            any(s.attempt(way, s, knobs, stage) for way in ways)
    for chain in _unbound(s.function):
        bind_outer_loops(s, chain)


def _in_turn(s: Schedule) -> list[str]:
    """Contractions first: they inline their producers before those have a grid."""
    found = [stage_named(s, name) for name in stage_names(s)]
    named = [stage for stage in found if stage is not None]
    return [x.name for x in sorted(named, key=lambda x: kind_of(x) != CONTRACTION)]


def elements(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """One grid over all elements; several per thread if they share one flat index."""
    bits = max(8 * buffer.dtype.bytes for buffer in stage.outputs)
    names = [loop.var.name for loop in stage.loops]
    if is_elementwise(stage):
        distribute(s, names, grid_knobs(s, knobs, bits, _steps(stage)))
        return
    grid = grid_knobs(s, knobs, bits)
    if _is_contiguous(stage, grid.lanes):
        distribute(s, names, grid, digits=True)
    else:
        per_thread(s, names, grid.threads)


def _steps(stage: Stage) -> int:
    """Reads per thread, to keep enough loads in flight.

    Three source arrays are enough with one read each; so is a compute-bound body.
    """
    sources = {load.buffer for load in stage.loads if load.indices}
    named = sum(isinstance(node, ir.Let) for node in walk(stage.block.body))
    few = stage.work is not None and stage.work < _MANY
    return 2 if 0 < len(sources) <= _FEW and named < _LONG and not few else 1


def _is_contiguous(stage: Stage, lanes: int) -> bool:
    """Whether all accesses along the innermost loop are contiguous and wide."""
    loop = stage.loops[-1]
    axis, length = stage.axis(loop), extent_of(loop)
    stores = [n for n in walk(stage.block.body) if isinstance(n, ir.Store)]
    places: list[ir.Load | ir.Store] = [*stage.loads, *stores]
    return (
        length is not None
        and length % _WIDE == 0
        and all(n.mask is None for n in stores)
        and all(_is_wide(n, axis, lanes) for n in places if n.indices)
    )


def _is_wide(place: ir.Load | ir.Store, axis: ir.Var, lanes: int) -> bool:
    """Whether neighbours along an axis are one wide access, or the same element."""
    if axis not in free_vars(place):
        return True
    if place.mask is None and place.indices[-1] == axis:
        return True
    length = place.buffer.shape[-1]
    rows = isinstance(length, ir.Const) and int(length.value) % lanes == 0
    start = (poly(place.indices[-1]) - poly(axis)).value
    whole = start is not None and start % lanes == 0
    return rows and whole and _is_part(place, axis, lanes)


def _is_part(place: ir.Load | ir.Store, axis: ir.Var, lanes: int) -> bool:
    """Whether a mask begins and ends at multiples of a vector."""
    if place.mask is None:
        return True
    guards = [n for n in walk(place.mask) if isinstance(n, ir.Compare)]
    return all(
        n.op in {"lt", "ge"}
        and n.a == axis
        and isinstance(n.b, ir.Const)
        and int(n.b.value) % lanes == 0
        for n in guards
        if axis in free_vars(n)
    )


def results(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """One result per thread, accumulated in a register."""
    spatial = stage.names("spatial")
    if not spatial:
        raise ScheduleError("there is only one result")
    folded = stage.names("reduction")
    threads = knobs.choice("row_threads", _ROW_THREADS, default=64)
    if tuple(loop.var.name for loop in stage.loops) != (*spatial, *folded):
        s.reorder(*spatial, *folded)
    thread = per_thread(s, spatial, threads)
    if len(stage.outputs) == 1:
        s.attempt(s.cache_write, stage.name, stage.output.name, "register", thread)


def _strategies(kind: str) -> tuple[_Strategy, ...]:
    """The schedules of stages of a kind, in the order in which they are tried."""
    if kind == INJECTIVE:
        return (transpose.transposed, long_rows.long_rows, elements)
    along = reductions.along_memory
    if kind == REDUCTION:
        return (reductions.one_result, along, reductions.across_memory, results)
    return (
        warpgroups.warpgroups,
        warpgroup_windows.warpgroup_windows,
        tensor_cores.tensor_cores,
        channels_last.channels_last,
        tensor_contractions.tensor_contractions,
        tiles.tiles,
        along,
        results,
    )


def bind_outer_loops(s: Schedule, chain: Sequence[str]) -> None:
    """Fuse and bind as many outermost loops of a chain as are independent."""
    if any(is_empty(s, name) for name in chain):
        return
    for count in range(len(chain), 0, -1):
        if s.attempt(per_thread, s, chain[:count], 64):
            return
    if chain:
        s.attempt(s.bind, chain[0], "block.x")


def _unbound(func: ir.Function) -> list[list[str]]:
    """The perfectly nested serial loops of each statement of the host not yet bound."""
    found = []
    for stmt in host_steps(func.body):
        chain: list[str] = []
        inner: ir.Stmt = stmt
        while isinstance(inner, ir.For) and inner.kind == "serial":
            chain.append(inner.var.name)
            inner = inner.body
        if chain and not any(loop.thread for loop in loops(stmt)):
            found.append(chain)
    return found
