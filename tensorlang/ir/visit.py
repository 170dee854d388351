"""Walking and rebuilding trees: children, pre-order walks, maps and substitution.

Every pass is written with these; none of them copies a subtree that did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from operator import is_
from typing import Concatenate, ParamSpec, TypeVar, overload

from tensorlang.ir.nodes import (
    Buffer,
    Expr,
    IndexMap,
    Node,
    Reducer,
    Stmt,
    Var,
)

N = TypeVar("N", bound=Node)
Kind = TypeVar("Kind", Expr, Stmt, Node)
P = ParamSpec("P")
S = TypeVar("S")


@overload
def rewriter(  # type: ignore[overload-overlap]  # no `self` is a node
    change: Callable[Concatenate[Node, P], Node],
) -> Callable[Concatenate[Kind, P], Kind]: ...
@overload
def rewriter(
    change: Callable[Concatenate[S, Node, P], Node],
) -> Callable[Concatenate[S, Kind, P], Kind]: ...
def rewriter(change: Callable[..., Node]) -> Callable[..., Node]:
    """`change` itself, typed: an expression gives an expression, a statement one."""
    return change


@cache
def _child_fields(kind: type) -> tuple[str, ...]:
    """The fields of a node class that may hold nodes (buffers are leaves)."""
    leaves = ("str", "bool", "int", "DType", "Scalar")
    return tuple(
        f.name
        for f in fields(kind)
        if f.init
        and str(f.type) not in leaves
        and not str(f.type).startswith(("tuple[str", "tuple[int"))
    )


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below `node`, in field order; a buffer is one of them."""
    kind: type = type(node)
    for name in _child_fields(kind):
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from value


@cache
def _statement_fields(kind: type) -> tuple[str, ...]:
    """The fields of a node class that hold statements."""
    return tuple(f.name for f in fields(kind) if "Stmt" in str(f.type))


def statements(node: Node) -> list[Stmt]:
    """The statements directly below `node`, in order."""
    found: list[Stmt] = []
    kind: type = type(node)
    for name in _statement_fields(kind):
        value = getattr(node, name)
        if type(value) is tuple:
            found += value
        elif value is not None:
            found.append(value)
    return found


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, parents first, left to right."""
    stack = [node]
    pop, push, push_all = stack.pop, stack.append, stack.extend
    while stack:
        current = pop()
        yield current
        kind: type = type(current)
        for name in _last_first(kind):  # as `children`, without its detours
            value = getattr(current, name)
            if type(value) is tuple:
                push_all(value[::-1])
            elif isinstance(value, Node):
                push(value)


@cache
def _last_first(kind: type) -> tuple[str, ...]:
    """The fields that may hold nodes, from the last one to the first."""
    return _child_fields(kind)[::-1]


@cache
def _given(kind: type) -> tuple[str, ...]:
    """The fields that a node of a class is made from."""
    return tuple(f.name for f in fields(kind) if f.init)


def rebuild(node: N, change: Callable[[Node], Node]) -> N:
    """`node` with `change` applied to each child; itself where nothing changed."""
    updates: dict[str, object] = {}
    kind: type = type(node)
    for name in _child_fields(kind):
        old = getattr(node, name)
        if isinstance(old, Node):
            new: object = change(old)
        elif isinstance(old, tuple):
            new = tuple([change(item) for item in old])
            if all(map(is_, old, new)):
                new = old
        else:
            continue
        if new is not old:
            updates[name] = new
    if not updates:
        return node
    for name in _given(kind):
        if name not in updates:
            updates[name] = getattr(node, name)
    return kind(**updates)  # type: ignore[no-any-return]


def transform(node: N, change: Callable[[Node], Node]) -> N:
    """Rebuild bottom-up: `change` sees every node after its children were changed.

    Statements that become a `Seq` inside a `Seq` must be flattened by `change`.
    """

    def visit(current: Node) -> Node:
        return change(rebuild(current, visit))

    return visit(node)  # type: ignore[return-value]


def substitute(node: N, values: Mapping[Var, Expr]) -> N:
    """`node` with every free occurrence of the variables replaced.

    Names are unique along a path, so no binder can capture what is put in; reducers
    and layouts are closed and stay as they are.
    """
    if not values:
        return node

    def visit(current: Node) -> Node:
        if isinstance(current, (Reducer, IndexMap)):
            return current
        if isinstance(current, Var):
            return values.get(current, current)
        if isinstance(current, Buffer):
            return current if not current.shape else rebuild(current, visit)
        return rebuild(current, visit)

    return visit(node)  # type: ignore[return-value]


def replace_buffers(node: N, values: Mapping[Buffer, Buffer]) -> N:
    """`node` with every reference to the given buffers pointing to the new ones."""

    def visit(current: Node) -> Node:
        if isinstance(current, Buffer):
            return values.get(current, current)
        return rebuild(current, visit)

    return visit(node)  # type: ignore[return-value]


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or `name_1`, `name_2`, ... until it is not taken; adds it to `taken`."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
