"""Drop masks on lanes of private scratch that are never read.

A ragged tile keeps its last vector in a whole register, of which some lanes are unused.
A masked store preserves them by a select in every step of a reduction, which costs more
than the product. If no load reads the masked-off lanes, the store writes all lanes, and
its value may be arbitrary there.

    store(t[ramp(0, 1, 16)], fma(a, b, load(t[ramp(0, 1, 16)], mask=m)), mask=m)
 -> store(t[ramp(0, 1, 16)], fma(a, b, t[ramp(0, 1, 16)]))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tensorlang.codegen.storage import on_stack
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations
from tensorlang.ir.operations import COMPARISONS, INTEGERS
from tensorlang.ir.visit import (
    children,
    nodes_of,
    rebuild,
    rebuild_statements,
    rewriter,
)

Lanes: TypeAlias = tuple[ir.Scalar, ...]  # the value of each lane
_BITS: Final = ("and", "or")


def drop_dead_lanes(function: ir.Function) -> ir.Function:
    """The function without masks that only protect lanes which are never read."""
    if not has_masks(function):
        return function
    masks = _Masks()
    masks.visit(function.body)
    for access in masks.varying:
        masks.constant.pop(access, None)
    if not masks.constant:
        return function
    live = _live(function, masks)
    return replace(function, body=_rewritten(function.body, masks, live))


def has_masks(function: ir.Function) -> bool:
    """Whether any access is masked."""
    body = function.body
    return any(load.mask is not None for load in nodes_of(body, ir.Load)) or any(
        store.mask is not None for store in nodes_of(body, ir.Store)
    )


@dataclass(slots=True)
class _Masks:
    """Constant masks, by the id of their access."""

    values: dict[ir.Var, Lanes] = field(default_factory=dict)
    constant: dict[int, Lanes] = field(default_factory=dict)
    varying: set[int] = field(default_factory=set)

    def visit(self, node: ir.Node) -> None:
        """Record the masks below a statement; lets precede their uses."""
        match node:
            case ir.Seq(stmts=stmts):
                for stmt in stmts:
                    self.visit(stmt)
            case ir.Let(var=var, value=value):
                self._note(value)
                known = self.lanes(value) if var.dtype.is_bool else None
                self.values.pop(var, None)
                if known is not None:
                    self.values[var] = known
            case ir.Store():
                self._note(node)
            case _:
                for child in children(node):
                    self.visit(child) if isinstance(child, ir.Stmt) else self._note(
                        child
                    )

    def _note(self, node: ir.Node) -> None:
        accesses: list[ir.Load | ir.Store] = (
            [node] if isinstance(node, ir.Store) else []
        )
        for access in (*accesses, *nodes_of(node, ir.Load)):
            if access.mask is not None:
                known = self.lanes(access.mask)
                if known is None or self.constant.get(id(access), known) != known:
                    self.varying.add(id(access))  # or a shared node with two masks
                else:
                    self.constant[id(access)] = known

    def lanes(self, expr: ir.Expr) -> Lanes | None:
        """The value of a condition in each lane; None if it is not constant."""
        match expr:
            case ir.Var():
                return self.values.get(expr)
            case ir.Const(value=value):
                return (value,)
            case ir.Splat(value=ir.Const(value=value), lanes=count):
                return (value,) * count
            case ir.Ramp(
                base=ir.Const(value=first), stride=ir.Const(value=step), lanes=count
            ):
                return tuple(first + step * lane for lane in range(count))
            case ir.Compare(op=op, a=a, b=b):
                return self._both(COMPARISONS[op], a, b)
            case ir.Binary(op=op, a=a, b=b) if op in _BITS:
                return self._both(INTEGERS[op], a, b)
            case ir.Unary(op="not", a=a) if a.dtype.is_bool:
                known = self.lanes(a)
                return None if known is None else tuple(not lane for lane in known)
        return None

    def _both(self, op: Callable[..., bool], a: ir.Expr, b: ir.Expr) -> Lanes | None:
        left, right = self.lanes(a), self.lanes(b)
        if left is None or right is None:
            return None
        return tuple(op(x, y) for x, y in zip(left, right, strict=True))


def _places(access: ir.Load | ir.Store) -> list[int] | None:
    """The element of each lane; None if not constant."""
    if len(access.indices) != 1:
        return None
    match access.indices[0]:
        case ir.Ramp(
            base=ir.Const(value=first), stride=ir.Const(value=step), lanes=count
        ):
            return [int(first) + int(step) * lane for lane in range(count)]
        case ir.Const(value=place):
            return [int(place)]
    return None


def _live(function: ir.Function, masks: _Masks) -> dict[ir.Buffer, set[int]]:
    """Elements that loads may read of temporaries that are stored to with masks.

    Without those of unknown access.
    """
    masked = {s.buffer for s in nodes_of(function.body, ir.Store) if s.mask is not None}
    live: dict[ir.Buffer, set[int]] = {
        buffer: set()
        for buffer in allocations(function.body)
        if buffer in masked and on_stack(buffer)
    }
    for update in nodes_of(function.body, ir.AtomicUpdate):
        live.pop(update.buffer, None)
    for node in nodes_of(function.body, ir.Load):
        if node.buffer not in live:
            continue
        places = _places(node)
        if places is None:
            live.pop(node.buffer)
            continue
        active = masks.constant.get(id(node), (True,) * len(places))
        live[node.buffer].update(p for p, on in zip(places, active, strict=True) if on)
    return live


def _rewritten(
    body: ir.Stmt, masks: _Masks, live: dict[ir.Buffer, set[int]]
) -> ir.Stmt:
    def dead(store: ir.Store) -> bool:
        """Whether the lanes that the mask preserves are never read."""
        off, places = masks.constant.get(id(store)), _places(store)
        if off is None or places is None or store.buffer not in live:
            return False
        (extent,) = store.buffer.shape
        inside = isinstance(extent, ir.Const) and max(places) < extent.value
        kept = {place for place, on in zip(places, off, strict=True) if not on}
        return inside and min(places) >= 0 and not kept & live[store.buffer]

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Store) and stmt.mask is not None and dead(stmt):
            value = _anything(stmt.value, masks, masks.constant[id(stmt)])
            return replace(stmt, value=value, mask=None)
        return rebuild_statements(stmt, visit)

    return visit(body)


def _anything(expr: ir.Expr, masks: _Masks, active: Lanes) -> ir.Expr:
    """A value that may be arbitrary in lanes outside of `active`."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        match node:
            case ir.Load(buffer=buffer, mask=ir.Expr()) if on_stack(buffer):
                known, places = masks.constant.get(id(node)), _places(node)
                same = known == active and places is not None
                return replace(node, mask=None) if same else node
            case ir.Binary() | ir.Unary() | ir.Call() | ir.Select() | ir.Cast():
                return rebuild(node, visit)
        return node

    return visit(expr)
