"""Names that are new along each path, though loops and conditions are dissolved.

for u in range(1):          a: f32 = x[i] * 2.0
    a: f32 = x[i] * 2.0     y[i] = a
    y[i] = a                a_1: f32 = y[i]
a: f32 = y[i]
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from tensorlang.codegen.names import Names
from tensorlang.ir.nodes import Alloc, Block, For, Function, Let, Seq, Stmt, Var
from tensorlang.ir.simplification.simplify import Place, simplify_function
from tensorlang.ir.visit import rebuild_statements, rename


def simplified(function: Function, known: Place, used: Names) -> Function:
    """`simplify_function`, which dissolves loops, with names that are new after it."""
    return with_own_names(simplify_function(function, known), used)


def with_own_names(function: Function, used: Names) -> Function:
    """The function with names renamed that something around them has already."""
    own = {*(b.name for b in function.buffers), *(v.name for v in function.scalars)}
    return replace(function, body=_Paths(used, own).visit(function.body))


class _Paths:
    """Statements in program order, beside the names that are taken where they are."""

    def __init__(self, used: Names, taken: set[str]) -> None:
        self._used, self._taken = used, taken

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return self._sequence(stmt)
        own = [var.name for var in _inside(stmt)]
        clashing = {n: self._used.fresh(n) for n in own if n in self._taken}
        if clashing:
            stmt, own = rename(stmt, clashing), [clashing.get(n, n) for n in own]
        self._taken.update(own)
        made = rebuild_statements(stmt, self.visit)
        self._taken.difference_update(own)
        return made

    def _sequence(self, whole: Seq) -> Stmt:
        stmts, own = list(whole.stmts), list[str]()
        for at, stmt in enumerate(stmts):
            if not isinstance(stmt, Let | Alloc):
                stmts[at] = self.visit(stmt)
                continue
            name = (stmt.var if isinstance(stmt, Let) else stmt.buffer).name
            if name in self._taken:
                new = {name: self._used.fresh(name)}
                stmts[at:] = [rename(later, new) for later in stmts[at:]]
                name = new[name]
            self._taken.add(name)
            own.append(name)
        self._taken.difference_update(own)
        return whole if all(map(is_, stmts, whole.stmts)) else Seq(tuple(stmts))


def _inside(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that a statement binds inside itself."""
    if isinstance(stmt, For):
        return (stmt.var,)
    return tuple(axis.var for axis in stmt.axes) if isinstance(stmt, Block) else ()
