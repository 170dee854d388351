"""Convert expressions with shared subexpressions (DAGs) to trees with `Let`s.

Python code that builds an expression and uses it twice creates a DAG; expanded to a
tree it doubles with every use (a million-fold for Threefry's twenty rounds). Value
numbering identifies equal structures, and values used twice become `Let`s. So do parts
of an expression that is deep, as a loop in Python makes it: passes are recursive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, fields
from typing import Final, TypeAlias

from tensorlang.ir.nodes import Buffer, Const, Expr, Let, Load, Node, Unary, Var
from tensorlang.ir.visit import children, fresh, rebuild, rewriter

MOST_LEVELS: Final = 96  # of an expression; deeper ones are named

# an expression's id -> the expression, which keeps the id its own, its name, and
# whether it is bound even if it is used once
Labels: TypeAlias = dict[int, tuple[Expr, str, bool]]

_LABELS: ContextVar[Labels | None] = ContextVar("labels", default=None)


@contextmanager
def labelling() -> Iterator[Labels]:
    """The names that `named` gives in the body of a block, for `lets`."""
    labels: Labels = {}
    token = _LABELS.set(labels)
    try:
        yield labels
    finally:
        _LABELS.reset(token)


def named(name: str, value: Expr, *, always: bool = True) -> Expr:
    """`value`, bound to `name` by a `Let` in the block being defined.

    Unless `always`, it is bound only if it is used more than once. A value keeps its
    first name.
    """
    labels = _LABELS.get()
    if labels is not None:
        labels.setdefault(id(value), (value, name, always))
    return value


class _Numbering:
    """Value numbering: one representative for each distinct expression of a DAG."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        self._of: dict[int, tuple[Node, Node]] = {}  # keeps numbered nodes alive

    @rewriter
    def representative(self, node: Node) -> Node:
        """The first node seen with the structure of `node`, including children."""
        if isinstance(node, Buffer):  # its shape is no part of the expression
            return node
        held = self._of.get(id(node))
        if held is not None:
            return held[1]
        made = rebuild(node, self.representative)
        key = (type(made), *(_shallow(getattr(made, f.name)) for f in _fields(made)))
        chosen = self._known.setdefault(key, made)
        self._of[id(node)] = (node, chosen)
        return chosen


def _fields(node: Node) -> tuple[Field[object], ...]:
    return tuple(f for f in fields(node) if f.init)  # type: ignore[arg-type]


def _shallow(value: object) -> object:
    """A field's identity: child nodes by address, as they are representatives."""
    if isinstance(value, (Const, Var, Buffer)):
        return value
    if isinstance(value, Node):
        return id(value)
    if isinstance(value, tuple):
        return tuple(_shallow(item) for item in value)
    return value


def lets(
    values: Sequence[Expr], labels: Labels, taken: set[str]
) -> tuple[list[Let], list[Expr]]:
    """Bind shared subexpressions by `Let`s; returns these, and the values, in order.

    Args:
        values: Expressions that may share subexpressions, also with each other.
        labels: Requested names, of `named`.
        taken: Names in use; the new ones are added.
    """
    numbering = _Numbering()
    for part in _children_first([*values, *(part for part, *_ in labels.values())]):
        numbering.representative(part)
    roots = [numbering.representative(value) for value in values]
    wished = {
        id(numbering.representative(part)): (name, always)
        for part, name, always in labels.values()
    }
    uses = _count_uses(roots)
    made: list[Let] = []
    done: dict[int, Expr] = {}
    levels: dict[int, int] = {}

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Buffer):
            return node
        if not isinstance(node, Expr) or isinstance(node, (Const, Var)):
            return node if isinstance(node, Expr) else rebuild(node, visit)
        if id(node) in done:
            return done[id(node)]
        result: Expr = rebuild(node, visit)
        level = 1 + max((levels.get(id(c), 0) for c in _below(node)), default=0)
        again = uses[id(node)] > 1 and not _trivial(result)
        name, always = wished.get(id(node)) or (_name(result), False)
        if always or again or level > MOST_LEVELS:
            level = 0
            var = Var(fresh(name, taken), result.dtype)
            made.append(Let(var, result))
            result = var
        done[id(node)], levels[id(node)] = result, level
        return result

    for part in _children_first(roots):
        visit(part)
    return made, [visit(root) for root in roots]


def _children_first(roots: Sequence[Node]) -> list[Node]:
    """Every node of the DAG once, after its children; without recursion."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(_below(node)))
    return order


def _below(node: Node) -> tuple[Node, ...]:
    """The child nodes of an expression; a buffer is a leaf."""
    return () if isinstance(node, Buffer) else children(node)


def _count_uses(roots: Sequence[Node]) -> Counter[int]:
    uses: Counter[int] = Counter(id(root) for root in roots)
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for child in _below(node):
            uses[id(child)] += 1
            stack.append(child)
    return uses


def _name(value: Expr) -> str:
    """A name for a shared value: of a load `x[vi, 0]`, `x_i0`."""
    if not isinstance(value, Load):
        return "t"
    places = []
    for index in value.indices:
        if isinstance(index, Const) and index.value >= 0:
            places.append(str(index.value))
        elif isinstance(index, Var):
            places.append(index.name.removeprefix("v"))
        else:
            return "t"
    return "_".join([value.buffer.name, "".join(places)])


def _trivial(node: Expr) -> bool:
    """Whether a name would be no shorter than the expression."""
    return isinstance(node, Unary) and isinstance(node.a, (Const, Var))
