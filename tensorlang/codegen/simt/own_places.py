"""Places in a thread's registers, without names for what cancels in them.

    t: i64 = b * 16 + i + 1                     t: i64 = b * 16 + i + 1
    y[..] = r[t - b * 16]               ->      y[..] = r[i + 1]

A tile is a part of an array, its places those in the array less its start. Where these
have names, the difference does not show; to a compiler an index that seems to vary is
one of memory, not of registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import (
    Buffer,
    Expr,
    Function,
    Let,
    Load,
    Node,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import rebuild, rewriter, substitute
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.memory import OWN

_Named = dict[Var, Expr]
_LONG: Final = 16  # names that a place may be made of


def own_places(function: Function) -> Function:
    """The function with such names written out in places of registers."""
    return replace(function, body=_visit(function.body, {}))


@rewriter
def _visit(node: Node, named: _Named) -> Node:
    if isinstance(node, Buffer):
        return node
    if isinstance(node, Seq):
        return _sequence(node, named)
    new = rebuild(node, lambda child: _visit(child, named))
    if isinstance(new, Load | Store) and new.buffer.scope in OWN:
        return replace(new, indices=tuple(_plain(i, named) for i in new.indices))
    return new


def _sequence(node: Seq, named: _Named) -> Stmt:
    """Statements in a row, with what each names for those behind it."""
    named, made = dict(named), []
    for stmt in node.stmts:
        made.append(_visit(stmt, named))
        if isinstance(stmt, Let) and stmt.var.dtype == i64 and not reads(stmt.value):
            named[stmt.var] = stmt.value
    return seq(*made)


def _plain(index: Expr, named: _Named) -> Expr:
    """An index of fewer variables, where there is one."""
    full = index
    for _ in range(_LONG):
        used = free_vars(full) & named.keys()
        if not used:
            break
        full = substitute(full, {var: named[var] for var in used})
    short = simplify(linear(full).expr())
    return short if full != index and _fewer(short, full) else index


def _fewer(short: Expr, full: Expr) -> bool:
    return len(free_vars(short)) < len(free_vars(full))
