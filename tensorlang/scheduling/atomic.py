"""Updates that any threads may make at once: `atomic`."""

from __future__ import annotations

from dataclasses import replace as with_fields

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import (
    LANE_REDUCTIONS,
    AtomicUpdate,
    Binary,
    Block,
    Function,
    Node,
    Reduce,
    Reducer,
    seq,
)
from tensorlang.ir.visit import rebuild, rewriter, walk
from tensorlang.scheduling.legality import legality
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.tree import block_of, find_block, replace


@legality("an atomic update adds to a state that was set before")
def set_before(block: Block) -> str | None:
    """The block does not start the state itself."""
    folds = any(axis.kind == "reduction" for axis in block.axes)
    if block.init != seq() and (folds or block.init is not None):
        return f"block {block.name!r} starts its state; decompose_reduction first"
    return None


@primitive
def atomic(func: Function, block: str) -> Function:
    """Let a block fold into memory indivisibly, so that any iterations may at once.

    The order is then left to the hardware. Of integers the result does not depend on
    it; of floats it does, from run to run.

    Args:
        func: The function.
        block: A block whose only statement that writes folds one number by one
            operation; the state is set elsewhere.

    Raises:
        ScheduleError: it folds in another way, or starts its state itself.

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
    made = AtomicUpdate(op, update.buffers[0], update.indices, update.values[0])

    @rewriter
    def visit(node: Node) -> Node:
        if node is update:
            return made
        return rebuild(node, visit)

    return replace(path, with_fields(old, body=visit(old.body)))


def _only_update(block: Block) -> Reduce:
    found = [node for node in walk(block.body) if isinstance(node, Reduce)]
    if len(found) != 1 or len(found[0].buffers) != 1:
        raise ScheduleError(
            f"block {block.name!r} does not fold one number into one place; "
            "only such an update is atomic"
        )
    return found[0]


def _operation(block: Block, reducer: Reducer) -> str:
    """The operation that a reducer folds by."""
    combine = reducer.combine[0]
    sides = {reducer.left[0], reducer.right[0]}
    if (
        isinstance(combine, Binary)
        and combine.op in LANE_REDUCTIONS
        and {combine.a, combine.b} == sides
        and reducer.commutative
    ):
        return combine.op
    raise ScheduleError(
        f"block {block.name!r} folds by {reducer.name!r}, which is not one of "
        f"{', '.join(LANE_REDUCTIONS)}; only these are atomic"
    )
