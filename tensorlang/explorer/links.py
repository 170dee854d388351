"""Tags that link the lines of definition, scheduled and lowered IR.

The tags are the blocks, loops and allocations of the scheduled IR. A line has its `own`
tags, and those of the loops `around` it. The rules are right rather than complete:

* A block of the definition carries a mark through all steps of the schedule, so the
  blocks made from it are known; a loop of the definition became those loops that the
  same axis of these blocks is computed from.
* Lowering keeps the names of loops and buffers: a lowered store is of the blocks that
  write its buffer inside of the same loops, a loop is the one of its name. What has no
  counterpart, such as a value with a name, belongs to the statements that use it.

A line that may be of several blocks has the tags of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tensorlang.explorer.lines import Line
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.visit import children, statements, transform_statements
from tensorlang.scheduling.trace import Trace

_TAIL: Final = "_tail"  # of names that `partition` gives to what it splits off
_NONE: Final[frozenset[str]] = frozenset()


@frozen
class Tags:
    """What a line is of, and what it is inside of."""

    own: frozenset[str] = _NONE
    around: frozenset[str] = _NONE


@dataclass
class Scheduled:
    """The scheduled function's blocks and loops, and the definition they come from."""

    function: ir.Function
    loops: dict[str, frozenset[str]] = field(default_factory=dict)
    blocks: dict[str, list[ir.Block]] = field(default_factory=dict)
    around: dict[str, frozenset[str]] = field(default_factory=dict)
    writers: dict[str, list[str]] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)
    buffers: set[str] = field(default_factory=set)


def marked(function: ir.Function) -> ir.Function:
    """A definition whose blocks carry their names through a schedule."""

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        return replace(stmt, line=stmt.name) if isinstance(stmt, ir.Block) else stmt

    return transform_statements(function, visit)


def scheduled(definition: ir.Function, trace: Trace) -> Scheduled:
    """What a trace makes of a definition."""
    found = Scheduled(trace.replay(marked(definition)))
    _visit(found.function.body, (), found)
    return found


def _visit(stmt: ir.Stmt, loops: tuple[str, ...], found: Scheduled) -> None:
    if isinstance(stmt, ir.For):
        found.loops.setdefault(stmt.var.name, frozenset(loops))
        loops = (*loops, stmt.var.name)
    elif isinstance(stmt, ir.Alloc):
        found.buffers.add(stmt.buffer.name)
    elif isinstance(stmt, ir.Block):
        found.blocks.setdefault(stmt.line, []).append(stmt)
        found.around[stmt.name] = frozenset(loops)
        for buffer in writes(stmt):
            found.writers.setdefault(buffer.name, []).append(stmt.name)
        for buffer in reads(stmt):
            found.readers.setdefault(buffer.name, []).append(stmt.name)
        return
    for inner in statements(stmt):
        _visit(inner, loops, found)


def block(name: str) -> str:
    """The tag of a block."""
    return f"block {name}"


def loop(name: str) -> str:
    """The tag of a loop."""
    return f"loop {name}"


def buffer(name: str) -> str:
    """The tag of an allocation."""
    return f"buffer {name}"


def of_scheduled(lines: Sequence[Line]) -> list[Tags]:
    """The tags of the lines of a scheduled function."""
    return [
        Tags(_named(line.path[-1:]) or _named(_blocks(line.path)), _named(line.path))
        for line in lines
    ]


def _blocks(path: Iterable[ir.Stmt]) -> list[ir.Block]:
    return [stmt for stmt in path if isinstance(stmt, ir.Block)]


def _named(path: Iterable[ir.Stmt]) -> frozenset[str]:
    """The tags of loops, blocks and allocations among statements."""
    found = set()
    for stmt in path:
        match stmt:
            case ir.For(var=var):
                found.add(loop(var.name))
            case ir.Block(name=name):
                found.add(block(name))
            case ir.Alloc(buffer=ir.Buffer(name=name)):
                found.add(buffer(name))
    return frozenset(found)


def of_definition(lines: Sequence[Line], made: Scheduled) -> list[Tags]:
    """The tags of the lines of a definition."""
    below = {
        name: frozenset(block(each.name) for each in made.blocks.get(name, ()))
        for name in {each.name for line in lines for each in _blocks(line.path)}
    }
    became = _loops_of({each for line in lines for each in _blocks(line.path)}, made)
    found = []
    for line in lines:
        around = [became.get(s.var, _NONE) for s in line.path if isinstance(s, ir.For)]
        blocks = _union(below[each.name] for each in _blocks(line.path))
        own = around[-1] if isinstance(line.stmt, ir.For) else blocks
        if isinstance(line.stmt, ir.Alloc):
            own = _named((line.stmt,))
        found.append(Tags(own, _union(around) | blocks))
    return found


