"""Common subexpressions of straight-line code as variables.

    y[b * 256 + t] = x[b * 256 + t]     ->     at: i64 = b * 256 + t
                                               y[at] = x[at]

Limited to expressions without loads in consecutive statements. Compilers do this
anyway; the purpose is readable source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.visit import children, holds, rebuild, rewriter

_RUN: Final = (ir.Let, ir.Store, ir.Evaluate, ir.AtomicUpdate)


def bind_common(function: ir.Function, names: Names) -> ir.Function:
    """The function with common subexpressions bound to variables."""
    return replace(function, body=_visit(function.body, names))


def _visit(stmt: ir.Stmt, names: Names) -> ir.Stmt:
    match stmt:
        case ir.Seq():
            return ir.seq(*_runs(stmt.stmts, names))
        case ir.Store():
            return ir.seq(*_named([stmt], names))
        case ir.For() | ir.If() | ir.While():
            return rebuild(
                stmt, lambda c: _visit(c, names) if isinstance(c, ir.Stmt) else c
            )
    return stmt


def _runs(stmts: Iterable[ir.Stmt], names: Names) -> Iterable[ir.Stmt]:
    """The statements, with each run of simple ones rewritten."""
    run: list[ir.Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, _RUN):
            run.append(stmt)
            continue
        yield from _named(run, names)
        run = []
        yield _visit(stmt, names)
    yield from _named(run, names)


def _named(run: list[ir.Stmt], names: Names) -> list[ir.Stmt]:
    """A run of statements with a `Let` before the first use of each repetition."""
    chosen = _repeated(run)
    if not chosen:
        return run
    made: list[ir.Stmt] = []
    known: dict[ir.Node, ir.Var] = {}

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if node in known:
            return known[node]
        new = rebuild(node, visit)
        if isinstance(new, ir.Expr) and node in chosen:
            var = names.var("at" if new.dtype.name == "i64" else "t", new.dtype)
            made.append(ir.Let(var, new))
            known[node] = var
            return var
        return new

    for stmt in run:
        made.append(visit(stmt))  # noqa: PERF401 - visiting appends, too
    return made


def _repeated(run: list[ir.Stmt]) -> set[ir.Expr]:
    """Compound expressions without loads that occur more than once in a run."""
    uses: Counter[ir.Expr] = Counter()
    values = {stmt.value for stmt in run if isinstance(stmt, ir.Let)}

    def count(node: ir.Node) -> None:
        if isinstance(node, ir.Expr) and _worth(node):
            uses[node] += 1
            if uses[node] > 1:
                return
        for child in children(node):
            if not isinstance(child, ir.Buffer):
                count(child)

    for stmt in run:
        count(stmt)
    return {expr for expr, times in uses.items() if times > 1 and expr not in values}


def _worth(expr: ir.Expr) -> bool:
    if not isinstance(expr, (ir.Binary, ir.Call)):
        return False
    if isinstance(expr, ir.Call) and expr.name in COPY_SYNCS:
        return False
    operands = [c for c in children(expr) if not isinstance(c, (ir.Const, ir.Var))]
    simple = not operands and isinstance(expr, ir.Binary) and expr.op in ("add", "sub")
    return not simple and not holds(expr, ir.Load)
