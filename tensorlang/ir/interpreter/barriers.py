"""Barriers: who has to be there, and the new phase after them.

`team` joins the iterations of the outermost parallel loop, `block` the threads of a
block (all `thread` indices), `warp` and `warpgroup` 32 and 128 threads of it, and
`cluster` the blocks too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter.lanes import Frame
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import Barrier

# scope -> (loop kind, prefix of the thread index) of the loops whose lanes meet
_LOOPS: Final = {
    "team": ("parallel", ""),
    "warp": ("bound", "thread."),
    "warpgroup": ("bound", "thread."),
    "block": ("bound", "thread."),
    "cluster": ("bound", ""),
}
_THREADS: Final = {"warp": 32, "warpgroup": 128}


def synchronise(node: Barrier, machine: Machine, lanes: Lanes) -> None:
    """Let all lanes of the scope meet; effects before are ordered to those after.

    Raises:
        InterpreterError: some lanes of a group are missing (`barrier`).
    """
    if node.scope not in _LOOPS:
        raise InterpreterError(f"no execution scope {node.scope!r} has a barrier")
    kind, prefix = _LOOPS[node.scope]
    meeting = [
        (frame, flat)
        for frame, flat in lanes.path()
        if frame.kind == kind and frame.thread.startswith(prefix)
    ]
    machine.report.barriers += 1
    if not meeting:
        return
    group = _groups(node.scope, meeting)
    if "barrier" in machine.checks:
        for frame, flat in meeting:
            _all_present(node, lanes, frame, flat, group[id(frame)])
    _new_phase(node.scope, machine, lanes, meeting[-1][0], group)


def _groups(scope: str, meeting: list[tuple[Frame, Array]]) -> dict[int, Array]:
    """For each frame, the group of threads in which each of its lanes meets."""
    outermost = meeting[-1][0]
    size = _THREADS.get(scope)
    if size is not None and len(meeting) > 1:
        raise InterpreterError(f"a {scope} barrier needs one loop of threads")
    groups = {}
    for frame, _ in meeting:
        flat, at = np.arange(frame.count), frame
        while at is not outermost:
            assert at.parent is not None
            flat, at = at.parent_flat[flat], at.parent
        group = outermost.parent_flat[flat]
        if size is not None:
            per_parent = -(-outermost.extent // size)
            group = group * per_parent + outermost.position[flat] // size
        groups[id(frame)] = group
    return groups


def _all_present(
    node: Barrier, lanes: Lanes, frame: Frame, flat: Array, group: Array
) -> None:
    present = np.zeros(frame.count, np.bool_)
    present[flat] = True
    awaited = np.zeros(int(group.max()) + 1, np.bool_)
    awaited[group[flat]] = True
    missing = int((awaited[group] & ~present).sum())
    if missing:
        raise fault(
            lanes,
            0,
            f"divergent barrier: {missing} of {int(awaited[group].sum())} lanes of "
            f"scope {node.scope!r} do not reach it",
        )


def _new_phase(
    scope: str,
    machine: Machine,
    lanes: Lanes,
    outermost: Frame,
    group: dict[int, Array],
) -> None:
    """Number the lanes anew, so that what they did before counts as their group's."""
    inner = [frame for frame, _ in lanes.path()]
    inner = inner[: inner.index(outermost) + 1]
    if scope in _THREADS and outermost.kind != scope:
        _insert_groups(scope, machine, outermost, group[id(outermost)])
    for frame in inner:
        machine.races.leave(frame, joins=False)
    for frame in reversed(inner):
        machine.races.enter(frame)


def _insert_groups(scope: str, machine: Machine, threads: Frame, group: Array) -> None:
    """Put a frame of warps between the threads and their block, if none is there."""
    parent = threads.parent
    if parent is None or parent.kind == scope:
        return
    count = int(group.max()) + 1
    forked = np.zeros(count, np.int64)
    forked[group] = threads.parent_flat
    warps = Frame(parent, forked, np.arange(count), scope)
    machine.races.enter(warps)
    threads.parent, threads.parent_flat = warps, group
