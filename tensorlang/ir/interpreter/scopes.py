"""Collective blocks, run by the threads of a warp, warpgroup or block together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.ir.collectives import WARP
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import Block

_THREADS: Final = {"warp": WARP, "warpgroup": 4 * WARP}


def leaders(block: Block, machine: Machine, lanes: Lanes) -> tuple[Lanes, int] | None:
    """One lane per group of threads, and the group size; None without threads.

    Raises:
        InterpreterError: threads of a group are missing (a divergent collective), or
            disagree on axis values.
    """
    frame = lanes.frame
    span = _THREADS.get(block.scope, frame.extent if block.scope == "block" else 0)
    if not span or frame.thread != "thread.x":
        return None
    thread = frame.position[lanes.flat]
    around = _block(lanes)
    group = around * -(-frame.extent // span) + thread // span
    order = np.lexsort((thread, group))
    sizes = np.unique(group, return_counts=True)[1]
    if (sizes != span).any():
        missing = span - int(sizes[sizes != span][0])
        raise fault(
            lanes,
            int(order[0]),
            f"divergent collective: {missing} of {span} threads of a {block.scope} "
            f"do not reach block {block.name}",
        )
    members = order.reshape(-1, span)
    for axis in block.axes:
        value = evaluate(axis.value, machine, lanes)
        _agree(block, axis.var.name, value, lanes, members)
    return lanes.take(np.sort(order[::span])), span


def _block(lanes: Lanes) -> Array:
    """The lane around the threads, warps and warpgroups of each lane."""
    return next(
        flat
        for frame, flat in lanes.path()
        if frame.thread != "thread.x" and frame.kind not in _THREADS
    )


def _agree(block: Block, axis: str, value: Array, lanes: Lanes, members: Array) -> None:
    """Check that the threads of each group, a row of `members`, have the same value."""
    if value.size == 1:
        return
    groups = value[members]
    differs = (groups != groups[:, :1]).any(axis=1)
    if differs.any():
        lane = int(members[int(np.argmax(differs)), 0])
        raise fault(
            lanes,
            lane,
            f"the threads of a {block.scope} disagree on axis {axis} "
            f"of block {block.name}",
        )
