"""Every access is watched: by the race check, and by the owners of disjoint axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir.interpreter.block_checks import claim
from tensorlang.ir.interpreter.races import Conflict, Shadow
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Lanes
    from tensorlang.ir.interpreter.memory import Place
    from tensorlang.ir.interpreter.state import Machine


def watch(machine: Machine, lanes: Lanes, place: Place, kind: str) -> None:
    """Check an access against those of other lanes and other iterations.

    Raises:
        InterpreterError: `race` or `disjoint`.
        Conflict: iterations of a loop that is batched on trial met.
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
        for frame, _ in lanes.path():  # an ignored race may hide one of a batch
            if frame.kind == "batched":
                raise Conflict(frame, conflict.access, conflict.other) from None


def _explanation(conflict: Conflict, kind: str) -> str:
    did = {"writer": "wrote", "reads": "read", "atomics": "updated"}[conflict.other]
    verb = {"read": "reads", "write": "writes", "atomic": "updates"}[kind]
    frame = conflict.frame
    loop = f"{frame.kind} loop" + (f" ({frame.thread})" if frame.thread else "")
    return (
        f"one iteration of a {loop} {verb} what another one {did}, "
        "with no barrier between"
    )
