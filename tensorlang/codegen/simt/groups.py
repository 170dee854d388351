"""A CPU team as work-groups of one work-item, for OpenCL on CPUs.

    for i in parallel(1000):     ->     for group in bound(32, "block.x"):
        t = alloc(f32[4096])                t = alloc(f32[4096], scope="shared")
        S(i)                                for item in bound(1, "thread.x"):
                                                for i in range(min(32, ...)):
                                                    S(group * 32 + i)

There are several groups per thread, for load balance, each with consecutive iterations.
Scratch too large for a stack is local memory, which CPU drivers keep per thread, so it
stays in the thread's cache.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.codegen.folding import add, make, maximum, mul, sub
from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.host import PRIVATE_BYTES
from tensorlang.codegen.simt.launches import make_launches
from tensorlang.codegen.simt.threads import size_in_bytes
from tensorlang.codegen.team import has_parallel, serial
from tensorlang.codegen.vectors.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, reads
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import (
    rebuild_statements,
    replace_buffers,
    transform_statements,
)
from tensorlang.targets import Target

_GROUPS: Final = 16  # per thread


def make_groups(function: ir.Function, names: Names, target: Target) -> ir.Function:
    """The function as launches of groups that share its parallel loops.

    If the host would have to read what a launch computes, everything is one launch of
    one work-item.
    """
    state = _Groups(names, target.threads * _GROUPS, target.shared_bytes)
    try:
        shared = replace(function, body=state.visit(function.body))
        return make_launches(shared, names)
    except CodegenError:
        whole = state.launch(ir.as_expr(1), serial(function.body))
        return make_launches(replace(function, body=whole), names)


class _Groups:
    """Binds parallel loops to at most `most` groups with `local_bytes` bytes each."""

    def __init__(self, names: Names, most: int, local_bytes: int) -> None:
        self.names = names
        self.most = most
        self.local_bytes = local_bytes

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement of the host program, its outermost parallel loops bound."""
        match stmt:
            case ir.For(kind="parallel"):
                return self.group(stmt)
            case _ if not has_parallel(stmt):
                return stmt
            case ir.While() | ir.For(kind="vectorized" | "unrolled"):
                return serial(stmt)
            case ir.For(extent=decided) | ir.If(cond=decided) if reads(decided):
                return serial(stmt)
            case _:
                return rebuild_statements(stmt, self.visit)

    def group(self, loop: ir.For) -> ir.Stmt:
        """Divide a parallel loop into chunks, one per group."""
        var, count = loop.var, loop.extent.cast(i64)
        group = self.names.var("group", i64)
        lets, each, groups = self.shares(count)
        if isinstance(each, ir.Const) and each.value == 1:
            body = specialise(serial(loop.body), {var: group.cast(var.dtype)}, {})
            return ir.seq(*lets, self.launch(groups, body, group))
        first = self.names.var("first", i64)
        length = self.shortest(count, each, first)
        position = add(first, ir.Var(var.name, i64)).cast(var.dtype)
        body = specialise(serial(loop.body), {var: position}, {})
        loop = ir.For(ir.Var(var.name, i64), length, "serial", body)
        inner: ir.Stmt = loop
        if not isinstance(length, ir.Const):
            size = self.names.var("count", i64)
            inner = ir.seq(ir.Let(size, length), replace(loop, extent=size))
        inner = ir.seq(ir.Let(first, mul(group, each)), inner)
        return ir.seq(*lets, self.launch(groups, inner, group))

    def shares(self, count: ir.Expr) -> tuple[list[ir.Stmt], ir.Expr, ir.Expr]:
        """Lets for the host, the iterations per group, and the number of groups."""
        if isinstance(count, ir.Const):
            size = max(-(-int(count.value) // self.most), 1)
            return [], ir.as_expr(size), ir.as_expr(-(-int(count.value) // size))
        each = self.names.var("each", i64)
        share = maximum(_divided_up(count, ir.as_expr(self.most)), ir.as_expr(1))
        return [ir.Let(each, share)], each, _divided_up(count, each)

    def shortest(self, count: ir.Expr, each: ir.Expr, first: ir.Expr) -> ir.Expr:
        """The iterations of a group; the last one may have fewer."""
        match count, each:
            case ir.Const(value=whole), ir.Const(value=part) if (
                int(whole) % int(part) == 0
            ):
                return each
        return make("min", each, sub(count, first))

    def launch(
        self, groups: ir.Expr, body: ir.Stmt, group: ir.Var | None = None
    ) -> ir.Stmt:
        """Groups of one work-item, with larger scratch in local memory."""
        own, body = self.local(body)
        item = self.names.var("item", i64)
        alone = ir.For(item, ir.as_expr(1), "bound", body, "thread.x")
        inside = ir.seq(*map(ir.Alloc, own), alone)
        if group is None:
            group = self.names.var("group", i64)
        return ir.For(group, groups, "bound", inside, "block.x")

    def local(self, body: ir.Stmt) -> tuple[list[ir.Buffer], ir.Stmt]:
        """Scratch moved to local memory as far as it fits, and the body using it."""
        moved: dict[ir.Buffer, ir.Buffer] = {}
        left = self.local_bytes
        for buffer in allocations(body):
            size = size_in_bytes(buffer)
            if size is not None and PRIVATE_BYTES < size <= left:
                moved[buffer] = replace(buffer, scope="shared")
                left -= size
        return list(moved.values()), _without(replace_buffers(body, moved), moved)


def _without(body: ir.Stmt, moved: dict[ir.Buffer, ir.Buffer]) -> ir.Stmt:
    """A body without the allocations of the moved buffers."""
    gone = set(moved.values())

    def left(stmt: ir.Stmt) -> ir.Stmt:
        return (
            ir.Seq(()) if isinstance(stmt, ir.Alloc) and stmt.buffer in gone else stmt
        )

    return transform_statements(body, left)


def _divided_up(count: ir.Expr, by: ir.Expr) -> ir.Expr:
    return make("floordiv", add(count, sub(by, ir.as_expr(1))), by)
