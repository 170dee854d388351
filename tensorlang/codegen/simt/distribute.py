"""Loop distribution: move loops over threads inside sequences.

    for r in bound(4, "thread.y"):             t = alloc(f32[4, 64])
        t = alloc(f32[64])                     for r in bound(4, "thread.y"):
        for j in bound(64, "thread.x"):            for j in bound(64, "thread.x"):
            t[j] = S                    ->             t[r, j] = S
        for j in bound(64, "thread.x"):        for r in bound(4, "thread.y"):
            y[r, j] = T                            for j in bound(64, "thread.x"):
                                                       y[r, j] = T

So each row of a block has its own threads along `thread.x`, and barriers are between
statements of the block.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, loops, names
from tensorlang.ir.visit import rebuild, rewriter, transform_statements

_THREAD = "thread."


def distribute(function: ir.Function) -> ir.Function:
    """The function with loops over threads perfectly nested.

    Raises:
        CodegenError: a loop over threads contains what cannot be distributed.
    """
    return transform_statements(function, _distributed)


def _distributed(stmt: ir.Stmt) -> ir.Stmt:
    if (
        isinstance(stmt, ir.For)
        and stmt.thread.startswith(_THREAD)
        and _holds(stmt.body)
    ):
        return _over(stmt, stmt.body)
    return stmt


def _holds(stmt: ir.Stmt) -> bool:
    """Whether there are loops over threads inside, imperfectly nested."""
    if isinstance(stmt, ir.For) and stmt.thread.startswith(_THREAD):
        return _holds(stmt.body)
    return any(loop.thread.startswith(_THREAD) for loop in loops(stmt))


def _over(thread: ir.For, stmt: ir.Stmt) -> ir.Stmt:
    """The loop distributed over the parts of a statement that have thread loops."""
    if not _holds(stmt):
        return replace(thread, body=stmt)
    match stmt:
        case ir.Seq():
            return _sequence(thread, stmt)
        case ir.For(kind="serial", extent=extent) if thread.var not in free_vars(
            extent
        ):
            return replace(stmt, body=_over(thread, stmt.body))
        case ir.For() if stmt.thread.startswith(_THREAD):
            return _over(thread, _over(stmt, stmt.body))
    raise CodegenError(
        f"loop {thread.var.name} over {thread.thread} holds a {type(stmt).__name__} "
        "around other loops over threads; split it, and bind the outer loop to blocks"
    )


def _sequence(thread: ir.For, stmts: ir.Seq) -> ir.Stmt:
    out: list[ir.Stmt] = []
    moved: dict[ir.Buffer, ir.Buffer] = {}
    for item in stmts.stmts:
        if isinstance(item, ir.Alloc):
            moved[item.buffer] = _for_each(item.buffer, thread)
            out.append(ir.Alloc(moved[item.buffer]))
        else:
            out.append(_over(thread, _placed(item, moved, thread.var)))
    return ir.seq(*out)


def _for_each(buffer: ir.Buffer, thread: ir.For) -> ir.Buffer:
    """A buffer expanded by the thread loop; in a layout, after the first result."""
    if not isinstance(thread.extent, ir.Const):
        raise CodegenError(
            f"loop {thread.var.name} is bound to {thread.thread}, but its extent "
            f"{thread.extent!r} varies; split it by a constant first"
        )
    layout = buffer.layout
    if layout is not None:
        taken = names(layout)
        own = next(f"at{n}" for n in range(len(taken) + 1) if f"at{n}" not in taken)
        first, *rest = layout.results
        var = ir.Var(own)
        layout = ir.IndexMap((var, *layout.vars), (first, var, *rest))
    return replace(buffer, shape=(thread.extent, *buffer.shape), layout=layout)


def _placed(stmt: ir.Stmt, moved: dict[ir.Buffer, ir.Buffer], at: ir.Expr) -> ir.Stmt:
    """The statement on the expanded buffers."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        new = rebuild(node, visit)
        if (
            isinstance(new, ir.Load | ir.Store | ir.AtomicUpdate)
            and new.buffer in moved
        ):
            indices = (at, *new.indices)
            return replace(new, buffer=moved[new.buffer], indices=indices)
        if isinstance(new, ir.Reduce) and new.buffers[0] in moved:
            buffers = tuple(moved[buffer] for buffer in new.buffers)
            return replace(new, buffers=buffers, indices=(at, *new.indices))
        return new

    return visit(stmt)
