"""Loop-carried dependences: two iterations touch one element, and one of them writes.

They follow from the indices (`digits`) and from the axis kinds of blocks: instances
along `disjoint` axes never conflict, those along `ordered` and `opaque` ones keep their
order, and a commutative reduction may combine its terms in any order that begins with
its initialization. Temporaries allocated inside the loops are private to an iteration
and carry nothing, except `shared` ones among threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations_with_replacement, product
from typing import Any, Final

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import ACCESSES, buffers_of
from tensorlang.ir.contents import allocations, contents, free_vars, writes
from tensorlang.ir.integers.bounds import bounds
from tensorlang.ir.integers.digits import fixed, never_behind
from tensorlang.ir.integers.indices import Extents
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.visit import children, holds, nodes_of, substitute, walk
from tensorlang.scheduling.analysis.tree import Path, constant, enclosing_loops

MEETINGS = (ir.Barrier, ir.Role, ir.BarrierObject, ir.Arrive, ir.Wait)
COMMUTING_ATOMICS = ("min", "max", "and", "or", "xor")
_UNLIMITED: Final = 1 << 48
_KEPT: Final = 1 << 10  # cached scans of blocks: most steps leave blocks unchanged


@frozen
class Touch:
    """An access: its buffer, its kind, and its indices in terms of loops.

    Inside a block (`block` is its name), `own` are the indices in terms of its axes.
    """

    buffer: ir.Buffer
    indices: tuple[ir.Expr, ...]
    own: tuple[ir.Expr, ...]
    block: str
    writes: bool
    atomic: str = ""
    folds: bool = False


@frozen
class Dependence:
    """The loops (of those in question) that may carry a dependence, and why.

    For a commutative reduction, `place` holds the variables in its state's indices.
    """

    loops: frozenset[ir.Var]
    why: str
    reduction: bool = False
    place: frozenset[ir.Var] = frozenset()


@dataclass(slots=True)
class _Scan:
    """The accesses under a statement, its outermost blocks, and loops on the way."""

    touches: list[Touch] = field(default_factory=list)
    blocks: dict[str, ir.Block] = field(default_factory=dict)
    extents: dict[ir.Var, int | None] = field(default_factory=dict)
    around: frozenset[ir.Var] = frozenset()

    def visit(self, node: ir.Node, env: Mapping[ir.Var, ir.Expr], block: str) -> None:
        """Record every access at or below `node`; `env` maps variables to values."""
        match node:
            case ir.Buffer():
                return
            case ir.Seq(stmts=stmts):
                env = dict(env)
                for stmt in stmts:
                    self.visit(stmt, env, block)
                    if isinstance(stmt, ir.Let):
                        env[stmt.var] = substitute(stmt.value, env)
                return
            case ir.For(var=var, extent=extent):
                self.extents[var] = _widest(self.extents, var, _most(extent))
            case ir.Block() if not block:
                self._outermost(node, env)
                return
            case ir.Block():
                inner = {axis.var: substitute(axis.value, env) for axis in node.axes}
                self._visit_block(node, {**env, **inner}, block)
                return
            case _:
                self._touch(node, env, block)
        for child in children(node):
            if isinstance(child, ir.Stmt):
                self.visit(child, env, block)
                continue
            for load in nodes_of(child, ir.Load):
                self._touch(load, env, block)

    def _outermost(self, node: ir.Block, env: Mapping[ir.Var, ir.Expr]) -> None:
        """Scan an outermost block, through the cache if no `Let` is in scope."""
        if env:
            self.blocks[node.name] = _placed_axes(node, env)
            self._visit_block(node, env, node.name)
            return
        seen = _block(node)
        self.blocks[node.name] = node
        self.touches += seen.touches
        for var, extent in seen.extents.items():
            self.extents[var] = _widest(self.extents, var, extent)

    def _visit_block(
        self, node: ir.Block, env: Mapping[ir.Var, ir.Expr], block: str
    ) -> None:
        """A block; initializing a reduction's state counts as part of the reduction."""
        if node.init is not None:
            first = len(self.touches)
            self.visit(node.init, env, block)
            folded = (n.buffers for n in walk(node.body) if isinstance(n, ir.Reduce))
            state = {buffer for buffers in folded for buffer in buffers}
            self.touches[first:] = [
                replace(touch, folds=touch.writes and touch.buffer in state)
                for touch in self.touches[first:]
            ]
        for child in (*node.axes, node.where, node.body):
            if child is not None:
                self.visit(child, env, block)

    def _touch(self, node: ir.Node, env: Mapping[ir.Var, ir.Expr], block: str) -> None:
        if not isinstance(node, ACCESSES):
            return
        own = tuple(substitute(index, env) for index in node.indices)
        axes = self.blocks[block].axes if block else ()
        values = {axis.var: axis.value for axis in axes}
        indices = tuple(substitute(index, values) for index in own)
        for buffer in buffers_of(node):
            touch = Touch(buffer, indices, own, block, not isinstance(node, ir.Load))
            self.touches.append(replace(touch, **_how(node)))


