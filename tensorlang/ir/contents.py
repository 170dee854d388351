"""The contents of a subtree: variables, buffers, names, loops, blocks.

Contents of a statement are computed once, from those of its children: after a step that
changes one loop, only its ancestors are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tensorlang.ir.nodes import (
    Alloc,
    AtomicUpdate,
    Axis,
    BarrierObject,
    Block,
    Buffer,
    Call,
    For,
    Function,
    IndexMap,
    Let,
    Load,
    Node,
    Reduce,
    Reducer,
    Stmt,
    Store,
    Var,
)
from tensorlang.ir.visit import children, parts, statements, variables


@dataclass(slots=True)
class Contents:
    """The contents of a node: variables, names, accesses, node classes."""

    used: set[Var] = field(default_factory=set)
    bound: list[Var] = field(default_factory=list)
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    kinds: set[type[Node]] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Add one node, without its children."""
        note = _NOTES.get(type(node))
        if note is not None:
            note(self, node)

    def include(self, stmt: Stmt) -> None:
        """Add a statement with its contents."""
        held = contents(stmt)
        self.kinds |= held.kinds
        self.calls |= held.calls
        self.used |= held.used
        self.bound += held.bound
        self.reads |= held.reads
        self.writes |= held.writes
        self.names |= held.names


def _named(found: Contents, node: Block) -> None:
    found.names.add(node.name)


def _variable(found: Contents, node: Var) -> None:
    found.names.add(node.name)


def _read(found: Contents, node: Load) -> None:
    found.reads.add(node.buffer)


def _write(found: Contents, node: Store) -> None:
    found.writes.add(node.buffer)


def _update(found: Contents, node: Reduce | AtomicUpdate) -> None:
    buffers = node.buffers if isinstance(node, Reduce) else (node.buffer,)
    found.reads.update(buffers)
    found.writes.update(buffers)


def _call(found: Contents, node: Call) -> None:
    found.calls.add(node.name)


def _bind(found: Contents, node: Node) -> None:
    found.bound += _bound_by(node)


_NOTES: Final[dict[type[Node], Callable[[Contents, Any], None]]] = {
    Var: _variable,
    **dict.fromkeys((Buffer, BarrierObject, Block), _named),
    Load: _read,
    Call: _call,
    Store: _write,
    **dict.fromkeys((Reduce, AtomicUpdate), _update),
    **dict.fromkeys((For, Let, Axis, IndexMap, Reducer), _bind),
}


def contents(node: Node) -> Contents:
    """The contents of a node, including itself; do not modify."""
    if not isinstance(node, (Stmt, Function)):
        return _found(node)
    try:
        return node._contents  # type: ignore[union-attr,no-any-return] # noqa: SLF001
    except AttributeError:
        found = _found(node)
        object.__setattr__(node, "_contents", found)
        return found


def _found(node: Node) -> Contents:
    found = Contents()
    found.add(node)
    found.kinds.add(type(node))
    for child in children(node):
        if isinstance(child, Stmt):
            found.include(child)
            continue
        found.used |= variables(child)
        for part in parts(child):
            note = _NOTES.get(type(part))
            if note is not None:
                note(found, part)
        found.kinds.update(map(type, parts(child)))
    return found


@dataclass(slots=True)
class Structure:
    """The loops, blocks and allocations at or below a node, in program order."""

    loops: list[For] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    allocations: list[Alloc] = field(default_factory=list)


_EMPTY: Final = Structure()


def structure(node: Node) -> Structure:
    """The structure of a statement or function; do not modify it."""
    below = _below(node)
    if isinstance(node, For):
        return Structure([node, *below.loops], below.blocks, below.allocations)
    if isinstance(node, Block):
        return Structure(below.loops, [node, *below.blocks], below.allocations)
    if isinstance(node, Alloc):
        return Structure(below.loops, below.blocks, [node, *below.allocations])
    return below


def _below(node: Node) -> Structure:
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


def binders(node: Node) -> Iterator[Var]:
    """The variables that `node` and its descendants introduce, in program order."""
    return iter(contents(node).bound)


def free_vars(node: Node) -> frozenset[Var]:
    """The variables that `node` uses but does not introduce."""
    if not isinstance(node, (Stmt, Function)):
        return variables(node)
    found: frozenset[Var] | None = node._free  # type: ignore[union-attr] # noqa: SLF001
    if found is None:
        held = contents(node)
        found = frozenset(held.used.difference(held.bound))
        object.__setattr__(node, "_free", found)
    return found


def _bound_by(node: Node) -> tuple[Var, ...]:
    """The variables that a node introduces."""
    if isinstance(node, IndexMap):
        return node.vars
    if isinstance(node, Reducer):
        return node.left + node.right
    return (node.var,) if isinstance(node, (For, Let, Axis)) else ()


def reads(node: Node) -> frozenset[Buffer]:
    """The buffers read at or below `node`."""
    return frozenset(contents(node).reads)


def writes(node: Node) -> frozenset[Buffer]:
    """The buffers written at or below `node`."""
    return frozenset(contents(node).writes)


def touches(node: Node, buffer: Buffer) -> bool:
    """Whether something at or below `node` reads or writes a buffer."""
    held = contents(node)
    return buffer in held.reads or buffer in held.writes


def blocks(node: Node) -> Iterator[Block]:
    """The blocks at or below `node`, in program order."""
    return iter(structure(node).blocks)


def loops(node: Node) -> Iterator[For]:
    """The loops at or below `node`, in program order."""
    return iter(structure(node).loops)


def allocations(node: Node) -> Iterator[Buffer]:
    """The temporaries that `node` allocates, in program order."""
    return (alloc.buffer for alloc in structure(node).allocations)


def names(node: Node) -> set[str]:
    """All names in use below `node`: variables, buffers, blocks, barrier objects."""
    return set(contents(node).names)
