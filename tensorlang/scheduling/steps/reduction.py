"""`decompose_reduction`: initialize a reduction in a nest of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, names, reads, touches, writes
from tensorlang.ir.integers.digits import fixed
from tensorlang.ir.simplification.conditions import conjunction
from tensorlang.ir.visit import fresh, substitute, walk
from tensorlang.scheduling.analysis.coverage import Bound, bounds_of, guards_of
from tensorlang.scheduling.analysis.extents import known_without, steady
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import loaded
from tensorlang.scheduling.analysis.tiles import loop_kind
from tensorlang.scheduling.analysis.tree import (
    Path,
    acting,
    block_of,
    called,
    constant,
    enclosing_loops,
    find_block,
    replace,
)
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.partials import FOLDED


def updates_of(block: ir.Block) -> tuple[ir.Reduce, ...]:
    """The reductions in a block that initializes its own state.

    Raises:
        ScheduleError: it reduces nothing, or its state is initialized elsewhere.
    """
    found = tuple(n for n in walk(block.body) if isinstance(n, ir.Reduce))
    folds = any(axis.kind == "reduction" for axis in block.axes)
    state = {buffer for update in found for buffer in update.buffers}
    if found and folds and block.init != ir.seq() and not state & loaded(block.body):
        return found
    why = "has its init already" if folds and found else "has no reduction"
    raise ScheduleError(f"block {block.name!r} {why}; there is nothing to decompose")


def position(path: Path, loop: str) -> int:
    """The position of a loop in the path to a block."""
    name = loop.rpartition("/")[2]
    for depth, node in enumerate(path):
        if isinstance(node, ir.For) and node.var.name == name:
            return depth
    around = ", ".join(outer.var.name for outer in enclosing_loops(path)) or "none"
    raise ScheduleError(
        f"loop {loop!r} is not around block {block_of(path).name!r}; "
        f"its loops are: {around}"
    )


@legality("the init precedes the whole reduction")
def starts_before(path: Path, depth: int) -> str | None:
    """No loop around the init belongs to the reduction."""
    block = block_of(path)
    for loop in enclosing_loops(path[: depth + 1]):
        if loop_kind(block, loop.var) in FOLDED:
            return (
                f"loop {loop.var.name!r} reduces block {block.name!r} and is outside "
                f"of the init; decompose before {loop.var.name!r}"
            )
    return None


@legality("nothing else uses the state of the init")
def sole_writer(path: Path, depth: int, buffers: frozenset[ir.Buffer]) -> str | None:
    """No other block under the loop uses the reduction's buffers."""
    name = block_of(path).name
    for other in acting(path[depth]):
        if other is not path[-1] and any(touches(other, buffer) for buffer in buffers):
            return (
                f"{called(other)} uses the result of {name!r} under the same "
                "loop; decompose before a loop further in"
            )
    return None


@legality("a decomposed reduction is initialized once")
def started_once(path: Path, depth: int, updates: Sequence[ir.Reduce]) -> str | None:
    """Under the loop, no state is initialized again or gets one of its terms twice."""
    block = block_of(path)
    values = {axis.var: axis.value for axis in block.axes}
    below = {n.var: constant(n.extent) for n in path[depth:] if isinstance(n, ir.For)}
    told = [a.value for a in block.axes if a.kind in ("reduction", "disjoint")]
    for update in updates:
        places = [substitute(index, values) for index in update.indices]
        agreed = fixed([(value, value) for value in (*places, *told)], below)
        if agreed is not None and not agreed >= below.keys():
            again = next(var.name for var in below if var not in agreed)
            return (
                f"iterations of loop {again!r} may start the same state of block "
                f"{block.name!r} again; decompose before a loop further in"
            )
    return None


@legality("the operands of an init are available before")
def init_stays(path: Path, depth: int) -> str | None:
    """Nothing under the loop writes the operands of the block's init."""
    block = block_of(path)
    read = frozenset[ir.Buffer]() if block.init is None else reads(block.init)
    for buffer in read & writes(path[depth]):
        return (
            f"the init of block {block.name!r} reads {buffer.name!r}, which is written "
            "under the loop; decompose before a loop further in"
        )
    return None


@legality("only bounds of axes guard a decomposed reduction")
def guarded_by_ends(path: Path) -> str | None:
    """Each condition involves spatial loops only, or bounds a reduction axis."""
    block, loops = block_of(path), enclosing_loops(path)
    for cond in guards_of(block):
        if folded(block, cond, loops) and not any(
            _ends_fold(block, bound, loops) for bound in bounds_of(block, cond)
        ):
            return (
                f"{cond!r} guards block {block.name!r} and depends on its reduction; "
                "only `axis < end` may"
            )
    return None


def _ends_fold(block: ir.Block, bound: Bound, loops: Sequence[ir.For]) -> bool:
    """Whether a bound on a reduction axis does not depend on the reduction."""
    kind = next(axis.kind for axis in block.axes if axis.var == bound.axis)
    return kind in FOLDED and not any(
        loop.var in bound.limit.vars and loop_kind(block, loop.var) in FOLDED
        for loop in loops
    )


