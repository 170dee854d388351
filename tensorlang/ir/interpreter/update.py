"""Updates of memory: reductions of blocks, and atomic updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorlang.ir import semantics
from tensorlang.ir.contraction import combination
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.memory import Place, locate, mark, read, write
from tensorlang.ir.interpreter.state import fault
from tensorlang.ir.interpreter.watch import watch
from tensorlang.ir.nodes import AtomicUpdate, Expr, Reduce, Var

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.memory import Memory
    from tensorlang.ir.interpreter.state import Machine

FIRST = "@first"  # variable telling lanes whether their state is uninitialized


def reduce(node: Reduce, machine: Machine, lanes: Lanes) -> None:
    """Combine the state at the indices with the values.

    All components are computed from the old state before any is stored.
    """
    indices = [evaluate(index, machine, lanes) for index in node.indices]
    memories = [machine.memory(buffer) for buffer in node.buffers]
    places = [locate(machine, lanes, m, indices, None) for m in memories]
    first = _first(machine, lanes, places)
    for left, place, identity in zip(
        _named(node, 0), places, node.reducer.identity, strict=True
    ):
        lanes.bind(left.name, _state(machine, lanes, place, first, identity))
    combined = machine.derived(node, _combination)
    if len(node.values) > 1 or _is_vector(node):
        for right, value in zip(_named(node, 1), node.values, strict=True):
            lanes.bind(right.name, evaluate(value, machine, lanes))
    results = [evaluate(expr, machine, lanes) for expr in combined]
    for place, result in zip(places, results, strict=True):
        write(machine, lanes, place, result)


def _named(node: Reduce, side: int) -> tuple[Var, ...]:
    """The variables of one side, renamed to be distinct from the program's."""
    sides = node.reducer.left, node.reducer.right
    return tuple(Var(f"@{side}{var.name}", var.dtype) for var in sides[side])


def _combination(node: Reduce) -> tuple[Expr, ...]:
    """The combination with the old state; a single value is inlined as written.

    This contracts a product with the addition of its reducer, like lowering does. A
    vector is bound to a name: its lanes are combined by the same scalar expression.
    """
    as_written = len(node.values) == 1 and not _is_vector(node)
    right = node.values if as_written else _named(node, 1)
    return combination(node.reducer, _named(node, 0), right)


def _is_vector(node: Reduce) -> bool:
    return any(expr.dtype.lanes > 1 for expr in node.values + node.indices)


def _state(
    machine: Machine, lanes: Lanes, place: Place, first: Array, identity: Expr
) -> Array:
    """The old state: the identity in lanes where nothing has been reduced yet."""
    start = evaluate(identity, machine, lanes)
    if first.all():
        return start
    begun = ~first if first.ndim == place.flat.ndim else ~first[:, None]
    if begun.all():
        return read(machine, lanes, place, plain=False)
    masked = Place(place.memory, place.flat, place.indices, None)
    masked.flat, masked.mask = np.broadcast_arrays(place.flat, begun)
    return np.where(begun, read(machine, lanes, masked, plain=False), start)


def _first(machine: Machine, lanes: Lanes, places: list[Place]) -> Array:
    """Where this is the first value reduced into its state."""
    run = machine.run
    if run is None or not run.implicit:
        return np.zeros(1, np.bool_)
    first = lanes.lookup(FIRST)
    if run.started is None or not first.any():
        return first
    memory, flat = places[0].memory, places[0].flat
    started = run.started.setdefault(id(memory), np.zeros(memory.data.size, np.bool_))
    first = (first if first.ndim == flat.ndim else first[:, None]) & ~started[flat]
    shape = np.broadcast_shapes(first.shape, flat.shape)
    begun = np.broadcast_to(flat, shape)[np.broadcast_to(first, shape)]
    machine.undo.put(started, begun, True)
    return first


def atomic(node: AtomicUpdate, machine: Machine, lanes: Lanes) -> None:
    """`buffer[indices] = op(buffer[indices], value)`, lane by lane."""
    indices = [evaluate(index, machine, lanes) for index in node.indices]
    memory = machine.memory(node.buffer)
    place = locate(machine, lanes, memory, indices, None)
    value = evaluate(node.value, machine, lanes)
    if memory.role == "in" and "in_param" in machine.checks:
        raise fault(lanes, 0, f"{node.buffer.name} is an `in` parameter: no writes")
    read(machine, lanes, place, plain=False)
    watch(machine, lanes, place, "atomic")
    at, _ = place.entries(lanes)
    shape = (lanes.count, *place.flat.shape[1:])
    if value.ndim < len(shape):
        value = value[:, None]
    _fold(machine, memory, node.op, at, np.broadcast_to(value, shape).reshape(-1))
    mark(machine, memory, at)


def _fold(machine: Machine, memory: Memory, op: str, at: Array, values: Array) -> None:
    """Reduce values into elements in order: round n takes the n-th of each element."""
    machine.undo.save(memory.data)
    by_element = np.argsort(at, kind="stable")
    starts = np.flatnonzero(np.diff(at[by_element], prepend=-1))
    sizes = np.diff(starts, append=at.size)
    rank = np.arange(at.size) - np.repeat(starts, sizes)
    by_rank = by_element[np.argsort(rank, kind="stable")]
    turns = np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])
    for turn in turns:
        old = memory.data[at[turn]]
        folded = semantics.binary(op, memory.buffer.dtype, old, values[turn])
        memory.data[at[turn]] = folded
