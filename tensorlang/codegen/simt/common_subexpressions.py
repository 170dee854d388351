"""Common subexpressions of straight-line code as variables.

    y[b * 256 + t] = x[b * 256 + t]     ->     at: i64 = b * 256 + t
                                               y[at] = x[at]

What is used in indices of one buffer is named after it, `x_at`, and digits of an index
are `t_mod_16` or `t_div_16`. Limited to expressions without loads in consecutive
statements. Compilers do this anyway; the purpose is readable source.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tensorlang.codegen.names import Names, digits_of
from tensorlang.codegen.simt.launches import is_launch
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import i64
from tensorlang.ir.gpu_effects import GPU_EFFECTS
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.visit import children, holds, rebuild, rebuild_statements, rewriter

_RUN: Final = (ir.Let, ir.Store, ir.Evaluate, ir.AtomicUpdate)


def bind_common(function: ir.Function, names: Names) -> ir.Function:
    """The function with common subexpressions bound to variables."""

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if not is_launch(stmt):
            return rebuild_statements(stmt, visit)
        with names.scope():
            return _Binding(names).visit(stmt)

    return rebuild_statements(function, visit)


class _Binding:
    """Names for values: a value has one name in all places that do not see each other.

    Different values have different names in a launch, as printers bound them by name.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.given: dict[ir.Expr, list[str]] = defaultdict(list)
        self.visible: frozenset[str] = frozenset()

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement with its common subexpressions bound."""
        match stmt:
            case ir.Seq():
                return ir.seq(*self.runs(stmt.stmts))
            case ir.Store():
                return ir.seq(*self.named([stmt]))
            case ir.For() | ir.If() | ir.While():
                return rebuild_statements(stmt, self.inside)
        return stmt

    def inside(self, stmt: ir.Stmt) -> ir.Stmt:
        """The body of a statement, whose names end with it."""
        around = self.visible
        made = self.visit(stmt)
        self.visible = around
        return made

    def runs(self, stmts: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
        """The statements, with each run of simple ones rewritten."""
        run: list[ir.Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, _RUN):
                run.append(stmt)
                continue
            yield from self.named(run)
            run = []
            yield self.visit(stmt)
        yield from self.named(run)

    def named(self, run: list[ir.Stmt]) -> list[ir.Stmt]:
        """A run of statements with a `Let` before the first use of each repetition."""
        homes = _repeated(run)
        if not homes:
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
            if isinstance(new, ir.Expr) and node in homes:
                known[node] = self.var(new, _hint(node, homes[node]))
                made.append(ir.Let(known[node], new))
                return known[node]
            return new

        for stmt in run:
            made.append(visit(stmt))  # noqa: PERF401 - visiting appends, too
        return made

    def var(self, value: ir.Expr, hint: str) -> ir.Var:
        """A variable for a value, by whose name nothing else is visible here."""
        free = (name for name in self.given[value] if name not in self.visible)
        name = next(free, "")
        if not name:
            name = self.names.fresh(hint)
            self.given[value].append(name)
        self.visible |= {name}
        return ir.Var(name, value.dtype)


def _hint(expr: ir.Node, homes: set[str]) -> str:
    """A name for a value: of digits of a variable, of an index, or of another."""
    if digits := digits_of(expr):
        return digits
    if not isinstance(expr, ir.Expr) or expr.dtype != i64:
        return "t"
    return "_".join([*(homes if len(homes) == 1 else ()), "at"]).removeprefix("_")


def _repeated(run: list[ir.Stmt]) -> dict[ir.Node, set[str]]:
    """Compound expressions without loads that occur more than once in a run.

    With each, the buffers that it indexes; "" if it has other uses.
    """
    uses: Counter[ir.Node] = Counter()
    homes: dict[ir.Node, set[str]] = defaultdict(set)
    values = {stmt.value for stmt in run if isinstance(stmt, ir.Let)}

    def count(node: ir.Node, home: str, times: int) -> None:
        if isinstance(node, ir.Expr) and _worth(node):
            uses[node] += times
            if uses[node] > 1 and home in homes[node]:
                return
            homes[node].add(home)
            times = times if uses[node] == 1 else 0
        own = getattr(node, "indices", ())
        for child in children(node):
            if not isinstance(child, ir.Buffer):
                at = any(child is index for index in own)
                count(child, node.buffer.name if at else home, times)  # type: ignore[attr-defined]

    for stmt in run:
        count(stmt, "", 1)
    return {
        expr: homes[expr]
        for expr, times in uses.items()
        if times > 1 and expr not in values
    }


def _worth(expr: ir.Expr) -> bool:
    if not isinstance(expr, (ir.Binary, ir.Call)):
        return False
    if isinstance(expr, ir.Call) and expr.name in (*COPY_SYNCS, *GPU_EFFECTS):
        return False
    operands = [c for c in children(expr) if not isinstance(c, (ir.Const, ir.Var))]
    simple = not operands and isinstance(expr, ir.Binary) and expr.op in ("add", "sub")
    return not simple and not holds(expr, ir.Load)
