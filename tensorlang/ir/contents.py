"""What stands below a node: variables, buffers, names, loops, blocks.

Of a statement it is found once, from what is known of the statements in it: a step that
changes one loop looks again at the nodes above it only.
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
from tensorlang.ir.visit import N, children, walk


@dataclass(slots=True)
class Contents:
    """What stands in a node; of loops, blocks and allocations those below it."""

    used: set[Var] = field(default_factory=set)
    bound: list[Var] = field(default_factory=list)
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    loops: list[For] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    allocations: list[Buffer] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Note one node, not what is below it."""
        note = _NOTES.get(type(node))
        if note is not None:
            note(self, node)

    def include(self, stmt: Stmt) -> None:
        """Note a statement with all that it holds."""
        held = contents(stmt)
        self.used |= held.used
        self.bound += held.bound
        self.reads |= held.reads
        self.writes |= held.writes
        self.names |= held.names
        self.loops += _first(stmt, For, held.loops)
        self.blocks += _first(stmt, Block, held.blocks)
        if isinstance(stmt, Alloc):
            self.allocations.append(stmt.buffer)
        self.allocations += held.allocations


def _named(found: Contents, node: Block) -> None:
    found.names.add(node.name)


def _variable(found: Contents, node: Var) -> None:
    found.used.add(node)
    found.names.add(node.name)


def _read(found: Contents, node: Load) -> None:
    found.reads.add(node.buffer)


def _write(found: Contents, node: Store) -> None:
    found.writes.add(node.buffer)


def _update(found: Contents, node: Reduce | AtomicUpdate) -> None:
    buffers = node.buffers if isinstance(node, Reduce) else (node.buffer,)
    found.reads.update(buffers)
    found.writes.update(buffers)


def _bind(found: Contents, node: Node) -> None:
    found.bound += _bound_by(node)


_NOTES: Final[dict[type[Node], Callable[[Contents, Any], None]]] = {
    Var: _variable,
    **dict.fromkeys((Buffer, BarrierObject, Block), _named),
    Load: _read,
    Store: _write,
    **dict.fromkeys((Reduce, AtomicUpdate), _update),
    **dict.fromkeys((For, Let, Axis, IndexMap, Reducer), _bind),
}


def contents(node: Node) -> Contents:
    """What stands in a node, itself included; not to be changed."""
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
    for child in children(node):
        if isinstance(child, Stmt):
            found.include(child)
            continue
        for part in walk(child):
            found.add(part)
    return found


def _first(stmt: Node, kind: type[N], below: list[N]) -> list[N]:
    return [stmt, *below] if isinstance(stmt, kind) else below


def binders(node: Node) -> Iterator[Var]:
    """The variables that `node` and its descendants introduce, in program order."""
    return iter(contents(node).bound)


def free_vars(node: Node) -> frozenset[Var]:
    """The variables that `node` uses but does not introduce."""
    try:
        return node._free  # type: ignore[attr-defined,no-any-return] # noqa: SLF001
    except AttributeError:
        found = _free(node)
        object.__setattr__(node, "_free", found)
        return found


_NONE: Final[frozenset[Var]] = frozenset()


def _free(node: Node) -> frozenset[Var]:
    if isinstance(node, Var):
        return frozenset((node,))
    if isinstance(node, (Stmt, Function)):
        found = contents(node)
        return frozenset(found.used.difference(found.bound))
    free = _NONE
    for child in children(node):
        free |= free_vars(child)
    return free.difference(_bound_by(node))


def _bound_by(node: Node) -> tuple[Var, ...]:
    """The variables that a node introduces."""
    if isinstance(node, IndexMap):
        return node.vars
    if isinstance(node, Reducer):
        return node.left + node.right
    return (node.var,) if isinstance(node, (For, Let, Axis)) else ()


def reads(node: Node) -> frozenset[Buffer]:
    """The buffers that something below `node` reads."""
    return frozenset(contents(node).reads)


def writes(node: Node) -> frozenset[Buffer]:
    """The buffers that something below `node` writes."""
    return frozenset(contents(node).writes)


def touches(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether something in a statement reads or writes a buffer."""
    held = contents(stmt)
    return buffer in held.reads or buffer in held.writes


def blocks(node: Node) -> Iterator[Block]:
    """The blocks at or below `node`, in program order."""
    return iter(_first(node, Block, contents(node).blocks))


def loops(node: Node) -> Iterator[For]:
    """The loops at or below `node`, in program order."""
    return iter(_first(node, For, contents(node).loops))


def allocations(node: Node) -> Iterator[Buffer]:
    """The temporaries that `node` allocates, in program order."""
    own = [node.buffer] if isinstance(node, Alloc) else []
    return iter(own + contents(node).allocations)


def names(node: Node) -> set[str]:
    """All names in use below `node`: variables, buffers, blocks, barrier objects."""
    return set(contents(node).names)