def _loops_of(
    blocks: Iterable[ir.Block], made: Scheduled
) -> Mapping[ir.Var, frozenset[str]]:
    """The scheduled loops that each loop of a definition became."""
    found: dict[ir.Var, frozenset[str]] = defaultdict(frozenset)
    for origin in blocks:
        axes = {axis.var.name: axis.value for axis in origin.axes}
        for each in made.blocks.get(origin.name, ()):
            for axis in each.axes:
                source = axes.get(_stem(axis.var.name))
                if isinstance(source, ir.Var):
                    names = {v.name for v in free_vars(axis.value)} & made.loops.keys()
                    found[source] |= frozenset(map(loop, names))
    return found


def _stem(name: str) -> str:
    while name.endswith(_TAIL):
        name = name.removesuffix(_TAIL)
    return name


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def of_lowered(lines: Sequence[Line], made: Scheduled) -> list[Tags]:
    """The tags of the lines of a lowered function."""
    owners = _Owners(made)
    paths = {line.number: line.path for line in lines if line.path}
    for path in paths.values():
        owners.write(path)
    owners.follow(list(paths.values())[::-1])
    return [owners.tags(line.path) if line.path else Tags() for line in lines]


class _Owners:
    """The blocks that lowered statements belong to.

    `of` has them by the statements' identity, `users` those that use a name further on.
    """

    def __init__(self, made: Scheduled) -> None:
        self.made = made
        self.of: dict[int, frozenset[str]] = defaultdict(frozenset)
        self.users: dict[str, frozenset[str]] = defaultdict(frozenset)

    def loops(self, path: Iterable[ir.Stmt]) -> frozenset[str]:
        """The scheduled loops among statements."""
        names = (stmt.var.name for stmt in path if isinstance(stmt, ir.For))
        return frozenset(name for name in names if name in self.made.loops)

    def write(self, path: Sequence[ir.Stmt]) -> None:
        """Assign a statement that writes a buffer of the schedule."""
        stmt = path[-1]
        if isinstance(stmt, (ir.Store, ir.AtomicUpdate)):
            writers = self.made.writers.get(stmt.buffer.name, [])
            self.of[id(stmt)] |= self.inside(writers, path)

    def inside(self, blocks: Iterable[str], path: Sequence[ir.Stmt]) -> frozenset[str]:
        """The blocks that are inside of all loops around a statement."""
        loops = self.loops(path)
        return frozenset(name for name in blocks if loops <= self.made.around[name])

    def follow(self, paths: Sequence[tuple[ir.Stmt, ...]]) -> None:
        """Assign what has a name, or is stored in passing, to its users: last first."""
        for path in paths:
            stmt = path[-1]
            own = self.of[id(stmt)] | self.below(stmt)
            match stmt:
                case ir.Let(var=var):  # another value may have had the name before
                    own |= self.users.pop(var.name, _NONE)
                case ir.Store(buffer=ir.Buffer(name=name)) if not own:
                    own = self.users[name]
                case ir.Evaluate():
                    readers = self.made.readers
                    found = (readers.get(each.name, ()) for each in reads(stmt))
                    own |= _union(self.inside(names, path) for names in found)
            self.of[id(stmt)] = own
            for name in _used(stmt):
                self.users[name] |= own

    def below(self, stmt: ir.Stmt) -> frozenset[str]:
        """The blocks of the statements inside of another one."""
        return _union(
            self.below(inner) if isinstance(inner, ir.Seq) else self.of[id(inner)]
            for inner in statements(stmt)
        )

    def tags(self, path: Sequence[ir.Stmt]) -> Tags:
        """The tags of a line."""
        stmt = path[-1]
        own = _named((stmt,)) if self.loops((stmt,)) or self.known(stmt) else _NONE
        blocks = self.of[id(stmt)]
        around = _named(s for s in path if self.loops((s,)))
        shared = [self.made.around[name] for name in blocks]
        common = frozenset.intersection(*shared) if shared else _NONE
        tags = frozenset(map(block, blocks))
        return Tags(own or tags, around | frozenset(map(loop, common)) | tags)

    def known(self, stmt: ir.Stmt) -> bool:
        """Whether a statement allocates a buffer of the schedule."""
        return isinstance(stmt, ir.Alloc) and stmt.buffer.name in self.made.buffers


def _used(stmt: ir.Stmt) -> Iterator[str]:
    """The variables and buffers that a statement's own values are computed from."""
    for child in children(stmt):
        if not isinstance(child, (ir.Stmt, ir.Buffer)):
            yield from (var.name for var in free_vars(child))
            yield from (each.name for each in reads(child))
