"""Substitute named indices into register indices, so that terms cancel.

    t: i64 = b * 16 + i + 1                     t: i64 = b * 16 + i + 1
    y[..] = r[t - b * 16]               ->      y[..] = r[i + 1]

An index into a tile is an array index minus the tile's start. If these are variables,
the difference is not visible, and the compiler places the tile in memory instead of
registers because its index seems to vary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import holds, rebuild, rewriter, substitute
from tensorlang.scheduling.steps.memory import OWN

_Named = dict[ir.Var, ir.Expr]
_LONG: Final = 16  # substitutions per index


def substitute_register_indices(function: ir.Function) -> ir.Function:
    """The function with such variables substituted in register indices."""
    return replace(function, body=_visit(function.body, {}))


@rewriter
def _visit(node: ir.Node, named: _Named) -> ir.Node:
    if not isinstance(node, ir.Stmt) and not holds(node, ir.Load):
        return node
    if isinstance(node, ir.Seq):
        return _sequence(node, named)
    new = rebuild(node, lambda child: _visit(child, named))
    if isinstance(new, ir.Load | ir.Store) and new.buffer.scope in OWN:
        return replace(new, indices=tuple(_plain(i, named) for i in new.indices))
    return new


def _sequence(node: ir.Seq, named: _Named) -> ir.Stmt:
    """A sequence; each let is available to the statements after it."""
    named, made = dict(named), []
    for stmt in node.stmts:
        made.append(_visit(stmt, named))
        if isinstance(stmt, ir.Let) and stmt.var.dtype == i64 and not reads(stmt.value):
            named[stmt.var] = stmt.value
    return ir.seq(*made)


def _plain(index: ir.Expr, named: _Named) -> ir.Expr:
    """An index with fewer variables, if substitution gives one."""
    full = index
    for _ in range(_LONG):
        used = free_vars(full) & named.keys()
        if not used:
            break
        full = substitute(full, {var: named[var] for var in used})
    short = simplify(linear(full).expr())
    return short if full != index and _fewer(short, full) else index


def _fewer(short: ir.Expr, full: ir.Expr) -> bool:
    return len(free_vars(short)) < len(free_vars(full))
