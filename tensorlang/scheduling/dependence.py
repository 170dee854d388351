"""Which loops carry a dependence: two iterations touch one element, one of them writes.

Within one block the kinds of its axes decide: instances at different spatial points are
independent by declaration, and a commutative reduction may meet its terms in any order.
Between blocks, and for statements outside any block, the indices decide (`digits`).
Temporaries that live inside the loops are private to an iteration and carry nothing,
but for `shared` ones among threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, product

from tensorlang.ir.nodes import (
    Arrive,
    AtomicUpdate,
    Barrier,
    BarrierObject,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    Let,
    Load,
    Node,
    Reduce,
    Role,
    Seq,
    Stmt,
    Store,
    Var,
    Wait,
)
from tensorlang.ir.visit import (
    allocations,
    children,
    free_vars,
    substitute,
    walk,
    writes,
)
from tensorlang.scheduling.digits import fixed
from tensorlang.scheduling.slices import Extents
from tensorlang.scheduling.tree import constant

INDEPENDENT = ("spatial", "disjoint")
MEETINGS = (Barrier, Role, BarrierObject, Arrive, Wait)
COMMUTING_ATOMICS = ("min", "max", "and", "or", "xor")


@dataclass(frozen=True, slots=True)
class Touch:
    """An access in terms of loop variables: where, by which block, how."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    block: str
    writes: bool
    atomic: str = ""


@dataclass(frozen=True, slots=True)
class Dependence:
    """The loops (of those asked about) that may carry a dependence, and why.

    For a commutative reduction, `place` has the variables that its state's place uses.
    """

    loops: frozenset[Var]
    why: str
    reduction: bool = False
    place: frozenset[Var] = frozenset()


