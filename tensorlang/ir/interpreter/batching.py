"""Batching: speculatively run serial loops as lanes if iterations are independent.

The race check decides, while the iterations run side by side. If two of them conflict,
or anything faults, all effects are rolled back and the loop runs serially, so batching
never shows in a result or an error, only in execution time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.interpreter.banks import warps
from tensorlang.ir.interpreter.races import Conflict
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.visit import walk

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.state import Machine

_WIDE: Final = 4096  # lanes beyond which batching gains nothing
_MOST: Final = 1 << 15  # lanes in a batch
_MOST_WITH_ALLOC: Final = 1 << 11  # lanes in a batch, each with memory of its own

Execute = Callable[[ir.Stmt, "Machine", "Lanes"], None]


def batch(
    loop: ir.For, machine: Machine, lanes: Lanes, extents: Array, execute: Execute
) -> int:
    """Run iterations of a serial loop side by side; returns how many were run."""
    total = int(extents.max())
    plan = machine.derived(loop, _plan)
    if total < 2 or lanes.count >= _WIDE or not plan or id(loop) in machine.serial_only:
        return 0
    in_threads = not machine.alone and warps(lanes) is not None
    if in_threads and machine.derived(loop.body, _touches_shared):
        return 0  # bank conflicts are counted per iteration
    size = max(plan // lanes.count, 2)
    for first in range(0, total, size):
        inner = lanes.fork(loop, first, np.clip(extents - first, 0, size), "batched")
        if inner is not None and not _trial(loop, machine, lanes, inner, execute):
            machine.serial_only.add(id(loop))
            return first
    machine.report.batched += 1
    return total


def _trial(
    loop: ir.For, machine: Machine, lanes: Lanes, inner: Lanes, execute: Execute
) -> bool:
    """Run the lanes `inner` forked from `lanes`; False if rolled back."""
    kept = lanes.loops
    machine.undo.begin()
    machine.races.enter(inner.frame)
    try:
        execute(loop.body, machine, inner)
    except (Conflict, InterpreterError) as error:
        machine.undo.revert()
        lanes.loops = kept
        if isinstance(error, Conflict) and error.frame is not inner.frame:
            raise
        return False
    finally:
        machine.races.leave(inner.frame)
    machine.undo.keep()
    return True


def _plan(loop: ir.For) -> int:
    """The maximal number of lanes in a batch; 0 if the loop is obviously serial."""
    for node in walk(loop.body):
        if isinstance(node, (ir.Barrier, ir.AtomicUpdate, ir.Role, ir.Arrive, ir.Wait)):
            return 0
        if isinstance(node, ir.Call) and node.name in COPY_SYNCS:
            return 0
        if isinstance(node, ir.Block) and node.scope != "thread":
            return 0
        if isinstance(node, ir.Block):
            for axis in node.axes:
                in_order = axis.kind in ("reduction", "ordered")
                if in_order and loop.var in free_vars(axis.value):
                    return 0
    alloc = any(isinstance(node, ir.Alloc) for node in walk(loop.body))
    return _MOST_WITH_ALLOC if alloc else _MOST


def _touches_shared(body: ir.Stmt) -> bool:
    return any(buffer.scope == "shared" for buffer in reads(body) | writes(body))
