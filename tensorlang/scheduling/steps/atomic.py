"""`atomic`: updates that concurrent threads may make."""

from __future__ import annotations

from dataclasses import replace as with_fields

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import walk
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import block_of, find_block, replace, swap
from tensorlang.scheduling.primitives import primitive


@legality("an atomic update needs an initialized state")
def set_before(block: ir.Block) -> str | None:
    """The block does not initialize the state itself."""
    folds = any(axis.kind == "reduction" for axis in block.axes)
    if block.init != ir.seq() and (folds or block.init is not None):
        return f"block {block.name!r} starts its state; decompose_reduction first"
    return None


@primitive
def atomic(func: ir.Function, block: str) -> ir.Function:
    """Update memory atomically, so that iterations may run concurrently.

    The order is then up to the hardware: integer results do not depend on it, but
    floating-point results vary from run to run.

    Args:
        block: A block whose only write reduces one value by one operation; the state is
            initialized elsewhere.

    Raises:
        ScheduleError: it reduces in another way, or initializes its state itself.

    `atomic("y")`, after `decompose_reduction("y", "k")`:

        y[0] = 0.0                         y[0] = 0.0
        for k in range(8):          ->     for k in range(8):
            ...                                ...
            reduce(sum, y[0], x[vk])           atomic("add", y[0], x[vk])
    """
    path = find_block(func, block)
    old = block_of(path)
    update = _only_update(old)
    op = _operation(old, update.reducer)
    set_before(old)
    made = ir.AtomicUpdate(op, update.buffers[0], update.indices, update.values[0])
    return replace(path, with_fields(old, body=swap(old.body, update, made)))


def _only_update(block: ir.Block) -> ir.Reduce:
    found = [node for node in walk(block.body) if isinstance(node, ir.Reduce)]
    if len(found) != 1 or len(found[0].buffers) != 1:
        raise ScheduleError(
            f"block {block.name!r} does not reduce one value into one element; "
            "only such an update can be atomic"
        )
    return found[0]


def _operation(block: ir.Block, reducer: ir.Reducer) -> str:
    """The operation that a reducer applies."""
    combine = reducer.combine[0]
    sides = {reducer.left[0], reducer.right[0]}
    if (
        isinstance(combine, ir.Binary)
        and combine.op in ir.LANE_REDUCTIONS
        and {combine.a, combine.b} == sides
        and reducer.commutative
    ):
        return combine.op
    raise ScheduleError(
        f"block {block.name!r} reduces by {reducer.name!r}, which is not one of "
        f"{', '.join(ir.LANE_REDUCTIONS)}; only these can be atomic"
    )
