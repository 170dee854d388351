"""The contents of a subtree: variables, buffers, names, loops, blocks.

Contents of a statement are computed once, from those of its children: after a step that
changes one loop, only its ancestors are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import children, holds, nodes_of, statements, variables

T = TypeVar("T")


@dataclass(slots=True)
class Contents:
    """What a node and its descendants use: sets that larger contents share."""

    used: frozenset[ir.Var] = frozenset()  # variables used, also by what binds them
    bound: tuple[ir.Var, ...] = ()  # variables bound, in program order
    reads: frozenset[ir.Buffer] = frozenset()  # buffers read
    writes: frozenset[ir.Buffer] = frozenset()  # buffers written
    named: frozenset[str] = frozenset()  # names of buffers, blocks and barrier objects
    calls: frozenset[str] = frozenset()  # functions called

    def include(self, other: Contents) -> None:
        """Add other contents."""
        self.bound += other.bound
        if other.used is not self.used:
            self.used = _union(self.used, other.used)
        if other.reads:
            self.reads = _union(self.reads, other.reads)
        if other.writes:
            self.writes = _union(self.writes, other.writes)
        if other.named:
            self.named = _union(self.named, other.named)
        if other.calls:
            self.calls = _union(self.calls, other.calls)

    def include_value(self, expr: ir.Expr) -> None:
        """Add an expression."""
        self.used = _union(self.used, variables(expr))
        if holds(expr, ir.Load):
            for load in nodes_of(expr, ir.Load):
                if load.buffer not in self.reads:
                    self.reads |= {load.buffer}
                    self.include(contents(load.buffer))
        if holds(expr, ir.Call):
            called = frozenset(call.name for call in nodes_of(expr, ir.Call))
            self.calls = _union(self.calls, called)


def _union(a: frozenset[T], b: frozenset[T]) -> frozenset[T]:
    """The union, which is one of the two sets if that holds the other."""
    if b <= a:
        return a
    return b if a <= b else a | b


def _named(found: Contents, node: ir.Buffer | ir.BarrierObject | ir.Block) -> None:
    found.named = frozenset((node.name,))


def _write(found: Contents, node: ir.Store) -> None:
    found.writes = frozenset((node.buffer,))


def _update(found: Contents, node: ir.Reduce | ir.AtomicUpdate) -> None:
    buffers = node.buffers if isinstance(node, ir.Reduce) else (node.buffer,)
    found.reads = found.writes = frozenset(buffers)


def _bind(
    found: Contents, node: ir.For | ir.Let | ir.Axis | ir.IndexMap | ir.Reducer
) -> None:
    found.bound = _bound_by(node)


_NOTES: Final[dict[type[ir.Node], Callable[[Contents, Any], None]]] = {
    **dict.fromkeys((ir.Buffer, ir.BarrierObject, ir.Block), _named),
    ir.Store: _write,
    **dict.fromkeys((ir.Reduce, ir.AtomicUpdate), _update),
    **dict.fromkeys((ir.For, ir.Let, ir.Axis, ir.IndexMap, ir.Reducer), _bind),
}


def contents(node: ir.Node) -> Contents:
    """The contents of a node, including itself; do not modify."""
    try:
        return node._contents  # type: ignore[attr-defined,no-any-return] # noqa: SLF001
    except AttributeError:
        found = Contents()
        note = _NOTES.get(type(node))
        if note is not None:
            note(found, node)
        for child in (node,) if isinstance(node, ir.Expr) else children(node):
            if isinstance(child, ir.Expr):
                found.include_value(child)
            else:
                found.include(contents(child))
        object.__setattr__(node, "_contents", found)
        return found


@dataclass(slots=True)
class Structure:
    """The loops, blocks and allocations at or below a node, in program order."""

    loops: list[ir.For] = field(default_factory=list)
    blocks: list[ir.Block] = field(default_factory=list)
    allocations: list[ir.Alloc] = field(default_factory=list)


_EMPTY: Final = Structure()


def structure(node: ir.Node) -> Structure:
    """The structure of a statement or function; do not modify it."""
    below = _below(node)
    if isinstance(node, ir.For):
        return Structure([node, *below.loops], below.blocks, below.allocations)
    if isinstance(node, ir.Block):
        return Structure(below.loops, [node, *below.blocks], below.allocations)
    if isinstance(node, ir.Alloc):
        return Structure(below.loops, below.blocks, [node, *below.allocations])
    return below


def _below(node: ir.Node) -> Structure:
    """The structure of a node without the node itself, cached.

    A node whose cache held it would be freed by the garbage collector only.
    """
    try:
        return node._structure  # type: ignore[attr-defined,no-any-return] # noqa: SLF001
    except AttributeError:
        statements_below = statements(node)
        if not statements_below:
            return _EMPTY
        found = Structure()
        for stmt in statements_below:
            held = structure(stmt)
            found.loops += held.loops
            found.blocks += held.blocks
            found.allocations += held.allocations
        object.__setattr__(node, "_structure", found)
        return found


def contains(node: ir.Node, stmt: ir.For | ir.Block | ir.Alloc) -> bool:
    """Whether a loop, block or allocation, by identity, is at or below `node`."""
    if node is stmt:
        return True
    below = _below(node)
    held: Sequence[ir.Stmt]
    if isinstance(stmt, ir.For):
        held = below.loops
    else:
        held = below.blocks if isinstance(stmt, ir.Block) else below.allocations
    return id(stmt) in map(id, held)


def binders(node: ir.Node) -> Iterator[ir.Var]:
    """The variables that `node` and its descendants introduce, in program order."""
    return iter(contents(node).bound)


def free_vars(node: ir.Node) -> frozenset[ir.Var]:
    """The variables that `node` uses but does not introduce."""
    if not isinstance(node, (ir.Stmt, ir.Function)):
        return variables(node)
    found: frozenset[ir.Var] | None = node._free  # type: ignore[union-attr] # noqa: SLF001
    if found is None:
        held = contents(node)
        found = held.used.difference(held.bound)
        object.__setattr__(node, "_free", found)
    return found


def _bound_by(node: ir.Node) -> tuple[ir.Var, ...]:
    """The variables that a node introduces."""
    if isinstance(node, ir.IndexMap):
        return node.vars
    if isinstance(node, ir.Reducer):
        return node.left + node.right
    return (node.var,) if isinstance(node, (ir.For, ir.Let, ir.Axis)) else ()


def reads(node: ir.Node) -> frozenset[ir.Buffer]:
    """The buffers read at or below `node`."""
    return contents(node).reads


def writes(node: ir.Node) -> frozenset[ir.Buffer]:
    """The buffers written at or below `node`."""
    return contents(node).writes


def touches(node: ir.Node, buffer: ir.Buffer) -> bool:
    """Whether something at or below `node` reads or writes a buffer."""
    held = contents(node)
    return buffer in held.reads or buffer in held.writes


def blocks(node: ir.Node) -> Iterator[ir.Block]:
    """The blocks at or below `node`, in program order."""
    return iter(structure(node).blocks)


def loops(node: ir.Node) -> Iterator[ir.For]:
    """The loops at or below `node`, in program order."""
    return iter(structure(node).loops)


def allocations(node: ir.Node) -> Iterator[ir.Buffer]:
    """The temporaries that `node` allocates, in program order."""
    return (alloc.buffer for alloc in structure(node).allocations)


def names(node: ir.Node) -> set[str]:
    """All names in use below `node`: variables, buffers, blocks, barrier objects."""
    held = contents(node)
    return {*held.named, *(var.name for var in (*held.used, *held.bound))}
