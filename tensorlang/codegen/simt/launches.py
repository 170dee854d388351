"""Turn a function into a host program whose launches are its outermost bound nests.

    t = alloc(f32[n])                        t = alloc(f32[n])
    for i in bound(m, "block.x"): S     ->   for i in bound(m, "block.x"): S
    for k in range(3):                       for k in range(3):
        for i in bound(m, "block.x"): T          for i in bound(m, "block.x"): T
    y[0] = t[0]                              for block in bound(1, "block.x"):
                                                 y[0] = t[0]

Statements without bound loops become launches of a single thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.threads import BLOCKS, has_bound, share_among_threads
from tensorlang.codegen.team import serial
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import reads
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import holds, replace_buffers, substitute


def make_launches(function: ir.Function, names: Names) -> ir.Function:
    """The function as allocations, host control flow, and launches.

    Raises:
        CodegenError: the host would have to read what a launch computes, or a nest is
            bound in an unsupported way.
    """
    function = replace(function, body=serial(function.body))
    return replace(function, body=ir.seq(*_Host(names).run(function.body)))


def _is_for_threads(value: ir.Expr) -> bool:
    """Whether only devices can compute a value: a float, or a vector such as a mask."""
    kept = value.dtype.is_float or value.dtype.lanes > 1
    return kept and not holds(value, ir.Load)


def is_launch(stmt: ir.Stmt) -> bool:
    """Whether a statement of a host program is a launch."""
    return isinstance(stmt, ir.For) and stmt.kind == "bound"


class _Host:
    """Walks the host program; other statements are gathered into launches."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def run(self, stmt: ir.Stmt) -> list[ir.Stmt]:
        """The host statements of a part of the program."""
        out: list[ir.Stmt] = []
        alone: list[ir.Stmt] = []
        inside: dict[ir.Var, ir.Expr] = {}
        for given in stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,):
            item = substitute(given, inside)
            if isinstance(item, ir.Let) and _is_for_threads(item.value):
                inside[item.var] = item.value
                continue
            if not isinstance(item, (ir.Alloc, ir.Let)) and not has_bound(item):
                alone.append(item)
                continue
            out += self.single(alone)
            alone = []
            out.append(self.statement(item))
        return _global_scratch([*out, *self.single(alone)])

    def single(self, alone: list[ir.Stmt]) -> list[ir.Stmt]:
        """A single-threaded launch of these statements, if any."""
        if not alone:
            return []
        var = self.names.var("block", i64)
        made = self.launch(
            ir.For(var, ir.as_expr(1), "bound", ir.seq(*alone), "block.x")
        )
        some = _something_to_do(alone)
        return [made if some is None else ir.If(some, made)]

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        """One statement that the host runs or launches."""
        match stmt:
            case ir.For(kind="bound"):
                return self.launch(stmt)
            case ir.Alloc():
                return stmt
            case ir.Let(value=decided):
                made: ir.Stmt = stmt
            case ir.For(extent=decided):
                made = replace(stmt, kind="serial", body=ir.seq(*self.run(stmt.body)))
            case ir.If(cond=decided):
                orelse = None if stmt.orelse is None else ir.seq(*self.run(stmt.orelse))
                made = ir.If(decided, ir.seq(*self.run(stmt.then)), orelse)
            case _:
                raise CodegenError(
                    f"a {type(stmt).__name__} around bound loops would have the host "
                    "wait for each launch; bind a loop around it"
                )
        if reads(decided):
            raise CodegenError(
                f"the host cannot read {decided!r} between launches; bind a loop around"
            )
        return made

    def launch(self, nest: ir.Stmt) -> ir.Stmt:
        """A launch: block loops, then thread loops, then the body."""
        around: list[ir.For] = []
        while isinstance(nest, ir.For) and nest.thread in BLOCKS:
            around.append(nest)
            nest = nest.body
        if has_bound(nest, BLOCKS):
            raise CodegenError("loops over blocks must be perfectly nested")
        if not around:
            var = self.names.var("block", i64)
            around = [ir.For(var, ir.as_expr(1), "bound", nest, "block.x")]
        for inner in reversed(around):
            nest = replace(inner, body=share_among_threads(nest, self.names))
            break
        for outer in reversed(around[:-1]):
            nest = replace(outer, body=nest)
        return nest


def _something_to_do(stmts: Sequence[ir.Stmt]) -> ir.Expr | None:
    """Whether any loop runs, if the host can tell: tails are often empty."""
    tests: list[ir.Expr] = []
    for stmt in stmts:
        if not isinstance(stmt, ir.For) or isinstance(stmt.extent, ir.Const):
            return None
        if reads(stmt.extent):
            return None
        tests.append(stmt.extent > ir.Const(0, stmt.extent.dtype))
    return reduce(or_, tests) if tests else None


def _global_scratch(stmts: list[ir.Stmt]) -> list[ir.Stmt]:
    """Move allocations between launches to global memory."""
    moved = {
        stmt.buffer: replace(stmt.buffer, scope="global")
        for stmt in stmts
        if isinstance(stmt, ir.Alloc) and stmt.buffer.scope != "global"
    }
    return [replace_buffers(stmt, moved) for stmt in stmts] if moved else stmts
