"""Blocks: axis values, `where`, initialization of reductions, and bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.ir.contents import writes
from tensorlang.ir.interpreter.block_checks import INSTANCE, number_instances, order
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.scopes import leaders
from tensorlang.ir.interpreter.state import BlockRun, Machine, fault
from tensorlang.ir.interpreter.update import FIRST
from tensorlang.ir.nodes import Block, For, Reduce, Stmt, While
from tensorlang.ir.visit import walk

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes

Execute = Callable[[Stmt, Machine, "Lanes"], None]


def run_block(block: Block, machine: Machine, lanes: Lanes, execute: Execute) -> None:
    """Run the instances of `block` for these lanes.

    Raises:
        InterpreterError: an axis value outside its extent (`bounds`), or a fault raised
            by `order` or by the statements of the body.
    """
    group = None if block.scope == "thread" else leaders(block, machine, lanes)
    if group is not None:
        kept_alone, machine.alone = machine.alone, True
        machine.span = group[1]
        try:
            _run_instances(block, machine, group[0], execute)
        finally:
            machine.alone, machine.span = kept_alone, 1
    else:
        _run_instances(block, machine, lanes, execute)


def _run_instances(
    block: Block, machine: Machine, lanes: Lanes, execute: Execute
) -> None:
    active = _active(block, machine, lanes)
    if active is None:
        return
    extents = _check_values(block, machine, active)
    kinds = {axis.kind for axis in block.axes}
    if "ordered" in kinds and "order" in machine.checks:
        order(machine, block, active, extents)
    run = machine.derived(block, _plan)()
    if "disjoint" not in machine.checks:
        run.owned = frozenset()
    if run.owned:
        run.span = number_instances(machine, block, active, extents)
    kept = machine.run, lanes.values.get(FIRST), lanes.values.get(INSTANCE)
    first = _first_instances(block, active)
    active.bind(FIRST, first)
    machine.run = run
    try:
        begin = None if block.init is None else active.where(first)
        if begin is not None and block.init is not None:
            execute(block.init, machine, begin)
        execute(block.body, machine, active)
    finally:
        machine.run = kept[0]
        for name, value in zip((FIRST, INSTANCE), kept[1:], strict=True):
            lanes.values.pop(name, None)
            if value is not None:
                lanes.bind(name, value)


def _active(block: Block, machine: Machine, lanes: Lanes) -> Lanes | None:
    """The lanes whose instance is not skipped, with the axes bound."""
    active: Lanes | None = lanes
    if block.where is not None:
        active = lanes.where(evaluate(block.where, machine, lanes))
    if active is None:
        return None
    for axis in block.axes:
        active.bind(axis.var.name, evaluate(axis.value, machine, active))
    return active


def _check_values(block: Block, machine: Machine, lanes: Lanes) -> dict[str, int]:
    """The extents of the axes by name, after checking their values."""
    extents = {}
    for axis in block.axes:
        name = axis.var.name
        value, extent = lanes.lookup(name), evaluate(axis.extent, machine, lanes)
        extents[name] = int(extent[0] if extent.size == 1 else extent.max())
        bad = (value < 0) | (value >= extent)
        if "bounds" in machine.checks and np.count_nonzero(bad):
            lane = int(np.argmax(bad))
            wrong = value[lane if value.size > 1 else 0]
            message = f"axis {name} = {wrong} is outside its extent {extents[name]}"
            raise fault(lanes, lane, f"block {block.name}: {message}")
    return extents


def _first_instances(block: Block, lanes: Lanes) -> Array:
    """Where all reduction axes are 0."""
    first: Array = np.ones(1, np.bool_)
    for axis in block.axes:
        if axis.kind == "reduction":
            first = first & (lanes.lookup(axis.var.name) == 0)
    return first


def _plan(block: Block) -> Callable[[], BlockRun]:
    """The static properties of a block."""
    kinds = {axis.kind for axis in block.axes}
    implicit = "reduction" in kinds and block.init is None
    loops = [n for n in walk(block.body) if isinstance(n, (For, While))]
    repeated = implicit and any(
        isinstance(n, Reduce) for loop in loops for n in walk(loop)
    )
    owned = frozenset(
        buffer.name for buffer in writes(block.body) if "disjoint" in kinds
    )
    return lambda: BlockRun(block, implicit, {} if repeated else None, owned)
