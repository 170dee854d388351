"""Parse roles and barrier objects from Python's syntax tree."""

from __future__ import annotations

import ast

from tensorlang.ir.nodes import Arrive, BarrierObject, Expr, Role, Stmt, Wait
from tensorlang.ir.text.parse_expressions import expr
from tensorlang.ir.text.parser_base import Scope, arguments, integer, wrong


def role(node: ast.Call, scope: Scope, body: Stmt) -> Role:
    """A role around a parsed body, from `role(cond, registers=24)`."""
    (cond,), given = arguments(node, 1, "registers")
    registers = integer(given["registers"]) if "registers" in given else 0
    return Role(expr(cond, scope), body, registers)


def barrier_object(name: str, node: ast.Call, scope: Scope) -> BarrierObject:
    """Barrier objects from `barrier_object(count, size)`, added to `scope`."""
    count, size = map(integer, arguments(node, 2)[0])
    scope.barriers.add(name)
    return BarrierObject(name, count, size)


def arrive(node: ast.Call, scope: Scope, copies: Stmt | None = None) -> Arrive:
    """An arrival from `arrive(name[index])`, with the copies below it."""
    (target,), _ = arguments(node, 1)
    return Arrive(*_object(target, scope), copies)


def wait(node: ast.Call, scope: Scope) -> Wait:
    """A wait from `wait(name[index], phase)`."""
    (target, phase), _ = arguments(node, 2)
    return Wait(*_object(target, scope), expr(phase, scope))


def _object(node: ast.expr, scope: Scope) -> tuple[str, Expr]:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        raise wrong(node, "expected one of the barrier objects, such as full[0]")
    if node.value.id not in scope.barriers:
        raise wrong(node, f"no barrier object {node.value.id!r} is declared here")
    return node.value.id, expr(node.slice, scope)
