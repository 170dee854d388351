"""Rules for memory accesses: parameter roles, and reads before any write."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import writes
from tensorlang.ir.sites import Site
from tensorlang.ir.verification.expressions import evaluated, operands
from tensorlang.ir.visit import children, walk

_PLAIN_AXES = ("spatial", "reduction")


class MemoryRules:
    """The rules for memory, applied to statements in program order by `visit`."""

    def __init__(self, func: ir.Function) -> None:
        self._roles = {param.buffer.name: param.role for param in func.params}
        self._written = {
            name for name, role in self._roles.items() if role in ("in", "inout")
        }

    def check(self, stmt: ir.Stmt, site: Site) -> None:
        """Check one statement, after all those before it.

        Raises:
            IRError: an `in` buffer is written, something is read that nothing before
                can have written, or an `inout` is read elsewhere than it is written.
        """
        if isinstance(stmt, ir.Alloc):
            self._written.discard(stmt.buffer.name)  # a sibling may have had its name
        for buffer in written_by(stmt):
            self._not_an_input(buffer, site)
        for buffer in read_by(stmt, site):
            self._written_before(buffer, site)
        self._written.update(buffer.name for buffer in written_by(stmt))
        if isinstance(stmt, ir.Block):
            self._in_place(stmt, site)

    def _not_an_input(self, buffer: ir.Buffer, site: Site) -> None:
        if self._roles.get(buffer.name) == "in":
            raise site.fault(
                f"{buffer.name!r} is an 'in' parameter and is written; "
                "declare it Out or InOut"
            )

    def _written_before(self, buffer: ir.Buffer, site: Site) -> None:
        if buffer.name in self._written or _maybe_later_round(buffer, site):
            return
        raise site.fault(
            f"{buffer.name!r} is read before anything wrote it; write it first"
        )

    def _in_place(self, block: ir.Block, site: Site) -> None:
        """A block of spatial axes reads an `inout` buffer only where it writes it."""
        if any(axis.kind not in _PLAIN_AXES for axis in block.axes):
            return
        for name in sorted(
            name for name, role in self._roles.items() if role == "inout"
        ):
            stored = set(_written_places(block.body, name))
            for load in _loads(block.body):
                if stored and load.buffer.name == name and load.indices not in stored:
                    raise site.fault(
                        f"block {block.name!r} updates {name!r} in place but reads "
                        f"{load}, another element than it writes; read a copy"
                    )


def written_by(stmt: ir.Stmt) -> Iterator[ir.Buffer]:
    """The buffers that a statement itself writes."""
    if isinstance(stmt, ir.Store | ir.AtomicUpdate):
        yield stmt.buffer
    elif isinstance(stmt, ir.Reduce):
        yield from stmt.buffers


def read_by(stmt: ir.Stmt, site: Site) -> Iterator[ir.Buffer]:
    """The buffers that a statement itself reads, including uninitialized states."""
    for expr in evaluated(stmt):
        yield from (load.buffer for load in _loads(expr))
    if isinstance(stmt, ir.AtomicUpdate):
        yield stmt.buffer
    elif isinstance(stmt, ir.Reduce) and not _starts(site):
        yield from stmt.buffers


def _starts(site: Site) -> bool:
    """Whether the enclosing block initializes the state that it reduces into."""
    block = site.block
    if block is None or not any(axis.kind == "reduction" for axis in block.axes):
        return False
    return block.init != ir.Seq(())


def _loads(node: ir.Stmt | ir.Expr) -> Iterator[ir.Load]:
    """The loads below a node that access memory, unlike a prefetch's argument."""
    if isinstance(node, ir.Call) and node.name == "prefetch":
        return
    if isinstance(node, ir.Load):
        yield node
    below = operands(node) if isinstance(node, ir.Expr) else children(node)
    for child in below:
        if isinstance(child, ir.Expr | ir.Stmt):
            yield from _loads(child)


def _written_places(body: ir.Stmt, name: str) -> Iterator[tuple[ir.Expr, ...]]:
    for inner in walk(body):
        if isinstance(inner, ir.Store | ir.AtomicUpdate | ir.Reduce) and any(
            buffer.name == name for buffer in written_by(inner)
        ):
            yield inner.indices


def _maybe_later_round(buffer: ir.Buffer, site: Site) -> bool:
    """Whether an earlier iteration may have written, subject to a guard."""
    for place, outer in enumerate(site.around):
        if isinstance(outer, ir.For | ir.While) and any(
            map(_tests, site.around[place:])
        ):
            return any(written.name == buffer.name for written in writes(outer))
    return False


def _tests(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.If) or (
        isinstance(stmt, ir.Block) and stmt.where is not None
    )
