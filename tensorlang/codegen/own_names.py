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
from tensorlang.ir.nodes import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    Let,
    Node,
    Seq,
    Stmt,
    Var,
)
from tensorlang.ir.simplification.simplify import Place, simplify_function
from tensorlang.ir.visit import rebuild, rename


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
        self._renamed: dict[str, str] = {}

    def visit(self, stmt: Stmt) -> Stmt:
        before, own = self._renamed, [self._name(var) for var in _inside(stmt)]
        made = (
            self._sequence(stmt, own)
            if isinstance(stmt, Seq)
            else rebuild(stmt, self._part)
        )
        self._taken.difference_update(own)
        self._renamed = before
        return made

    def _sequence(self, whole: Seq, own: list[str]) -> Stmt:
        stmts: list[Stmt] = []
        for stmt in whole.stmts:
            if isinstance(stmt, Let | Alloc):
                own.append(
                    self._name(stmt.var if isinstance(stmt, Let) else stmt.buffer)
                )
            stmts.append(self.visit(stmt))
        return whole if all(map(is_, stmts, whole.stmts)) else Seq(tuple(stmts))

    def _part(self, node: Node) -> Node:
        if isinstance(node, Stmt):
            return self.visit(node)
        return rename(node, self._renamed) if self._renamed else node

    def _name(self, bound: Var | Buffer) -> str:
        """What is bound here is called from here on: itself, if the name is new."""
        name = bound.name
        if name in self._taken:
            name = self._used.fresh(name)
            self._renamed = {**self._renamed, bound.name: name}
        self._taken.add(name)
        return name


def _inside(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that a statement binds inside itself."""
    if isinstance(stmt, For):
        return (stmt.var,)
    return tuple(axis.var for axis in stmt.axes) if isinstance(stmt, Block) else ()
