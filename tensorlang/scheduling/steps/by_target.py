"""`by_target`: partition indirect updates into groups with disjoint targets."""

from __future__ import annotations

import dataclasses

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, names, reads, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import fresh, holds, walk
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import block_of, find_block, nest_of, replace
from tensorlang.scheduling.primitives import primitive


@primitive
def by_target(
    func: ir.Function, block: str, groups: int, of: str | None = None
) -> tuple[ir.Function, str]:
    """Run all iterations of a block once per group, each group for its own targets.

    Updates at data-dependent indices must run in order. With the loop over groups
    outermost, they do for each target, while groups may run concurrently: no two of
    them update the same target.

    Args:
        block: A block with an ordered axis and one store at a data-dependent index.
        groups: The number of groups.
        of: If the block stores to several buffers, the one whose targets are grouped.
            All its other stores are declared disjoint, which the interpreter checks.

    Returns:
        The function, and the name of the loop over groups.

    Raises:
        ScheduleError: the block has several such stores, or none.

    Before:

        for p in range(8):
            with block("add", vp=ordered(8, p)):
                row: i64 = ids[vp]
                total[row] = total[row] + x[vp]

    After `by_target("add", 4)`:

        for group in range(4):
            for p in range(8):
                with block("add", vgroup=disjoint(4, group), vp=ordered(8, p)):
                    row: i64 = ids[vp]
                    if row % 4 == vgroup:
                        total[row] = total[row] + x[vp]
    """
    if groups < 1:
        raise ScheduleError(f"by_target: {groups} groups are none")
    path = find_block(func, block)
    old = block_of(path)
    store = _grouped(old, of)
    one_update(old, of)
    own_place_only(old, store)
    place = _place(old, store)
    taken = names(func)
    loop, var = ir.Var(fresh("group", taken), i64), ir.Var(fresh("vgroup", taken), i64)
    axis = ir.Axis(var, "disjoint", ir.as_expr(groups), loop)
    body = _only_where(old.body, (place % groups).equal(var), store.buffer)
    made = dataclasses.replace(old, axes=(axis, *old.axes), body=body)
    inner = replace(path, made)
    top = nest_of(find_block(inner, block))
    nest = top[-1]
    assert isinstance(nest, ir.Stmt)
    return replace(top, ir.For(loop, ir.as_expr(groups), "serial", nest)), loop.name


def _grouped(block: ir.Block, of: str | None) -> ir.Store:
    """The store whose targets are grouped."""
    found = _stores(block, of)
    ordered = any(axis.kind == "ordered" for axis in block.axes)
    if not found or not ordered or block.init is not None:
        raise ScheduleError(
            f"by_target: block {block.name!r} has no store{f' to {of}' if of else ''} "
            "in the order of an axis"
        )
    return found[0]


def _stores(block: ir.Block, of: str | None) -> list[ir.Store]:
    stores = (n for n in walk(block.body) if isinstance(n, ir.Store))
    return [s for s in stores if of is None or s.buffer.name == of]


@legality("groups partition the targets of one update")
def one_update(block: ir.Block, of: str | None) -> str | None:
    """One of several stores is selected, and there are no reductions besides."""
    found = _stores(block, of)
    if len(found) != 1:
        return (
            f"by_target: block {block.name!r} has {len(found)} stores to group; name "
            "the buffer that only one of them writes"
        )
    if any(isinstance(n, ir.Reduce | ir.AtomicUpdate) for n in walk(block.body)):
        return (
            f"by_target: block {block.name!r} also reduces, which groups would reorder"
        )
    return None


@legality("a grouped update reads only its own target")
def own_place_only(block: ir.Block, store: ir.Store) -> str | None:
    """What the block writes, it reads only at the index of its store."""
    loads = [n for n in walk(block.body) if isinstance(n, ir.Load)]
    others = writes(block) - {store.buffer}
    for load in loads:
        elsewhere = load.buffer == store.buffer and load.indices != store.indices
        if elsewhere or load.buffer in others:
            return (
                f"by_target: block {block.name!r} does not update "
                f"{store.buffer.name!r} at one place from data: it reads {load!r}, "
                "which another group may write"
            )
    return None


def _place(block: ir.Block, store: ir.Store) -> ir.Expr:
    """The data-dependent index at which a block updates memory."""
    data = _from_data(block)
    found = [i for i in store.indices if holds(i, ir.Load) or free_vars(i) & data]
    if len(found) != 1:
        raise ScheduleError(
            f"by_target: block {block.name!r} does not update {store.buffer.name!r} at "
            "one place from data"
        )
    return found[0]


def _from_data(block: ir.Block) -> set[ir.Var]:
    """The lets that depend on loaded values."""
    data: set[ir.Var] = set()
    for node in walk(block.body):
        if isinstance(node, ir.Let) and (
            holds(node.value, ir.Load) or free_vars(node.value) & data
        ):
            data.add(node.var)
    return data


def _only_where(stmt: ir.Stmt, cond: ir.Expr, buffer: ir.Buffer) -> ir.Stmt:
    """The statement, accessing the updated buffer only under a condition."""
    stmts = stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)
    count = next(n for n, s in enumerate(stmts) if _goes_to(s, buffer))
    first, rest = stmts[:count], ir.seq(*stmts[count:])
    late = free_vars(cond) & {n.var for n in walk(rest) if isinstance(n, ir.Let)}
    if late:
        name = min(var.name for var in late)
        raise ScheduleError(
            f"by_target: the place is named by {name!r}, after the first use of memory "
            "that the block writes; name it before"
        )
    return ir.seq(*first, _if(cond, rest))


def _if(cond: ir.Expr, stmt: ir.Stmt) -> ir.Stmt:
    if isinstance(stmt, ir.If) and stmt.orelse is None:
        return ir.If(cond & stmt.cond, stmt.then)
    return ir.If(cond, stmt)


def _goes_to(stmt: ir.Stmt, buffer: ir.Buffer) -> bool:
    stores = any(isinstance(node, ir.Store) for node in walk(stmt))
    return stores or buffer in reads(stmt)
