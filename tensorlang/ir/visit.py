"""Traversal and rebuilding of trees: children, pre-order walks, maps, substitution.

Every pass is written with these; none of them copies an unchanged subtree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Concatenate, Final, ParamSpec, TypeVar, overload

from tensorlang.ir import nodes as ir
from tensorlang.ir.fields import (
    CHILDREN,
    REBUILD,
    REBUILD_STATEMENTS,
    STATEMENTS,
    PerClass,
)

N = TypeVar("N", bound=ir.Node)
Kind = TypeVar("Kind", ir.Expr, ir.Stmt, ir.Node)
Program = TypeVar("Program", ir.Function, ir.Stmt)
P = ParamSpec("P")
S = TypeVar("S")
_NONE: Final[frozenset[ir.Var]] = frozenset()
_MOST_KEPT: Final = 4096  # descendants of an expression
_NUMBERS: Final = count()
_BIT: Final[PerClass[int]] = PerClass(lambda _: 1 << next(_NUMBERS))


@overload
def rewriter(  # type: ignore[overload-overlap]  # no `self` is a node
    change: Callable[Concatenate[ir.Node, P], ir.Node],
) -> Callable[Concatenate[Kind, P], Kind]: ...
@overload
def rewriter(
    change: Callable[Concatenate[S, ir.Node, P], ir.Node],
) -> Callable[Concatenate[S, Kind, P], Kind]: ...
def rewriter(change: Callable[..., ir.Node]) -> Callable[..., ir.Node]:
    """`change`, typed: it maps expressions to expressions, statements to statements."""
    return change


def children(node: ir.Node) -> tuple[ir.Node, ...]:
    """The child nodes of `node`, in field order, including buffers."""
    return CHILDREN[type(node)](node)


def statements(node: ir.Node) -> tuple[ir.Stmt, ...]:
    """The child statements of `node`, in order."""
    return STATEMENTS[type(node)](node)


def walk(node: ir.Node) -> Iterator[ir.Node]:
    """`node` and its descendants, parents first, left to right."""
    if not isinstance(node, (ir.Stmt, ir.Function)):
        yield from parts(node)
        return
    stack: list[ir.Node] = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, ir.Stmt):
            yield current
            stack += CHILDREN[type(current)](current)[::-1]
        elif isinstance(current, ir.Function):
            yield current
            stack += children(current)[::-1]
        else:
            yield from parts(current)


def walk_statements(node: ir.Node) -> Iterator[ir.Stmt]:
    """The statements at or below `node`, parents first, left to right."""
    stack = [node] if isinstance(node, ir.Stmt) else [*statements(node)]
    while stack:
        current = stack.pop()
        yield current
        stack += STATEMENTS[type(current)](current)[::-1]


def parts(node: ir.Node) -> Iterable[ir.Node]:
    """An expression or buffer and its descendants in the order of `walk`.

    They are kept on the node unless they are many: shared subtrees count each time
    they are reached, so a small graph may be a tree too large for any memory.
    """
    try:
        return node._parts  # type: ignore[attr-defined,no-any-return] # noqa: SLF001
    except AttributeError:
        made = tuple(islice(_descend(node), _MOST_KEPT))
        if len(made) == _MOST_KEPT:
            return _descend(node)
        object.__setattr__(node, "_parts", made)
        return made


def _descend(node: ir.Node) -> Iterator[ir.Node]:
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        kind = type(current)
        if kind is not ir.Const and kind is not ir.Var:
            stack += CHILDREN[kind](current)[::-1]


def kinds(node: ir.Node) -> int:
    """The classes of a node and its descendants: a bit each, see `holds`."""
    try:
        return node._kinds  # type: ignore[attr-defined,no-any-return] # noqa: SLF001
    except AttributeError:
        found = _BIT[type(node)]
        for child in CHILDREN[type(node)](node):
            found |= kinds(child)
        object.__setattr__(node, "_kinds", found)
        return found


def holds(node: ir.Node, kind: type[ir.Node]) -> bool:
    """Whether a node of a class is at or below `node`."""
    try:  # as `kinds`, asked most often
        found = node._kinds  # type: ignore[attr-defined] # noqa: SLF001
    except AttributeError:
        found = kinds(node)
    return bool(found & _BIT[kind])


def nodes_of(node: ir.Node, kind: type[N]) -> Iterator[N]:
    """The nodes of one class at or below `node`, in the order of `walk`."""
    bit = _BIT[kind]
    stack: list[ir.Node] = [node]
    while stack:
        current = stack.pop()
        try:  # as `kinds`, asked most often
            found = current._kinds  # type: ignore[attr-defined] # noqa: SLF001
        except AttributeError:
            found = kinds(current)
        if found & bit:
            if type(current) is kind:
                yield current
            stack += CHILDREN[type(current)](current)[::-1]


def variables(node: ir.Node) -> frozenset[ir.Var]:
    """The free variables of an expression or buffer; layouts and reducers have none."""
    found: frozenset[ir.Var] | None = node._free  # type: ignore[attr-defined] # noqa: SLF001
    if found is None:
        found = _NONE
        if isinstance(node, ir.Var):
            found = frozenset((node,))
        elif not isinstance(node, (ir.Const, ir.IndexMap, ir.Reducer)):
            for child in CHILDREN[type(node)](node):
                below = child._free  # type: ignore[attr-defined] # noqa: SLF001
                if below is None:
                    below = variables(child)
                if below is not found and below:
                    found = found | below if found else below
        object.__setattr__(node, "_free", found)
    return found


def rebuild(node: N, change: Callable[[ir.Node], ir.Node]) -> N:
    """`node` with `change` applied to each child; `node` itself if nothing changed."""
    return REBUILD[type(node)](node, change)  # type: ignore[no-any-return]


def rebuild_statements(node: Program, change: Callable[[ir.Stmt], ir.Stmt]) -> Program:
    """`node` with `change` applied to each child statement; sequences are flattened."""
    return REBUILD_STATEMENTS[type(node)](node, change)  # type: ignore[no-any-return]


def transform_statements(
    node: Program, change: Callable[[ir.Stmt], ir.Stmt]
) -> Program:
    """Rebuild the statements below `node` bottom-up, then `node` if it is one."""

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        return change(rebuild_statements(stmt, visit))

    made = rebuild_statements(node, visit)
    return change(made) if isinstance(made, ir.Stmt) else made  # type: ignore[return-value]


def transform(node: N, change: Callable[[ir.Node], ir.Node]) -> N:
    """Rebuild bottom-up: `change` sees every node after its children were changed.

    Statements that become a `Seq` inside a `Seq` must be flattened by `change`.
    """

    def visit(current: ir.Node) -> ir.Node:
        return change(rebuild(current, visit))

    return visit(node)  # type: ignore[return-value]


def substitute(node: N, values: Mapping[ir.Var, ir.Expr]) -> N:
    """`node` with every free occurrence of the variables replaced.

    Names are unique along a path, so no binder can capture the values; reducers and
    layouts are closed and left unchanged.
    """
    if not values:
        return node
    return _Substitution(values)(node)  # type: ignore[return-value]


class _Substitution:
    """Replaces variables; an object, as a function that calls itself is garbage."""

    __slots__ = ("_used", "_values")

    def __init__(self, values: Mapping[ir.Var, ir.Expr]) -> None:
        self._values, self._used = values, values.keys()

    def __call__(self, node: ir.Node) -> ir.Node:
        kind = type(node)
        if kind is ir.Var:
            return self._values.get(node, node)  # type: ignore[call-overload,no-any-return]
        if not isinstance(node, ir.Stmt) and self._used.isdisjoint(variables(node)):
            return node
        return REBUILD[kind](node, self)  # type: ignore[no-any-return]


def replace_buffers(node: N, values: Mapping[ir.Buffer, ir.Buffer]) -> N:
    """`node` with references to the given buffers replaced by the new ones."""
    done: dict[int, ir.Node] = {}  # shared subtrees of `node`, by identity

    def visit(current: ir.Node) -> ir.Node:
        if isinstance(current, ir.Buffer):
            return values.get(current, current)
        if isinstance(current, (ir.Const, ir.Var)):
            return current
        made = done.get(id(current))
        if made is None:
            made = done[id(current)] = rebuild(current, visit)
        return made

    return visit(node)  # type: ignore[return-value]


def rename(node: N, names: Mapping[str, str]) -> N:
    """`node` with variables and buffers renamed; reducers and layouts are closed."""

    @rewriter
    def visit(current: ir.Node) -> ir.Node:
        if isinstance(current, (ir.Reducer, ir.IndexMap)):
            return current
        made = rebuild(current, visit)
        if isinstance(made, (ir.Var, ir.Buffer)) and made.name in names:
            return replace(made, name=names[made.name])
        return made

    return visit(node)  # type: ignore[return-value]


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or the first free of `name_1`, `name_2`, ...; adds it to `taken`."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
