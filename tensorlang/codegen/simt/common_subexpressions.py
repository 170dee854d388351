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
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.nodes import (
    AtomicUpdate,
    Binary,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Node,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    seq,
)
from tensorlang.ir.visit import children, holds, rebuild, rewriter

_RUN: Final = (Let, Store, Evaluate, AtomicUpdate)


def bind_common(function: Function, names: Names) -> Function:
    """The function with common subexpressions bound to variables."""
    return replace(function, body=_visit(function.body, names))


def _visit(stmt: Stmt, names: Names) -> Stmt:
    match stmt:
        case Seq():
            return seq(*_runs(stmt.stmts, names))
        case Store():
            return seq(*_named([stmt], names))
        case For() | If() | While():
            return rebuild(
                stmt, lambda c: _visit(c, names) if isinstance(c, Stmt) else c
            )
    return stmt


def _runs(stmts: Iterable[Stmt], names: Names) -> Iterable[Stmt]:
    """The statements, with each run of simple ones rewritten."""
    run: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, _RUN):
            run.append(stmt)
            continue
        yield from _named(run, names)
        run = []
        yield _visit(stmt, names)
    yield from _named(run, names)


def _named(run: list[Stmt], names: Names) -> list[Stmt]:
    """A run of statements with a `Let` before the first use of each repetition."""
    chosen = _repeated(run)
    if not chosen:
        return run
    made: list[Stmt] = []
    known: dict[Node, Var] = {}

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Buffer):
            return node
        if node in known:
            return known[node]
        new = rebuild(node, visit)
        if isinstance(new, Expr) and node in chosen:
            var = names.var("at" if new.dtype.name == "i64" else "t", new.dtype)
            made.append(Let(var, new))
            known[node] = var
            return var
        return new

    for stmt in run:
        made.append(visit(stmt))  # noqa: PERF401 - visiting appends, too
    return made


def _repeated(run: list[Stmt]) -> set[Expr]:
    """Compound expressions without loads that occur more than once in a run."""
    uses: Counter[Expr] = Counter()
    values = {stmt.value for stmt in run if isinstance(stmt, Let)}

    def count(node: Node) -> None:
        if isinstance(node, Expr) and _worth(node):
            uses[node] += 1
            if uses[node] > 1:
                return
        for child in children(node):
            if not isinstance(child, Buffer):
                count(child)

    for stmt in run:
        count(stmt)
    return {expr for expr, times in uses.items() if times > 1 and expr not in values}


def _worth(expr: Expr) -> bool:
    if not isinstance(expr, (Binary, Call)):
        return False
    if isinstance(expr, Call) and expr.name in COPY_SYNCS:
        return False
    operands = [c for c in children(expr) if not isinstance(c, (Const, Var))]
    simple = not operands and isinstance(expr, Binary) and expr.op in ("add", "sub")
    return not simple and not holds(expr, Load)
