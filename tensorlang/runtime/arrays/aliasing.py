"""In-place analysis: which outputs may be the same array as an input.

Kernel pointers are `noalias`, so an output may alias an input only if the difference is
unobservable: the input is read only at the element that is stored, before the store and
in the same statement or block, and no element is stored twice. Where a schedule has
split a nest into parts, their elements must be shown to be disjoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, touches
from tensorlang.ir.integers.bounds import Range, counted, prove
from tensorlang.ir.integers.digits import fixed
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import children, substitute, walk


@frozen(eq=False)
class _Part:
    """A place where the output is stored: a block, or a statement outside any block."""

    around: tuple[ir.Node, ...]  # path of nodes from the function's body down to it
    # store indices, in terms of the enclosing loops' variables
    indices: tuple[ir.Expr, ...]

    @property
    def loops(self) -> tuple[ir.For, ...]:
        """The enclosing loops, outermost first."""
        return tuple(node for node in self.around if isinstance(node, ir.For))


def safe_aliases(func: ir.Function) -> tuple[tuple[int, int], ...]:
    """Pairs of parameter positions `(out, in)` that may be exactly the same array."""
    return tuple(
        (i, j)
        for i, out in enumerate(func.params)
        if out.role == "out"
        for j, source in enumerate(func.params)
        if source.role == "in" and _safe(func, out.buffer, source.buffer)
    )


def _safe(func: ir.Function, out: ir.Buffer, source: ir.Buffer) -> bool:
    if (out.dtype, out.shape) != (source.dtype, source.shape):
        return False
    parts = []
    for around in _places(func.body, out, source):
        part = _part(around, out, source)
        if part is None or not _visits_once(part):
            return False
        parts.append(part)
    return bool(parts) and all(_disjoint(*two, func) for two in combinations(parts, 2))


def _places(
    node: ir.Node, out: ir.Buffer, source: ir.Buffer
) -> Iterator[tuple[ir.Node, ...]]:
    """Paths to the innermost blocks (or statements outside blocks) touching either."""
    if isinstance(node, ir.Stmt) and not (touches(node, out) or touches(node, source)):
        return
    inner = [path for child in children(node) for path in _places(child, out, source)]
    whole = isinstance(node, ir.Block) and not any(
        isinstance(n, ir.Block) for path in inner for n in path
    )
    if _touches(node, out, source) or (inner and whole):
        yield (node,)
        return
    for path in inner:
        yield (node, *path)


def _touches(node: ir.Node, out: ir.Buffer, source: ir.Buffer) -> bool:
    """Whether the node itself reads or writes one of the two buffers."""
    if isinstance(node, (ir.Store, ir.Load, ir.AtomicUpdate)):
        return node.buffer in (out, source)
    return isinstance(node, ir.Reduce) and bool({out, source} & set(node.buffers))


def _part(
    around: tuple[ir.Node, ...], out: ir.Buffer, source: ir.Buffer
) -> _Part | None:
    """The part at the end of a path; None unless it is a single plain update."""
    last = around[-1]
    body: ir.Node = last.body if isinstance(last, ir.Block) else last
    *before, store = body.stmts if isinstance(body, ir.Seq) else (body,)
    if not isinstance(store, ir.Store) or store.buffer != out:
        return None
    again = any(isinstance(node, ir.While) for node in around)
    if again or not all(isinstance(stmt, ir.Let) for stmt in before):
        return None
    touching = [n for n in walk(last) if n is not store and _touches(n, out, source)]
    if not all(
        isinstance(n, ir.Load) and n.buffer == source and n.indices == store.indices
        for n in touching
    ):
        return None
    if not isinstance(last, ir.Block):
        return _Part(around, store.indices)
    values = {axis.var: axis.value for axis in last.axes}
    named = {index for index in store.indices if index in values}
    if len(named) != len(values) or any(isinstance(n, ir.Block) for n in around[:-1]):
        return None
    return _Part(around, tuple(substitute(i, values) for i in store.indices))


# ------------------------------------------------------------- disjointness


def _visits_once(part: _Part) -> bool:
    """Whether two iterations never store the same element."""
    return _fixes(part.indices, part.loops)


def _fixes(indices: Sequence[ir.Expr], loops: Sequence[ir.For]) -> bool:
    """Whether the indices determine all loop variables (the map is injective)."""
    extents = {
        loop.var: int(loop.extent.value) if isinstance(loop.extent, ir.Const) else None
        for loop in loops
    }
    found = fixed([(index, index) for index in indices], extents)
    return found is None or found >= extents.keys()


def _disjoint(a: _Part, b: _Part, func: ir.Function) -> bool:
    """Whether two parts never store the same element."""
    shared = 0
    while a.around[shared] is b.around[shared]:
        shared += 1
    above = a.around[:shared]
    loops = [node for node in above if isinstance(node, ir.For)]
    fork, fixed_for_all = above[-1], frozenset(func.scalars)
    if isinstance(fork, ir.If) and free_vars(fork.cond) <= fixed_for_all:
        return True  # loop-invariant condition: only one of the two branches runs
    names = _other_names(b, loops)
    pairs = [
        (i, substitute(j, names)) for i, j in zip(a.indices, b.indices, strict=True)
    ]
    outside = fixed_for_all | {loop.var for loop in loops}
    same = [i for i, j in pairs if i == j and free_vars(i) <= outside]
    known = _ranges(b, names, _ranges(a, {}, size_ranges(func)))
    return _fixes(same, loops) and any(
        prove(i < j, known) or prove(j < i, known) for i, j in pairs
    )


def _other_names(part: _Part, shared: Sequence[ir.For]) -> dict[ir.Var, ir.Expr]:
    """Fresh names for a part's unshared loops; sibling loops may share names."""
    own = part.loops[len(shared) :]
    return {loop.var: ir.Var(f"{loop.var.name}'", loop.var.dtype) for loop in own}


def _ranges(
    part: _Part, names: Mapping[ir.Var, ir.Expr], known: Mapping[ir.Var, Range]
) -> dict[ir.Var, Range]:
    """`known`, extended by the ranges of the part's loops under their new names."""
    ranges: dict[ir.Var, Range] = dict(known)
    for loop in part.loops:
        var = names.get(loop.var, loop.var)
        assert isinstance(var, ir.Var)
        ranges[var] = counted(simplify(substitute(loop.extent, names), ranges))
    return ranges
