"""Collectives: combine the values of all lanes of a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir import semantics
from tensorlang.ir.collectives import WARP
from tensorlang.ir.interpreter.state import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.nodes import Call


def evaluate_collective(node: Call, lanes: Lanes, args: Sequence[Array]) -> Array:
    """The result of a collective in each lane, from the arguments of its warp.

    Raises:
        InterpreterError: it is outside of a loop over threads, or lanes of a warp are
            missing (a divergent collective).
    """
    warp, lane = _warps(node, lanes)
    order = np.lexsort((lane, warp))
    whole = np.arange(lanes.count) % WARP
    if lanes.count % WARP or (lane[order] != whole).any():
        raise _missing(node, lanes, warp, lane)
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    rows = [_rows(arg, lanes.count)[order] for arg in args]
    grouped = [row.reshape(-1, WARP, *row.shape[1:]) for row in rows]
    result = semantics.call(node.name, *grouped)
    return result.reshape(-1, *result.shape[2:])[back]


def _rows(value: Array, count: int) -> Array:
    return np.broadcast_to(value, (count, *value.shape[1:]))


def _warps(node: Call, lanes: Lanes) -> tuple[Array, Array]:
    """The warp number of each lane, and its number in the warp.

    Lanes of loops within a thread form separate warps, one per iteration.
    """
    path = lanes.path()
    last = max(
        (n for n, (f, _) in enumerate(path) if f.thread.startswith("thread.")),
        default=None,
    )
    if last is None:
        raise InterpreterError(f"{node!r} is outside of a loop over thread.x")
    linear: Array = np.zeros(lanes.count, np.int64)
    group: Array = np.zeros(lanes.count, np.int64)
    threads = 1
    for frame, flat in path[: last + 1]:
        if frame.thread.startswith("thread."):
            linear = linear + threads * frame.position[flat]
            threads *= frame.extent
        else:
            group = group * frame.extent + frame.position[flat]
    outer, flat = path[last]
    group = group * outer.parent_flat.max(initial=0) + group + outer.parent_flat[flat]
    return group * -(-threads // WARP) + linear // WARP, linear % WARP


def _missing(node: Call, lanes: Lanes, warp: Array, lane: Array) -> InterpreterError:
    """The fault of the first incomplete warp."""
    for number in np.unique(warp):
        present = lane[warp == number]
        if present.size != WARP:
            at = int(np.flatnonzero(warp == number)[0])
            return fault(
                lanes,
                at,
                f"divergent collective: {WARP - present.size} of {WARP} lanes of a "
                f"warp do not reach {node!r}",
            )
    return fault(lanes, 0, f"a warp comes more than once to {node!r}")
