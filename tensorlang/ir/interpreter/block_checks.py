"""Check the guarantees of axis kinds: `ordered` and `disjoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.memory import Place
    from tensorlang.ir.interpreter.state import BlockRun, Machine
    from tensorlang.ir.nodes import Axis, Block

INSTANCE = "@instance"  # variable with the number of each lane's iteration
_FREE = ("spatial", "opaque", "disjoint")


def _number(lanes: Lanes, axes: Sequence[Axis], extents: dict[str, int]) -> Array:
    """The row-major linear index of the values of some axes."""
    number: Array = np.zeros(lanes.count, np.int64)
    for axis in axes:
        number = number * extents[axis.var.name] + lanes.lookup(axis.var.name)
    return number


def _size(axes: Sequence[Axis], extents: dict[str, int]) -> int:
    return int(np.prod([extents[axis.var.name] for axis in axes], dtype=np.int64))


def order(
    machine: Machine, block: Block, lanes: Lanes, extents: dict[str, int]
) -> None:
    """Check that `ordered` axes increase at each point of the other axes.

    Raises:
        InterpreterError: an instance does not come after the previous one.
    """
    ordered = [axis for axis in block.axes if axis.kind == "ordered"]
    free = [axis for axis in block.axes if axis.kind in _FREE]
    now, point = _number(lanes, ordered, extents), _number(lanes, free, extents)
    if block.name not in machine.last:
        machine.last[block.name] = np.full(_size(free, extents), -1, np.int64)
    last = machine.last[block.name]
    repeats = any(axis.kind == "reduction" for axis in block.axes)
    late = now < last[point] if repeats else now <= last[point]
    machine.undo.put(last, point, now)
    late |= last[point] != now
    if not repeats:
        first = np.zeros(lanes.count, np.bool_)
        first[np.unique(point, return_index=True)[1]] = True
        late |= ~first
    if late.any():
        names = ", ".join(axis.var.name for axis in ordered)
        raise fault(
            lanes,
            int(np.argmax(late)),
            f"block {block.name}: ordered axis {names} does not increase",
        )


def number_instances(
    machine: Machine, block: Block, lanes: Lanes, extents: dict[str, int]
) -> int:
    """Number each lane's iteration, for `claim`; returns the span of the numbers.

    Instances along reduction axes are one iteration. Instances along ordered axes may
    conflict, as they are ordered: numbers in different spans never do.
    """
    free = [axis for axis in block.axes if axis.kind in _FREE]
    if len(free) == len(block.axes):  # every instance is an iteration
        machine.instances += lanes.count
        low = machine.instances - lanes.count
        lanes.bind(INSTANCE, low + np.arange(lanes.count))
        return 1 << 62
    ordered = [axis for axis in block.axes if axis.kind == "ordered"]
    span = max(_size(free, extents), 1)
    number = _number(lanes, ordered, extents) * span + _number(lanes, free, extents)
    lanes.bind(INSTANCE, number)
    return span


def claim(
    machine: Machine, run: BlockRun, lanes: Lanes, place: Place
) -> tuple[int, int] | None:
    """Record accesses by iterations; returns (element, lane) of a conflict, or None."""
    memory = place.memory
    at, who = place.entries(lanes)
    mine = np.broadcast_to(lanes.lookup(INSTANCE), lanes.count)[who]
    name = run.block.name
    if name not in memory.owners:
        memory.owners[name] = np.full(memory.data.size, -1, np.int64)
    owner = memory.owners[name]
    taken = _other(owner[at], mine, run.span)
    machine.undo.put(owner, at, mine)
    taken |= _other(owner[at], mine, run.span)
    if not taken.any():
        return None
    first = int(np.argmax(taken))
    return int(at[first]), int(who[first])


def _other(owner: Array, mine: Array, span: int) -> Array:
    """Where an element belongs to another iteration that is not ordered with mine."""
    return (owner >= 0) & (owner != mine) & (owner // span == mine // span)


def restart(machine: Machine, names: Sequence[str]) -> None:
    """Reset these blocks: their whole iteration space runs again."""
    for name in names:
        machine.last.pop(name, None)
        for memory in machine.memories.values():
            memory.owners.pop(name, None)