@lru_cache(maxsize=_KEPT)
def _block(node: ir.Block) -> _Scan:
    """The accesses in a block, cached; do not modify them."""
    scan = _Scan(blocks={node.name: node})
    scan._visit_block(node, {}, node.name)  # noqa: SLF001 - its own kind
    return scan


def _how(node: ir.Node) -> dict[str, Any]:
    """How a node writes."""
    match node:
        case ir.AtomicUpdate(buffer=buffer, op=op):
            exact = buffer.dtype.is_integer or op in COMMUTING_ATOMICS
            return {"atomic": op if exact else ""}
    return {"folds": isinstance(node, ir.Reduce)}


@lru_cache(maxsize=_KEPT)
def _most(extent: ir.Expr) -> int | None:
    """An upper bound on a loop's extent; None if only its dtype bounds it."""
    if (exact := constant(extent)) is not None:
        return exact
    _, high = bounds(extent)
    return high if high is not None and high < _UNLIMITED else None


def _widest(extents: Extents, var: ir.Var, extent: int | None) -> int | None:
    known = extents.get(var, 0)
    return None if known is None or extent is None else max(known, extent)


def _placed_axes(block: ir.Block, env: Mapping[ir.Var, ir.Expr]) -> ir.Block:
    axes = tuple(
        replace(axis, value=substitute(axis.value, env)) for axis in block.axes
    )
    return replace(block, axes=axes)


def dependences(
    path: Path, chain: Sequence[ir.For], *, threads: bool = False
) -> Iterator[Dependence]:
    """The dependences that the loops of a perfect nest may carry.

    Args:
        path: The path to the outermost loop.
        chain: The loops, outermost first.
        threads: Whether iterations are threads, which have one `shared` memory.
    """
    body = chain[-1].body
    scan = _Scan(around=frozenset(loop.var for loop in enclosing_loops(path)))
    for loop in chain:
        scan.extents[loop.var] = _most(loop.extent)
    scan.visit(body, {}, "")
    inside = allocations(body)
    private = frozenset(b for b in inside if not (threads and b.scope == "shared"))
    loops = frozenset(loop.var for loop in chain)
    for block in scan.blocks.values():
        yield from _in_order(block, loops)
    yield from _between(scan, loops, private)
    if _meets(body):
        yield Dependence(loops, "threads wait inside, for others or for copies")


def meetings(a: ir.Stmt, b: ir.Stmt, around: Collection[ir.Var]) -> Iterator[str]:
    """Conflicts between `a` and `b` in different iterations of loops.

    Args:
        a: A statement.
        b: Another one, using the same loop variables.
        around: The variables of the loops.
    """
    scans = [_Scan(), _Scan()]
    extents: dict[ir.Var, int | None] = dict.fromkeys(around)
    for scan, stmt in zip(scans, (a, b), strict=True):
        scan.visit(stmt, {}, "")
        for var, extent in scan.extents.items():
            extents[var] = _widest(extents, var, extent)
    private = frozenset((*allocations(a), *allocations(b)))
    for one, other in product(*(dict.fromkeys(scan.touches) for scan in scans)):
        if one.buffer not in private and _may_conflict(one, other):
            pairs = zip(one.indices, other.indices, strict=True)
            agreed = fixed(pairs, extents)
            if agreed is not None and not agreed.issuperset(around):
                yield _meeting(one, other)
    if _meets(a) or _meets(b):
        yield "threads wait inside, for others or for copies"


def _meets(stmt: ir.Stmt) -> bool:
    """Whether threads wait in a statement, for each other or for their copies."""
    waits = any(holds(stmt, kind) for kind in MEETINGS)
    return waits or not contents(stmt).calls.isdisjoint(COPY_SYNCS)


def accesses(func: ir.Function, buffer: ir.Buffer) -> tuple[list[Touch], Extents]:
    """Every access of a buffer, and the extents of all loops."""
    scan = _Scan()
    scan.visit(func.body, {}, "")
    return [t for t in scan.touches if t.buffer == buffer], scan.extents