def folded(block: ir.Block, cond: ir.Expr, loops: Sequence[ir.For]) -> bool:
    """Whether a condition depends on a loop or axis of the reduction."""
    used = free_vars(cond)
    axes = {axis.var for axis in block.axes if axis.kind in FOLDED}
    return bool(used & axes) or any(
        loop.var in used and loop_kind(block, loop.var) in FOLDED for loop in loops
    )


@primitive
def decompose_reduction(
    func: ir.Function, block: str, loop: str
) -> tuple[ir.Function, str]:
    """Initialize a reduction's state in a nest of its own, before `loop`.

    Args:
        block: A block with reduction axes.
        loop: A loop around it, outside all other loops of the reduction.

    Returns:
        The function and the name of the init block. The update keeps an empty `init`.

    Raises:
        ScheduleError: a loop of the reduction is outside `loop`, another block uses the
            result there, or a condition mixes in the reduction.

    Before:

        for i in range(4):
            for k in range(8):
                with block("y", vi=spatial(4, i), vk=reduction(8, k)):
                    reduce(sum, y[vi], x[vi, vk])

    After `decompose_reduction("y", "k")`:

        for i in range(4):
            with block("y_init", vi=spatial(4, i)):
                y[vi] = 0.0
            for k in range(8):
                with block("y", vi=spatial(4, i), vk=reduction(8, k)):
                    with init():
                        pass
                    reduce(sum, y[vi], x[vi, vk])
    """
    path = find_block(func, block)
    old, depth = block_of(path), position(path, loop)
    updates = updates_of(old)
    starts_before(path, depth)
    sole_writer(path, depth, writes(old))
    started_once(path, depth, updates)
    init_stays(path, depth)
    guarded_by_ends(path)
    _need_what_stays(path[depth:], writes(old))
    steady([n for n in path[depth:] if isinstance(n, ir.For)], path[depth])  # type: ignore[arg-type]
    taken = names(func)
    name = fresh(f"{block}_init", taken)
    made = dataclasses.replace(
        spatial_part(path), name=name, body=start_of(old, updates)
    )
    start = renest(path[depth:], made, taken)
    update = dataclasses.replace(old, init=ir.seq())
    changed = replace(path, update)
    return _insert_before(changed, block, depth, start), name


def need_loops_only(below: Path) -> None:
    """Raise a `ScheduleError` unless only loops are around the block."""
    block = block_of(below).name
    for parent in below[:-1]:
        named = isinstance(parent, ir.Seq) and any(
            isinstance(stmt, (ir.Let, ir.Alloc)) for stmt in parent.stmts
        )
        if named or not isinstance(parent, (ir.For, ir.Seq)):
            raise ScheduleError(
                f"block {block!r} is under more than loops there (a condition, a "
                "let or an allocation); choose a loop further in"
            )


def _need_what_stays(below: Path, state: frozenset[ir.Buffer]) -> None:
    """Raise a `ScheduleError` if the init would need what is defined inside the loop.

    Allocations inside the loop do not matter, unless they hold the state.
    """
    for parent in below[:-1]:
        kept = isinstance(parent, ir.Seq) and not any(
            isinstance(stmt, ir.Let)
            or (isinstance(stmt, ir.Alloc) and stmt.buffer in state)
            for stmt in parent.stmts
        )
        if not kept and not isinstance(parent, ir.For):
            need_loops_only(below)


def start_of(block: ir.Block, updates: Sequence[ir.Reduce]) -> ir.Stmt:
    """The initialization: the block's own init, or the reducers' identities."""
    if block.init is not None:
        return block.init
    return ir.seq(
        *(
            ir.Store(buffer, update.indices, identity)
            for update in updates
            for buffer, identity in zip(
                update.buffers, update.reducer.identity, strict=True
            )
        )
    )


def spatial_part(path: Path) -> ir.Block:
    """The block without its reduction axes and the conditions on them."""
    block = block_of(path)
    kept = [
        cond
        for cond in guards_of(block)
        if not folded(block, cond, enclosing_loops(path))
    ]
    axes = tuple(axis for axis in block.axes if axis.kind not in FOLDED)
    return dataclasses.replace(block, axes=axes, where=conjunction(kept), init=None)


def renest(below: Path, block: ir.Block, taken: set[str]) -> ir.Stmt:
    """The block in new loops, like those on the path that drive its axes."""
    used = frozenset().union(*(free_vars(axis.value) for axis in block.axes))
    loops = [loop for loop in below if isinstance(loop, ir.For) and loop.var in used]
    gone = [n for n in below if isinstance(n, ir.For) and n not in loops]
    known_without(loops, gone)
    new: dict[ir.Var, ir.Expr] = {
        loop.var: ir.Var(fresh(loop.var.name, taken), loop.var.dtype) for loop in loops
    }
    made: ir.Stmt = block
    for loop in reversed(loops):
        made = dataclasses.replace(loop, body=made)
    return substitute(made, new)


def _insert_before(
    func: ir.Function, block: str, depth: int, new: ir.Stmt
) -> ir.Function:
    path = find_block(func, block)
    target = path[depth]
    assert isinstance(target, ir.Stmt)
    return replace(path[: depth + 1], ir.seq(new, target))
