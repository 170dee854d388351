"""Expressions as arguments of primitives: trees, numbers, or text in IR syntax.

A trace holds text, so that it stays JSON; the IR's parser reads it, knowing only the
variables in scope.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

from tensorlang.errors import ParseError, ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import holds, walk
from tensorlang.scheduling.analysis.tree import Path, function_of

Term: TypeAlias = ir.Expr | int | str


def scope(path: Path) -> dict[str, ir.Var]:
    """The variables in scope at a place: scalars, enclosing loops, earlier lets."""
    found = {var.name: var for var in function_of(path).scalars}
    for parent, child in pairwise(path):
        if isinstance(parent, ir.Block):  # it does not see outer loops
            inside = {axis.var.name: axis.var for axis in parent.axes}
            found = {var.name: var for var in function_of(path).scalars} | inside
        if isinstance(parent, ir.For):
            found[parent.var.name] = parent.var
        if isinstance(parent, ir.Seq):
            for stmt in parent.stmts:
                if stmt is child:
                    break
                if isinstance(stmt, ir.Let):
                    found[stmt.var.name] = stmt.var
    return found


def term(given: Term, path: Path, asked_by: str) -> ir.Expr:
    """The expression denoted by an argument at a place.

    Args:
        given: A tree, a number, or text such as `"n // 32"`.
        path: The place where it will be evaluated.
        asked_by: The primitive's name, for messages.

    Raises:
        ScheduleError: it does not parse, uses a variable that is not in scope, or reads
            memory (a schedule depends on sizes and loops only).
    """
    known = scope(path)
    expr = (
        _parsed(given, known, asked_by) if isinstance(given, str) else ir.as_expr(given)
    )
    strange = sorted(var.name for var in free_vars(expr) - set(known.values()))
    if strange:
        names = ", ".join(known) or "none"
        raise ScheduleError(
            f"{asked_by}: {expr!r} uses {', '.join(strange)}, not in scope here; "
            f"what is: {names}"
        )
    if holds(expr, ir.Load):
        raise ScheduleError(f"{asked_by}: {expr!r} reads memory; use sizes and loops")
    for part in filter(_may_fault, walk(expr)):
        raise ScheduleError(f"{asked_by}: {part!r} may fault; divide by a number")
    return expr


def _may_fault(node: ir.Node) -> bool:
    """Whether an operation is undefined for some operands."""
    match node:
        case ir.Binary(op="floordiv" | "floormod", b=ir.Const(value=by)):
            return by == 0
        case ir.Binary(op="shl" | "shr", b=ir.Const(value=by), dtype=dtype):
            return not 0 <= by < dtype.bits
        case ir.Binary(op="floordiv" | "floormod" | "shl" | "shr"):
            return True
    return False


def _parsed(text: str, known: dict[str, ir.Var], asked_by: str) -> ir.Expr:
    scalars = ", ".join(f"{name}: {var.dtype}" for name, var in known.items())
    header = f"*, {scalars}" if scalars else ""
    try:
        body = parse(f"def term({header}):\n    evaluate({text})\n").body
    except ParseError as error:
        raise ScheduleError(
            f"{asked_by}: {text!r} is not an expression: {error}"
        ) from None
    if not isinstance(body, ir.Evaluate):
        raise ScheduleError(f"{asked_by}: {text!r} is more than one expression")
    return body.expr
