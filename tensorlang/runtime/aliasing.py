"""Which outputs may be the same array as an input.

A kernel's pointers are `noalias`, so an output that is also an input is safe only where
nothing can tell: one statement reads an element, computes, and writes the same element
of the output, and no element is visited twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.ir.nodes import (
    AtomicUpdate,
    Axis,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    Node,
    Reduce,
    Store,
    Var,
)
from tensorlang.ir.visit import children, walk


def safe_aliases(func: Function) -> tuple[tuple[int, int], ...]:
    """The pairs of positions `(out, in)` that may be exactly the same array."""
    return tuple(
        (i, j)
        for i, out in enumerate(func.params)
        if out.role == "out"
        for j, source in enumerate(func.params)
        if source.role == "in" and _safe(func, out.buffer, source.buffer)
    )


def _safe(func: Function, out: Buffer, source: Buffer) -> bool:
    if (out.dtype, out.shape) != (source.dtype, source.shape):
        return False
    touching = [n for n in walk(func.body) if _touches(n, out, source)]
    stores = [n for n in touching if isinstance(n, Store)]
    if len(stores) != 1:
        return False
    store = stores[0]
    inside = {id(n) for n in walk(store)}
    if not all(id(n) in inside for n in touching):
        return False
    loads = [n for n in touching if isinstance(n, Load)]
    same = all(n.buffer == source and n.indices == store.indices for n in loads)
    return same and _visits_once(func, store)


def _touches(node: Node, out: Buffer, source: Buffer) -> bool:
    """Whether a node reads or writes one of the two buffers."""
    if isinstance(node, (Store, Load, AtomicUpdate)):
        return node.buffer in (out, source)
    return isinstance(node, Reduce) and bool({out, source} & set(node.buffers))


def _visits_once(func: Function, store: Store) -> bool:
    """Whether every element is stored in one iteration at most, as the text shows."""
    path = next(_paths(func.body, store))
    loops = [n for n in path if isinstance(n, For)]
    blocks = [n for n in path if isinstance(n, Block)]
    if not blocks:
        return _covers(loops, list(store.indices))
    axes = {axis.var: axis for axis in blocks[-1].axes}
    named = [axes.get(i) if isinstance(i, Var) else None for i in store.indices]
    if len(blocks) > 1 or len(set(map(id, named))) != len(axes) or None in named:
        return False
    return _covers(loops, [a.value for a in named if isinstance(a, Axis)])


def _paths(node: Node, target: Node) -> Iterator[list[Node]]:
    """The nodes from `node` down to `target`."""
    if node is target:
        yield [node]
    for child in children(node):
        for path in _paths(child, target):
            yield [node, *path]


def _covers(loops: list[For], values: list[Expr]) -> bool:
    """Whether the values count through all loops as the digits of numbers do."""
    extents = {loop.var: loop.extent for loop in loops}
    used: list[Var] = []
    for value in values:
        terms = _terms(value)
        if terms is None or not _digits(terms, extents):
            return False
        used.extend(var for var, _ in terms)
    return len(used) == len(set(used)) == len(loops) and set(used) == set(extents)


def _terms(value: Expr) -> list[tuple[Var, int]] | None:
    """`i * 32 + j` as [(i, 32), (j, 1)]; None where it is no such sum."""
    match value:
        case Var():
            return [(value, 1)]
        case Const():
            return []
        case Binary("add", a, b):
            first, second = _terms(a), _terms(b)
            return None if first is None or second is None else first + second
        case Binary("mul", a, Const(factor)):
            inner = _terms(a)
            return inner and [(var, c * int(factor)) for var, c in inner]
        case _:
            return None


def _digits(terms: list[tuple[Var, int]], extents: dict[Var, Expr]) -> bool:
    """Whether each step is the product of the extents of all smaller steps."""
    step = 1
    ordered = sorted(terms, key=lambda term: term[1])
    for position, (var, factor) in enumerate(ordered):
        extent = extents.get(var)
        if factor < step or extent is None:
            return False
        last = position == len(ordered) - 1
        if not last and not isinstance(extent, Const):
            return False
        step = factor * int(extent.value) if isinstance(extent, Const) else factor
    return True
