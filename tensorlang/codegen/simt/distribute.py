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
from tensorlang.ir.contents import free_vars, loops, names
from tensorlang.ir.nodes import (
    Alloc,
    AtomicUpdate,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    IndexMap,
    Load,
    Node,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.visit import rebuild, rewriter, transform_statements

_THREAD = "thread."


def distribute(function: Function) -> Function:
    """The function with loops over threads perfectly nested.

    Raises:
        CodegenError: a loop over threads contains what cannot be distributed.
    """
    return transform_statements(function, _distributed)


def _distributed(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.thread.startswith(_THREAD) and _holds(stmt.body):
        return _over(stmt, stmt.body)
    return stmt


def _holds(stmt: Stmt) -> bool:
    """Whether there are loops over threads inside, imperfectly nested."""
    if isinstance(stmt, For) and stmt.thread.startswith(_THREAD):
        return _holds(stmt.body)
    return any(loop.thread.startswith(_THREAD) for loop in loops(stmt))


def _over(thread: For, stmt: Stmt) -> Stmt:
    """The loop distributed over the parts of a statement that have thread loops."""
    if not _holds(stmt):
        return replace(thread, body=stmt)
    match stmt:
        case Seq():
            return _sequence(thread, stmt)
        case For(kind="serial", extent=extent) if thread.var not in free_vars(extent):
            return replace(stmt, body=_over(thread, stmt.body))
        case For() if stmt.thread.startswith(_THREAD):
            return _over(thread, _over(stmt, stmt.body))
    raise CodegenError(
        f"loop {thread.var.name} over {thread.thread} holds a {type(stmt).__name__} "
        "around other loops over threads; split it, and bind the outer loop to blocks"
    )


def _sequence(thread: For, stmts: Seq) -> Stmt:
    out: list[Stmt] = []
    moved: dict[Buffer, Buffer] = {}
    for item in stmts.stmts:
        if isinstance(item, Alloc):
            moved[item.buffer] = _for_each(item.buffer, thread)
            out.append(Alloc(moved[item.buffer]))
        else:
            out.append(_over(thread, _placed(item, moved, thread.var)))
    return seq(*out)


def _for_each(buffer: Buffer, thread: For) -> Buffer:
    """A buffer expanded by the thread loop; in a layout, after the first result."""
    if not isinstance(thread.extent, Const):
        raise CodegenError(
            f"loop {thread.var.name} is bound to {thread.thread}, but its extent "
            f"{thread.extent!r} varies; split it by a constant first"
        )
    layout = buffer.layout
    if layout is not None:
        taken = names(layout)
        own = next(f"at{n}" for n in range(len(taken) + 1) if f"at{n}" not in taken)
        first, *rest = layout.results
        var = Var(own)
        layout = IndexMap((var, *layout.vars), (first, var, *rest))
    return replace(buffer, shape=(thread.extent, *buffer.shape), layout=layout)


def _placed(stmt: Stmt, moved: dict[Buffer, Buffer], at: Expr) -> Stmt:
    """The statement on the expanded buffers."""

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Buffer):
            return node
        new = rebuild(node, visit)
        if isinstance(new, Load | Store | AtomicUpdate) and new.buffer in moved:
            indices = (at, *new.indices)
            return replace(new, buffer=moved[new.buffer], indices=indices)
        if isinstance(new, Reduce) and new.buffers[0] in moved:
            buffers = tuple(moved[buffer] for buffer in new.buffers)
            return replace(new, buffers=buffers, indices=(at, *new.indices))
        return new

    return visit(stmt)
