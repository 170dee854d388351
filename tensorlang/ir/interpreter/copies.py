"""Asynchronous copies: stores hinted `async`, until a wait for their group.

    store(t[i], x[i], hints=("async",))     the copy starts
    evaluate(commit_copies())               groups the copies started so far
    evaluate(wait_copies(1))                waits for all groups but the last one

Until then their elements must not be read or written. To other threads a copy is a
write by its own thread at the wait, which a barrier must follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.frozen import frozen
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.state import fault
from tensorlang.ir.interpreter.watch import watch

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Frame, Lanes
    from tensorlang.ir.interpreter.memory import Place
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import Call


@frozen
class _Copy:
    """One store: its place, and the lanes that started it."""

    place: Place
    frame: Frame
    flat: Array


@dataclass(slots=True)
class Copies:
    """The copies in flight: uncommitted ones, and the groups, oldest first."""

    started: list[_Copy] = field(default_factory=list)
    groups: list[list[_Copy]] = field(default_factory=list)

    def start(self, place: Place, lanes: Lanes) -> None:
        """Reserve the elements at a place for a copy."""
        memory = place.memory
        if memory.copying is None:
            memory.copying = np.zeros(memory.data.size, np.bool_)
        at, _ = place.entries(lanes)
        memory.copying[at] = True
        self.started.append(_Copy(place, lanes.frame, lanes.flat))

    def commit(self) -> None:
        """Group the copies started since the last commit."""
        self.groups.append(self.started)
        self.started = []

    def wait(self, machine: Machine, lanes: Lanes, left: int) -> None:
        """Complete all groups but the last `left` ones.

        Raises:
            InterpreterError: some threads that started a copy do not wait.
        """
        done = len(self.groups) - left
        for group in self.groups[: max(done, 0)]:
            for copy in group:
                _finish(copy, machine, lanes)
        self.groups = self.groups[max(done, 0) :]


def _finish(copy: _Copy, machine: Machine, lanes: Lanes) -> None:
    memory = copy.place.memory
    assert memory.copying is not None
    memory.copying[copy.place.flat] = False
    if copy.frame is not lanes.frame:
        return  # the thread loop ended: its accesses count as the block's
    if not np.isin(copy.flat, lanes.flat).all():
        raise fault(lanes, 0, "some threads that started a copy do not wait for it")
    own = lanes.take(np.flatnonzero(np.isin(lanes.flat, copy.flat)))
    watch(machine, own, copy.place, "write")


def copies_of(machine: Machine) -> Copies:
    """The copies of a run."""
    if machine.copies is None:
        machine.copies = Copies()
    return machine.copies


def settle(node: Call, machine: Machine, lanes: Lanes) -> None:
    """Commit a group of copies, or wait until all but some groups are complete.

    Raises:
        InterpreterError: some threads that started a copy do not wait.
    """
    copies = copies_of(machine)
    if node.name == "commit_copies":
        copies.commit()
    else:
        (left,) = node.args
        copies.wait(machine, lanes, int(evaluate(left, machine, lanes).max()))