@dataclass(slots=True)
class _Scan:
    """The touches under a statement, its outermost blocks, and the loops on the way."""

    touches: list[Touch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    extents: dict[Var, int | None] = field(default_factory=dict)

    def visit(self, node: Node, env: dict[Var, Expr], block: str) -> None:
        """Record every access at or below `node`; `env` has the axes and lets."""
        match node:
            case Buffer():
                return
            case Seq(stmts=stmts):
                env = dict(env)
                for stmt in stmts:
                    self.visit(stmt, env, block)
                return
            case Let(var=var, value=value):
                self.visit(value, env, block)
                env[var] = substitute(value, env)
                return
            case For(var=var, extent=extent):
                self.extents[var] = _widest(self.extents, var, constant(extent))
            case Block(name=name):
                placed = _placed_axes(node, env)
                if not block:
                    self.blocks.append(placed)
                env = env | {axis.var: axis.value for axis in placed.axes}
                block = block or name
            case _:
                self.touches.extend(_touches(node, env, block))
        for child in children(node):
            self.visit(child, env, block)


def _widest(extents: Extents, var: Var, extent: int | None) -> int | None:
    known = extents.get(var, 0)
    return None if known is None or extent is None else max(known, extent)


def _placed_axes(block: Block, env: Mapping[Var, Expr]) -> Block:
    axes = tuple(
        replace(axis, value=substitute(axis.value, env)) for axis in block.axes
    )
    return replace(block, axes=axes)


def _touches(node: Node, env: Mapping[Var, Expr], block: str) -> Iterator[Touch]:
    match node:
        case Load(buffer=buffer, indices=indices):
            yield Touch(buffer, _placed(indices, env), block, writes=False)
        case Store(buffer=buffer, indices=indices):
            yield Touch(buffer, _placed(indices, env), block, writes=True)
        case AtomicUpdate(buffer=buffer, indices=indices, op=op):
            exact = buffer.dtype.is_integer or op in COMMUTING_ATOMICS
            place = _placed(indices, env)
            yield Touch(buffer, place, block, writes=True, atomic=op if exact else "")
        case Reduce(buffers=buffers, indices=indices):
            for buffer in buffers:
                yield Touch(buffer, _placed(indices, env), block, writes=True)


def _placed(indices: tuple[Expr, ...], env: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    return tuple(substitute(index, env) for index in indices)


def dependences(
    chain: Sequence[For], body: Stmt, *, threads: bool = False
) -> Iterator[Dependence]:
    """The dependences that the loops of a perfect nest may carry.

    Args:
        chain: The loops, outermost first.
        body: What the innermost of them runs.
        threads: Whether iterations are threads, which have one `shared` memory.
    """
    scan = _Scan()
    for loop in chain:
        scan.extents[loop.var] = constant(loop.extent)
    scan.visit(body, {}, "")
    inside = allocations(body)
    private = frozenset(b for b in inside if not (threads and b.scope == "shared"))
    loops = frozenset(loop.var for loop in chain)
    for block in scan.blocks:
        if not writes(block) <= private:
            yield from _within(block, loops, scan.extents)
    yield from _between(scan, loops, private)
    if any(isinstance(node, MEETINGS) for node in walk(body)):
        yield Dependence(loops, "a barrier stands inside")


def meetings(a: Stmt, b: Stmt, around: Collection[Var]) -> Iterator[str]:
    """Where `a` and `b` meet in one element in different iterations of loops.

    Args:
        a: A statement.
        b: Another one, by the same loop variables.
        around: The variables of the loops.
    """
    scans = [_Scan(), _Scan()]
    extents: dict[Var, int | None] = dict.fromkeys(around)
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
    if any(isinstance(node, MEETINGS) for stmt in (a, b) for node in walk(stmt)):
        yield "a barrier stands inside"


def accesses(func: Function, buffer: Buffer) -> tuple[list[Touch], Extents]:
    """Every access of a buffer, and the extents of all loops."""
    scan = _Scan()
    scan.visit(func.body, {}, "")
    return [t for t in scan.touches if t.buffer == buffer], scan.extents


def _within(
    block: Block, loops: frozenset[Var], extents: Extents
) -> Iterator[Dependence]:
    """Instances of one block: only those at the same spatial point depend."""
    if _updates_atomically(block):
        return
    carried = loops - _driven(block, INDEPENDENT, extents)
    if carried:
        folded = _driven(block, (*INDEPENDENT, "reduction"), extents)
        yield Dependence(
            carried,
            f"iterations meet in one element of block {block.name!r}",
            reduction=carried <= folded and folds(block),
            place=frozenset().union(*map(free_vars, _values(block, INDEPENDENT))),
        )


def _updates_atomically(block: Block) -> bool:
    """Whether all that a block writes are atomic updates, one of each buffer."""
    private = frozenset(allocations(block.body))
    updates = [n.buffer for n in walk(block.body) if isinstance(n, AtomicUpdate)]
    read = {node.buffer for node in walk(block.body) if isinstance(node, Load)}
    others = {
        buffer
        for node in walk(block.body)
        if isinstance(node, Store | Reduce)
        for buffer in writes(node)
    }
    whole = len(updates) == len(set(updates)) > 0
    return whole and others <= private and not read & set(updates)


def _driven(block: Block, kinds: tuple[str, ...], extents: Extents) -> frozenset[Var]:
    """The loops that the axes of these kinds follow one to one."""
    pairs = [(value, value) for value in _values(block, kinds)]
    return fixed(pairs, extents) or frozenset()


def _values(block: Block, kinds: tuple[str, ...]) -> list[Expr]:
    return [axis.value for axis in block.axes if axis.kind in kinds]


def folds(block: Block) -> bool:
    """Whether all a block writes goes through commutative reducers."""
    found = [node for node in walk(block.body) if isinstance(node, Reduce)]
    private = frozenset(allocations(block.body))
    stored = {
        node.buffer
        for node in walk(block.body)
        if isinstance(node, (Store, AtomicUpdate))
    }
    commuting = all(node.reducer.commutative for node in found)
    return bool(found) and commuting and stored <= private


def _between(
    scan: _Scan, loops: frozenset[Var], private: frozenset[Buffer]
) -> Iterator[Dependence]:
    """Accesses of different blocks, or outside blocks: where their indices meet."""
    shared = [t for t in dict.fromkeys(scan.touches) if t.buffer not in private]
    written = {touch.buffer for touch in shared if touch.writes}
    shared = [touch for touch in shared if touch.buffer in written]
    for a, b in combinations_with_replacement(shared, 2):
        if not _may_conflict(a, b):
            continue
        agreed = fixed(zip(a.indices, b.indices, strict=True), scan.extents)
        if agreed is not None and loops - agreed:
            yield Dependence(loops - agreed, _meeting(a, b))


def _may_conflict(a: Touch, b: Touch) -> bool:
    if a.buffer != b.buffer or not (a.writes or b.writes):
        return False
    if a.atomic and a.atomic == b.atomic:
        return False
    return not (a.block and a.block == b.block)


def _meeting(a: Touch, b: Touch) -> str:
    def who(touch: Touch) -> str:
        place = f"block {touch.block!r}" if touch.block else "a statement"
        return f"{place} {'writes' if touch.writes else 'reads'}"

    return f"{who(a)} and {who(b)} one element of {a.buffer.name}"