def _in_order(block: ir.Block, loops: frozenset[ir.Var]) -> Iterator[Dependence]:
    """The loops that drive axes with ordered instances."""
    values = _values(block, ("ordered", "opaque"))
    carried = loops.intersection(*[frozenset().union(*map(free_vars, values))])
    if carried and not _updates_atomically(block):
        yield Dependence(carried, f"block {block.name!r} runs in order")


def _updates_atomically(block: ir.Block) -> bool:
    """Whether a block writes only by atomic updates, one per buffer."""
    private = frozenset(allocations(block.body))
    updates = [n.buffer for n in walk(block.body) if isinstance(n, ir.AtomicUpdate)]
    read = {node.buffer for node in walk(block.body) if isinstance(node, ir.Load)}
    others = {
        buffer
        for node in walk(block.body)
        if isinstance(node, ir.Store | ir.Reduce)
        for buffer in writes(node)
    }
    whole = len(updates) == len(set(updates)) > 0
    return whole and others <= private and not read & set(updates)


def _values(block: ir.Block, kinds: tuple[str, ...]) -> list[ir.Expr]:
    return [axis.value for axis in block.axes if axis.kind in kinds]


def folds(block: ir.Block) -> bool:
    """Whether all writes of a block go through commutative reducers."""
    found = [node for node in walk(block.body) if isinstance(node, ir.Reduce)]
    private = frozenset(allocations(block.body))
    stored = {
        node.buffer
        for node in walk(block.body)
        if isinstance(node, (ir.Store, ir.AtomicUpdate))
    }
    commuting = all(node.reducer.commutative for node in found)
    return bool(found) and commuting and stored <= private


def _between(
    scan: _Scan, loops: frozenset[ir.Var], private: frozenset[ir.Buffer]
) -> Iterator[Dependence]:
    """Conflicts between two accesses in different iterations."""
    shared = [t for t in dict.fromkeys(scan.touches) if t.buffer not in private]
    written = {touch.buffer for touch in shared if touch.writes}
    shared = [touch for touch in shared if touch.buffer in written]
    for a, b in combinations_with_replacement(shared, 2):
        if not _may_conflict(a, b):
            continue
        block = scan.blocks[a.block] if a.block and a.block == b.block else None
        pairs = [*zip(a.indices, b.indices, strict=True)]
        told = [] if block is None else _told_apart(block, a, b, scan.extents)
        agreed = fixed([*pairs, *zip(told, told, strict=True)], scan.extents)
        if agreed is None or loops <= agreed:
            continue
        found = Dependence(loops - agreed, _meeting(a, b))
        if block is not None and a.folds and b.folds and a.indices == b.indices:
            found = _of_a_fold(block, found, (*a.indices, *told), scan)
        yield found


def _told_apart(block: ir.Block, a: Touch, b: Touch, extents: Extents) -> list[ir.Expr]:
    """The axis values on which two conflicting instances must agree.

    For `disjoint` axes that is declared, for others it follows from the indices.
    """
    sizes = {axis.var: _most(axis.extent) for axis in block.axes}
    agreed = fixed(zip(a.own, b.own, strict=True), {**extents, **sizes})
    return [
        axis.value
        for axis in block.axes
        if axis.kind == "disjoint" or agreed is None or axis.var in agreed
    ]


def _of_a_fold(
    block: ir.Block, found: Dependence, place: tuple[ir.Expr, ...], scan: _Scan
) -> Dependence:
    """The dependence of a state on itself: any order is valid if it commutes.

    Each term is combined once, and the first one, which initializes, comes first.
    """
    terms = _values(block, ("reduction",))
    agreed = fixed([(value, value) for value in (*place, *terms)], scan.extents)
    once = agreed is not None and found.loops <= agreed
    first = never_behind(place, terms, scan.extents, scan.around)
    begun = block.init == ir.Seq(()) or found.loops <= first
    why = "" if begun or not once else ", which one of them starts"
    return Dependence(
        found.loops,
        f"iterations meet in one element of block {block.name!r}{why}",
        reduction=once and begun and folds(block),
        place=frozenset().union(*map(free_vars, place)),
    )


def _may_conflict(a: Touch, b: Touch) -> bool:
    if a.buffer != b.buffer or not (a.writes or b.writes):
        return False
    return not (a.atomic and a.atomic == b.atomic)


def _meeting(a: Touch, b: Touch) -> str:
    def who(touch: Touch) -> str:
        place = f"block {touch.block!r}" if touch.block else "a statement"
        return f"{place} {'writes' if touch.writes else 'reads'}"

    return f"{who(a)} and {who(b)} one element of {a.buffer.name}"
