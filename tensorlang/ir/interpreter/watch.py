"""Check every access: for races, and for conflicts along disjoint axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir.collectives import WARP
from tensorlang.ir.interpreter.block_checks import claim
from tensorlang.ir.interpreter.clocks import Record
from tensorlang.ir.interpreter.fragments import is_own_register
from tensorlang.ir.interpreter.races import Conflict, Shadow
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.clocks import Clocks
    from tensorlang.ir.interpreter.lanes import Lanes
    from tensorlang.ir.interpreter.memory import Place
    from tensorlang.ir.interpreter.state import Machine


def watch(machine: Machine, lanes: Lanes, place: Place, kind: str) -> None:
    """Check an access against those of other lanes and other iterations.

    Raises:
        InterpreterError: `race` or `disjoint`.
        Conflict: iterations of a speculatively batched loop conflict.
    """
    memory = place.memory
    run = machine.run
    if run is not None and memory.buffer.name in run.owned:
        taken = claim(machine, run, lanes, place)
        if taken is not None:
            element, lane = taken
            message = f"{place.name(element)} is touched by two iterations of the block"
            raise fault(lanes, lane, f"{message} {run.block.name} with disjoint axes")
    private = lanes.frame is memory.frame or lanes.frame.parent is None
    if private or memory.buffer.name not in machine.mutable:
        return
    if is_own_register(machine, lanes, place):
        return
    if machine.clocks is not None and "race" in machine.checks:
        _watch_clocks(machine, machine.clocks, lanes, place, kind)
    if "race" not in machine.checks and not machine.undo.active:
        return
    if memory.shadow is None:
        memory.shadow = Shadow(memory.buffer.name, memory.data.size, machine.undo)
    at, who = place.entries(lanes)
    try:
        machine.races.touch(kind, memory.shadow, at, who, lanes)
    except Conflict as conflict:
        if conflict.frame.kind == "batched":
            raise
        if "race" in machine.checks:
            name, lane = place.name(int(at[conflict.access])), who[conflict.access]
            message = f"race: {name}: {_explanation(conflict, kind)}"
            raise fault(lanes, int(lane), message) from None
        for frame, _ in lanes.path():  # an ignored race may hide one within a batch
            if frame.kind == "batched":
                raise Conflict(frame, conflict.access, conflict.other) from None


def _watch_clocks(
    machine: Machine, clocks: Clocks, lanes: Lanes, place: Place, kind: str
) -> None:
    memory = place.memory
    if memory.clocked is None or memory.clocked[0] is not clocks:
        memory.clocked = clocks, Record(memory.data.size)
    at, who = place.entries(lanes)
    warps = max(machine.span // WARP, 1)
    if memory.buffer.scope == "shared":
        record, together = memory.clocked[1], warps > 1
        first = clocks.unfenced(record, at, who, lanes, collective=together)
        if first is not None:
            raise fault(
                lanes,
                int(who[first]),
                f"race: {place.name(int(at[first]))}: a copy or product of warpgroups "
                "accesses what a thread wrote, which has since been at no barrier of "
                "its warpgroup, and may not see that",
            )
    late = clocks.touch(
        kind, memory.clocked[1], at, who, lanes=lanes, span=warps, undo=machine.undo
    )
    if late is not None:
        access, did = late
        name = place.name(int(at[access]))
        raise fault(
            lanes,
            int(who[access]),
            f"race: {name}: a warp {_VERBS[kind]} what another one, or a copy, {did}, "
            "and has waited for no phase that it arrived at since",
        )


_VERBS = {"read": "reads", "write": "writes", "atomic": "updates"}


def _explanation(conflict: Conflict, kind: str) -> str:
    did = {"writer": "wrote", "reads": "read", "atomics": "updated"}[conflict.other]
    verb = _VERBS[kind]
    frame = conflict.frame
    loop = f"{frame.kind} loop" + (f" ({frame.thread})" if frame.thread else "")
    return (
        f"one iteration of a {loop} {verb} what another one {did}, "
        "with no barrier between"
    )
