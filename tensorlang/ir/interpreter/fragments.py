"""Register buffers distributed over a block's threads by their layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorlang.ir.interpreter import banks
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Frame, Lanes
    from tensorlang.ir.interpreter.memory import Place
    from tensorlang.ir.interpreter.state import Machine


def is_own_register(machine: Machine, lanes: Lanes, place: Place) -> bool:
    """Whether an access is to registers of the lanes' own threads, which cannot race.

    Raises:
        InterpreterError: in threads with barrier objects: it is to another thread's.
    """
    buffer = place.memory.buffer
    if buffer.scope != "register" or buffer.layout is None:
        return False
    if len(buffer.layout.results) < 2 or machine.clocks is None:
        return False
    found = _threads(lanes, place.memory.frame)
    if found is None:
        return False
    owner = banks.layout_results(machine, place.memory)[0]
    at, who = place.entries(lanes)
    other = owner[at % max(place.memory.size, 1)] // machine.span
    wrong = other != found[who] // machine.span
    if wrong.any() and "register" in machine.checks:
        first = int(np.argmax(wrong))
        name, thread = place.name(int(at[first])), int(found[who[first]])
        raise fault(
            lanes,
            int(who[first]),
            f"{name} is in a register of thread {owner[at[first] % place.memory.size]}"
            f", and thread {thread} touches it",
        )
    return True


def _threads(lanes: Lanes, outside: Frame) -> Array | None:
    """The thread of each lane; None if the memory belongs to one thread anyway."""
    for frame, flat in lanes.path():
        if frame is outside:
            return None
        if frame.thread == "thread.x":
            return frame.position[flat]
    return None
