"""Barriers: check that all lanes arrive, and start a new phase.

`team` joins the iterations of the outermost parallel loop, `block` the threads of a
block (all `thread` indices), `warp` and `warpgroup` 32 and 128 of its threads, and
`cluster` the blocks as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir.collectives import WARP
from tensorlang.ir.interpreter.lanes import Frame
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import Barrier

# scope -> the frames whose lanes are joined, by kind and prefix of their thread index
_MEETING: Final = {
    "team": {"parallel": ""},
    "warp": {"bound": "thread."},
    "warpgroup": {"bound": "thread.", "warp": ""},
    "block": {"bound": "thread.", "warp": "", "warpgroup": ""},
    "cluster": {"bound": "", "warp": "", "warpgroup": ""},
}
_THREADS: Final = {"warpgroup": 128, "warp": 32}


def synchronise(node: Barrier, machine: Machine, lanes: Lanes) -> None:
    """Join all lanes of the scope; effects before are ordered to those after.

    Raises:
        InterpreterError: some lanes of a group are missing (`barrier`).
    """
    if node.scope not in _MEETING:
        raise InterpreterError(f"no execution scope {node.scope!r} has a barrier")
    machine.report.barriers += 1
    if node.scope in _THREADS:
        divide_threads(node.scope, machine, lanes)
    kinds = _MEETING[node.scope]
    meeting = [
        (frame, flat)
        for frame, flat in lanes.path()
        if frame.kind in kinds and frame.thread.startswith(kinds[frame.kind])
    ]
    if not meeting:
        return
    outermost = meeting[-1][0]
    if "barrier" in machine.checks:
        for frame, flat in meeting:
            _all_present(node, lanes, flat, _groups(frame, outermost))
    new_phase(machine, lanes, outermost)
    if machine.clocks is not None and node.scope != "warp":
        machine.clocks.meet(lanes, _THREADS.get(node.scope, 0) // WARP)


def _groups(frame: Frame, outermost: Frame) -> Array:
    """The lane that forked `outermost`, for each lane of `frame` inside it."""
    flat, at = np.arange(frame.count), frame
    while at is not outermost:
        assert at.parent is not None
        flat, at = at.parent_flat[flat], at.parent
    return outermost.parent_flat[flat]


def _all_present(node: Barrier, lanes: Lanes, flat: Array, group: Array) -> None:
    present = np.zeros(group.size, np.bool_)
    present[flat] = True
    awaited = np.isin(group, group[flat])
    missing = int((awaited & ~present).sum())
    if missing:
        raise fault(
            lanes,
            0,
            f"divergent barrier: {missing} of {int(awaited.sum())} lanes of "
            f"scope {node.scope!r} do not reach it",
        )


def new_phase(machine: Machine, lanes: Lanes, outermost: Frame) -> None:
    """Renumber the lanes, so that their earlier accesses count as their group's."""
    frames = [frame for frame, _ in lanes.path()]
    inner = frames[: frames.index(outermost) + 1]
    for frame in inner:
        machine.races.leave(frame, joins=False)
    for frame in reversed(inner):
        machine.races.enter(frame)


def divide_threads(scope: str, machine: Machine, lanes: Lanes) -> None:
    """Insert frames of warps and warpgroups between threads and block, once."""
    loops = [f for f, _ in lanes.path() if f.thread.startswith("thread.")]
    if not loops or any(frame.kind in _THREADS for frame, _ in lanes.path()):
        return
    if len(loops) > 1:
        raise InterpreterError(f"a {scope} barrier needs one loop of threads, thread.x")
    threads = loops[0]
    block = threads.parent_flat
    for kind, size in _THREADS.items():
        group = block * -(-threads.extent // size) + threads.position // size
        forked = np.zeros(int(group.max()) + 1, np.int64)
        forked[group] = threads.parent_flat
        frame = Frame(threads.parent, forked, np.arange(forked.size), kind)
        machine.races.enter(frame)
        threads.parent, threads.parent_flat = frame, group
    lanes.forget_path()
