"""Execute statements, in all lanes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks as blocks_below
from tensorlang.ir.contents import free_vars
from tensorlang.ir.interpreter.barriers import divide_threads, synchronise
from tensorlang.ir.interpreter.batching import batch
from tensorlang.ir.interpreter.block_checks import restart
from tensorlang.ir.interpreter.blocks import run_block
from tensorlang.ir.interpreter.clocks import Clocks
from tensorlang.ir.interpreter.copies import copies_of, settle
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.lanes import Lanes
from tensorlang.ir.interpreter.memory import Memory, locate, write
from tensorlang.ir.interpreter.objects import arrive, declare
from tensorlang.ir.interpreter.roles import grouped, run_roles, wait
from tensorlang.ir.interpreter.state import Machine
from tensorlang.ir.interpreter.update import atomic, reduce
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.visit import walk

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Frame


def execute(node: ir.Stmt, machine: Machine, lanes: Lanes) -> None:
    """Execute `node` in the given lanes; each statement but a sequence is a step.

    Raises:
        InterpreterError: a fault in an active lane.
    """
    if not isinstance(node, ir.Seq | ir.Role):
        machine.step()
    run = _RUNS.get(type(node))
    if run is None:
        raise InterpreterError(f"{type(node).__name__} is not a statement")
    run(node, machine, lanes)


def _sequence(node: ir.Seq, machine: Machine, lanes: Lanes) -> None:
    for stmt in machine.derived(node, grouped):
        if isinstance(stmt, tuple):
            run_roles(stmt, machine, lanes, execute)
        else:
            execute(stmt, machine, lanes)


def _role(node: ir.Role, machine: Machine, lanes: Lanes) -> None:
    run_roles((node,), machine, lanes, execute)


def _arrive(node: ir.Arrive, machine: Machine, lanes: Lanes) -> None:
    arrive(node, machine, lanes, execute)


def _let(node: ir.Let, machine: Machine, lanes: Lanes) -> None:
    lanes.bind(node.var.name, evaluate(node.value, machine, lanes))


def _alloc(node: ir.Alloc, machine: Machine, lanes: Lanes) -> None:
    buffer = node.buffer
    shape = []
    for extent in buffer.shape:
        values = evaluate(extent, machine, lanes)
        if (values != values[0]).any():
            raise InterpreterError(f"{buffer.name}: lanes disagree on its shape")
        shape.append(max(int(values[0]), 0))
    frame, instance = lanes.frame, lanes.flat
    if buffer.scope == "shared":  # one per block, not per thread
        for inner, flat in lanes.path():
            if inner.thread.startswith("thread.") and inner.parent is not None:
                frame, instance = inner.parent, inner.parent_flat[flat]
    count = int(instance.max()) + 1
    memory = Memory(buffer, tuple(shape), "temporary", frame, instances=count)
    if count > 1:
        memory.instance = f"@{buffer.name}"
        lanes.bind(memory.instance, instance)
    machine.memories[buffer.name] = memory


def _if(node: ir.If, machine: Machine, lanes: Lanes) -> None:
    condition = evaluate(node.cond, machine, lanes)
    chosen = lanes.where(condition)
    if chosen is not None:
        execute(node.then, machine, chosen)
    others = None if node.orelse is None else lanes.where(~condition)
    if others is not None and node.orelse is not None:
        execute(node.orelse, machine, others)


def _while(node: ir.While, machine: Machine, lanes: Lanes) -> None:
    names = [block.name for block in machine.derived(node, _blocks_below)]
    going: Lanes | None = lanes
    index = np.arange(lanes.count)
    while going is not None:
        machine.step()
        condition = evaluate(node.cond, machine, going)
        if not condition.all():
            index = index[condition] if condition.size > 1 else index[:0]
            going = lanes.take(index) if index.size else None
        if going is not None:
            restart(machine, names)
            execute(node.body, machine, going)


def _blocks_below(node: ir.While) -> tuple[ir.Block, ...]:
    return tuple(blocks_below(node))


def _loop(node: ir.For, machine: Machine, lanes: Lanes) -> None:
    extents = evaluate(node.extent, machine, lanes)
    if node.kind in ("parallel", "vectorized", "bound"):
        _in_lanes(node, machine, lanes, extents)
    else:
        done = batch(node, machine, lanes, extents, execute)
        _in_order(node, machine, lanes, extents, done)


def _in_lanes(node: ir.For, machine: Machine, lanes: Lanes, extents: Array) -> None:
    """Run all iterations side by side."""
    inner = lanes.fork(node, 0, extents, node.kind)
    if inner is None:
        return
    inner.frame.folds = machine.derived(node, _folds)
    machine.races.enter(inner.frame)
    kept = machine.clocks
    try:
        if node.thread == "thread.x":
            _start_clocks(machine, inner)
        if inner.frame.folds:  # one lane after the other: any order is valid
            for position in range(inner.frame.extent):
                turn = np.flatnonzero(inner.frame.position == position)
                execute(node.body, machine, inner.take(turn))
        else:
            execute(node.body, machine, inner)
    finally:
        machine.clocks, machine.races.clocked = kept, kept is not None
        frame: Frame | None = inner.frame
        while frame is not None and frame is not lanes.frame:  # warps may be between
            machine.races.leave(frame)
            frame = frame.parent


def _start_clocks(machine: Machine, threads: Lanes) -> None:
    """Create the clocks of threads directly inside declarations of barrier objects."""
    around = threads.frame.parent
    objects = [o for o in machine.objects.values() if o.frame is around]
    if objects:
        count = sum(found.node.size for found in objects)
        machine.clocks = Clocks(threads, count)
        machine.races.clocked = True
        divide_threads("warp", machine, threads)


def _folds(node: ir.For) -> frozenset[str]:
    """The buffers of states that lanes, or threads of a block, reduce together."""
    if node.kind != "vectorized" and not node.thread.startswith("thread."):
        return frozenset()
    return frozenset(
        buffer.name
        for block in blocks_below(node)
        if _reduces_along(block, node.var)
        for n in walk(block)
        if isinstance(n, ir.Reduce) and n.reducer.commutative
        for buffer in n.buffers
    )


def _reduces_along(block: ir.Block, var: ir.Var) -> bool:
    return any(
        axis.kind == "reduction" and var in free_vars(axis.value) for axis in block.axes
    )


def _in_order(
    node: ir.For, machine: Machine, lanes: Lanes, extents: Array, start: int
) -> None:
    """Run the iterations sequentially, each in the lanes that have it."""
    kept = lanes.loops
    kind = node.var.dtype.numpy
    for iteration in range(start, int(extents.max())):
        going = lanes.where(extents > iteration)
        assert going is not None
        going.loops = (*kept, node.var.name)
        going.bind(node.var.name, np.array([iteration], kind))
        execute(node.body, machine, going)
    lanes.loops = kept


def _store(node: ir.Store, machine: Machine, lanes: Lanes) -> None:
    machine.updated = machine.derived(node, _updated)
    value = evaluate(node.value, machine, lanes)
    machine.updated = frozenset()
    indices = [evaluate(index, machine, lanes) for index in node.indices]
    mask = None if node.mask is None else evaluate(node.mask, machine, lanes)
    memory = machine.memory(node.buffer)
    place = locate(machine, lanes, memory, indices, mask)
    write(machine, lanes, place, value)
    if "async" in node.hints:
        copies_of(machine).start(place, lanes)


def _updated(node: ir.Store) -> frozenset[int]:
    """The loads, by id, of the element that `node` stores, which make it an update."""
    if node.mask is not None:
        return frozenset()
    return frozenset(
        id(load)
        for load in walk(node.value)
        if isinstance(load, ir.Load)
        and (load.buffer, load.indices) == (node.buffer, node.indices)
        and load.mask is None
    )


def _block(node: ir.Block, machine: Machine, lanes: Lanes) -> None:
    run_block(node, machine, lanes, execute)


def _evaluate(node: ir.Evaluate, machine: Machine, lanes: Lanes) -> None:
    if isinstance(node.expr, ir.Call) and node.expr.name in COPY_SYNCS:
        settle(node.expr, machine, lanes)
    else:
        evaluate(node.expr, machine, lanes)


_RUNS: Final[dict[type[ir.Stmt], Callable[[Any, Machine, Lanes], None]]] = {
    ir.Seq: _sequence,
    ir.Role: _role,
    ir.Let: _let,
    ir.Alloc: _alloc,
    ir.If: _if,
    ir.While: _while,
    ir.For: _loop,
    ir.Store: _store,
    ir.Reduce: reduce,
    ir.AtomicUpdate: atomic,
    ir.Block: _block,
    ir.Evaluate: _evaluate,
    ir.Barrier: synchronise,
    ir.BarrierObject: declare,
    ir.Arrive: _arrive,
    ir.Wait: wait,
}
