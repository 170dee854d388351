"""Barrier objects: count arrivals, complete phases, decide waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir.collectives import WARP
from tensorlang.ir.interpreter.barriers import new_phase
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorlang.ir.interpreter.clocks import Clocks
    from tensorlang.ir.interpreter.lanes import Array, Frame, Lanes
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import Arrive, BarrierObject, Stmt, Wait


class Objects:
    """The barrier objects of one declaration, in all blocks that run it."""

    __slots__ = ("arrived", "came", "first", "frame", "node", "open")

    def __init__(self, node: BarrierObject, frame: Frame, first: int) -> None:
        self.node = node  # declaration
        self.frame = frame  # lanes that each have their own objects: the blocks
        self.first = first  # number of the first of them among all objects of a block
        # by block and object, the number of the incomplete phase
        self.open = np.zeros((frame.count, node.size), np.int64)
        # number of arrivals at that phase
        self.arrived = np.zeros((frame.count, node.size), np.int64)
        # by thread as well, the number of phases when it last arrived
        self.came: Array | None = None

    def note(self, clocks: Clocks, lanes: Lanes, block: Array, index: Array) -> None:
        """Count an arrival of each lane."""
        if self.came is None:
            self.came = np.zeros((*self.open.shape, clocks.threads.extent), np.int64)
        self.came[block, index, clocks.thread(lanes)] = self.open[block, index] + 1
        np.add.at(self.arrived, (block, index), 1)

    def met(self, clocks: Clocks, lanes: Lanes, block: Array, index: Array) -> bool:
        """Whether these are whole warps whose threads all arrived at this phase."""
        if self.came is None:
            return False
        came = self.came[block, index, clocks.thread(lanes)]
        whole = np.unique(clocks.warp(lanes), return_counts=True)[1] == WARP
        return bool(whole.all() and (came == self.open[block, index]).all())

    def complete(self, machine: Machine) -> None:
        """Complete the phases with all their arrivals."""
        done = self.arrived // self.node.count
        self.open += done
        self.arrived -= done * self.node.count
        assert machine.clocks is not None
        for block, index in np.argwhere(done > 0):
            machine.clocks.publish(block, self.first + index, self.open[block, index])


def declare(node: BarrierObject, machine: Machine, lanes: Lanes) -> None:
    """New objects in phase 0, for the rest of the sequence."""
    others = (o for o in machine.objects.values() if o.frame is lanes.frame)
    first = sum(objects.node.size for objects in others)
    machine.objects[node.name] = Objects(node, lanes.frame, first)


def _located(
    node: Arrive | Wait, machine: Machine, lanes: Lanes
) -> tuple[Objects, Array, Array]:
    """The objects, and each lane's block and object index."""
    objects = machine.objects.get(node.name)
    clocks = machine.clocks
    if objects is None or clocks is None or objects.frame is not clocks.blocks:
        raise InterpreterError(
            f"barrier object {node.name} is used in threads which it was not "
            "declared right around"
        )
    index = np.broadcast_to(evaluate(node.index, machine, lanes), lanes.count)
    outside = (index < 0) | (index >= objects.node.size)
    if outside.any():
        lane = int(np.argmax(outside))
        raise fault(
            lanes,
            lane,
            f"{node.name}[{index[lane]}] is out of bounds: there are "
            f"{objects.node.size} of it",
        )
    return objects, clocks.block(lanes), index


def arrive(
    node: Arrive,
    machine: Machine,
    lanes: Lanes,
    execute: Callable[[Stmt, Machine, Lanes], None],
) -> None:
    """Each lane arrives once; what it has seen is ordered before the phase's end.

    Raises:
        InterpreterError: no such object, or a fault of the copies.
    """
    objects, block, index = _located(node, machine, lanes)
    clocks = machine.clocks
    assert clocks is not None
    if node.copies is not None:
        beside = lanes.take(np.arange(lanes.count))
        clocks.beside(beside, objects.first + index, objects.open[block, index])
        kept, machine.alone = machine.alone, True
        try:
            execute(node.copies, machine, beside)
        finally:
            machine.alone = kept
    clocks.release(lanes, objects.first + index)
    objects.note(clocks, lanes, block, index)
    objects.complete(machine)


def ready(node: Wait, machine: Machine, lanes: Lanes) -> str:
    """Empty if all lanes may proceed; else what the first of them waits for.

    Raises:
        InterpreterError: the phase is ambiguous by its parity.
    """
    objects, block, index = _located(node, machine, lanes)
    assert machine.clocks is not None
    phase = np.broadcast_to(evaluate(node.phase, machine, lanes), lanes.count)
    opened = objects.open[block, index]
    if "phase" in machine.checks:
        seen = machine.clocks.phases(lanes, objects.first + index)
        _refuse_wrong(node, lanes, index, phase, opened)
        _refuse_unseen(node, lanes, index, phase, seen)
    late = np.flatnonzero((opened - phase) % 2 == 0)
    if late.size:
        lane = int(late[0])
        came = objects.arrived[block[lane], index[lane]]
        return (
            f"phase {phase[lane]} of {node.name}[{index[lane]}] "
            f"({came} of {objects.node.count} arrived)"
        )
    machine.clocks.acquire(lanes, objects.first + index)
    if objects.met(machine.clocks, lanes, block, index):
        new_phase(machine, lanes, machine.clocks.threads)
    return ""


def _refuse_wrong(
    node: Wait, lanes: Lanes, index: Array, phase: Array, opened: Array
) -> None:
    wrong = (opened != phase) & (opened != phase + 1)
    if wrong.any():
        lane = int(np.argmax(wrong))
        raise fault(
            lanes,
            lane,
            f"a wait for phase {phase[lane]} of {node.name}[{index[lane]}], where "
            f"phase {opened[lane]} is open: by its parity it is taken for another",
        )


def _refuse_unseen(
    node: Wait, lanes: Lanes, index: Array, phase: Array, seen: Array
) -> None:
    wrong = phase > seen
    if wrong.any():
        lane = int(np.argmax(wrong))
        raise fault(
            lanes,
            lane,
            f"a wait for phase {phase[lane]} of {node.name}[{index[lane]}] by a warp "
            f"that has seen the end of {seen[lane]} phases: an earlier one that is "
            "open has the parity of that one complete",
        )
