"""Fragments that several products of a warp take are loaded once.

    a: bf16x8 = ldmatrix_x4(..)             a: bf16x8 = ldmatrix_x4(..)
    d: f32x4 = mma(a, b, c)                 d: f32x4 = mma(a, b, c)
    a_1: bf16x8 = ldmatrix_x4(..)    ->     d_1: f32x4 = mma(a, b_1, c_1)
    d_1: f32x4 = mma(a_1, b_1, c_1)

In straight-line code only, and only as long as nothing writes what they were loaded
from. A compiler may not do this: how a warp's instruction reads is hidden from it.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.collectives import is_collective
from tensorlang.ir.nodes import (
    Expr,
    Function,
    Let,
    Load,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.visit import reads, rebuild, substitute, walk


def load_once(function: Function) -> Function:
    """The function without fragments that it has already."""
    if not any(is_collective(node) for node in walk(function.body)):
        return function
    return replace(function, body=_visit(function.body))


def _visit(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Seq):
        return seq(*_run(stmt.stmts))
    return rebuild(stmt, lambda c: _visit(c) if isinstance(c, Stmt) else c)


def _run(stmts: tuple[Stmt, ...]) -> list[Stmt]:
    """Statements in a row, without the lets of what has a name."""
    made: list[Stmt] = []
    named: dict[Expr, Var] = {}
    instead: dict[Var, Expr] = {}
    for stmt in stmts:
        new = substitute(stmt, instead) if instead else stmt
        if isinstance(new, Let) and _is_fragment(new.value):
            if new.value in named:
                instead[new.var] = named[new.value]
                continue
            named[new.value] = new.var
        elif isinstance(new, Store):
            named = {e: v for e, v in named.items() if new.buffer not in reads(e)}
        elif not isinstance(new, Let):
            named = {}
            new = _visit(new)
        made.append(new)
    return made


def _is_fragment(value: Expr) -> bool:
    """Whether a value is loaded by a warp, or some lanes of such a one."""
    if isinstance(value, Shuffle):
        return not any(isinstance(node, Load) for node in walk(value))
    return is_collective(value) and isinstance(value.args[0], Load)  # type: ignore[attr-defined]
