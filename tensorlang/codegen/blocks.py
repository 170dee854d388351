"""Remove blocks: substitute axis values, turn `where` into `If`, place `init`.

    for k in range(K):                              s[i] = 0.0
        with block("b", vi=spatial(N, i),           for k in range(K):
                   vk=reduction(K, k)):       ->        reduce(sum, s[i], x[i, k])
            reduce(sum, s[vi], x[vi, vk])

The initialisation is hoisted before the outermost loop that a reduction axis depends
on, in a nest of the spatial loops below it. Where that is impossible (a fused loop that
is both, a loop whose bounds depend on a reduction), the first reduction instance does
it, under a guard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tensorlang.codegen.folding import fold
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.integers.bounds import bounds, counted
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification.conditions import conjunction, conjuncts
from tensorlang.ir.visit import rebuild, substitute, walk
from tensorlang.scheduling.analysis.coverage import first_only, injective

_MOST_ENUMERATED: Final = 1 << 18  # iterations to enumerate
_OTHERS: Final = (0, 5)  # values tried for the other variables


def remove_blocks(function: ir.Function) -> ir.Function:
    """The function as plain loops and statements."""
    state = _Placing({}, [])
    body = state.visit(function.body, ())
    return replace(function, body=body)


@dataclass
class _Placing:
    """`hoisted` maps a loop (by id) to the statements to insert before it."""

    hoisted: dict[int, list[ir.Stmt]]
    path: list[ir.Stmt]

    def visit(self, stmt: ir.Stmt, path: tuple[ir.Stmt, ...]) -> ir.Stmt:
        """`stmt` without blocks; `path` holds the enclosing statements."""
        match stmt:
            case ir.Block():
                return self.block(stmt, path)
            case ir.Seq():
                return ir.seq(*self._sequence(stmt, path))
            case _:
                inner = (*path, stmt)
                new = rebuild(
                    stmt,
                    lambda child: (
                        self.visit(child, inner)
                        if isinstance(child, ir.Stmt)
                        else child
                    ),
                )
                return ir.seq(*self.hoisted.pop(id(stmt), []), new)

    def _sequence(self, stmt: ir.Seq, path: tuple[ir.Stmt, ...]) -> list[ir.Stmt]:
        """Its statements; preceding allocations and lets count as enclosing."""
        found: list[ir.Stmt] = []
        for item in stmt.stmts:
            found.append(self.visit(item, path))
            if isinstance(item, (ir.Alloc, ir.Let)):
                path = (*path, item)
        return found

    def block(self, block: ir.Block, path: tuple[ir.Stmt, ...]) -> ir.Stmt:
        """A block's body on plain indices, with its init hoisted or guarded."""
        values = {axis.var: axis.value for axis in block.axes}
        body = self.visit(substitute(block.body, values), path)
        init = initial(block)
        if init is not None:
            init = substitute(init, values)
            place = find_place(block, path)
            if place is None:
                body = ir.seq(_guarded(init, _first_instance(block)), body)
            elif isinstance(place, Hoist):
                before = self.hoisted.setdefault(id(place.loop), [])
                before.append(place.wrap(init))
        return _guarded(body, block.where)


def _guarded(stmt: ir.Stmt, cond: ir.Expr | None) -> ir.Stmt:
    return stmt if cond is None else ir.If(cond, stmt)


def initial(block: ir.Block) -> ir.Stmt | None:
    """A block's initialisation: its own, or the reducer's identity."""
    if block.init is not None:
        return block.init
    if not _reductions(block):
        return None
    stores = [
        ir.Store(buffer, node.indices, identity)
        for node in walk(block.body)
        if isinstance(node, ir.Reduce)
        for buffer, identity in zip(node.buffers, node.reducer.identity, strict=True)
    ]
    return ir.seq(*stores) if stores else None


def _reductions(block: ir.Block) -> list[ir.Axis]:
    return [axis for axis in block.axes if axis.kind == "reduction"]


def _first_instance(block: ir.Block) -> ir.Expr | None:
    """Whether every reduction axis is 0; None for a block without one."""
    tests = [axis.value.equal(ir.as_expr(0)) for axis in _reductions(block)]
    return conjunction(tests)


@dataclass
class Hoist:
    """Initialise right before `loop`, inside copies of the loops and ifs `around`."""

    loop: ir.For
    around: tuple[ir.Stmt, ...]
    guard: ir.Expr | None

    def wrap(self, init: ir.Stmt) -> ir.Stmt:
        """`init` in its own loop nest."""
        nest = _guarded(init, self.guard)
        for outer in reversed(self.around):
            if isinstance(outer, ir.If):
                nest = ir.If(outer.cond, nest)
            else:
                assert isinstance(outer, ir.For)
                nest = replace(outer, body=nest)
        return nest


class Never:
    """No instance here is the first of its reduction: nothing to initialise."""


def find_place(block: ir.Block, path: tuple[ir.Stmt, ...]) -> Hoist | Never | None:
    """Where to initialise a block's state; None for a guard in the block itself."""
    values = [axis.value for axis in _reductions(block)]
    around = [stmt for stmt in path if isinstance(stmt, ir.For)]
    ranges = {loop.var: counted(loop.extent) for loop in around}
    lows = [bounds(value, ranges)[0] for value in values]
    if any(low is not None and low > 0 for low in lows):
        return Never()
    if not values or not all(_starts_known(value, around) for value in values):
        return None
    reduced = _variables(values) & {loop.var for loop in around}
    inside = _inside_allocation(block, path)
    position = next(
        (
            n
            for n, stmt in enumerate(inside)
            if isinstance(stmt, ir.For) and stmt.var in reduced
        ),
        None,
    )
    if position is None or _made_inside(block, inside[position]):
        return None
    starts = [linear(value) for value in values]
    loops = {x.var: linear(x.extent) for x in around if x.var in reduced}
    if not all(first_only(var, extent, starts) for var, extent in loops.items()):
        return None
    return _hoist(block, inside[position:], reduced)


def _made_inside(block: ir.Block, loop: ir.Stmt) -> bool:
    """Whether the init reads what the loop it would precede computes."""
    return block.init is not None and bool(reads(block.init) & writes(loop))


def _hoist(
    block: ir.Block, path: tuple[ir.Stmt, ...], reduced: frozenset[ir.Var]
) -> Hoist | None:
    """The place before `path[0]`, if all statements in between permit it."""
    others = [axis for axis in block.axes if axis.kind != "reduction"]
    spatial = _variables([axis.value for axis in others])
    if spatial & reduced:
        return None
    guard = spatial_guard(block, others, reduced)
    asked = [stmt.cond for stmt in path if isinstance(stmt, ir.If)]
    needed = spatial | _variables(asked if guard is None else [*asked, guard])
    around: list[ir.Stmt] = []
    again: list[ir.For] = []
    for stmt in path:
        match stmt:
            case ir.For(var=var, kind=kind) if var in reduced:
                if kind in ("parallel", "bound"):
                    return None
            case ir.For(extent=extent) if not free_vars(extent) & reduced:
                if stmt.var in needed:
                    around.append(stmt)
                again.append(stmt)
            case ir.Let(var=var) if var not in needed:
                continue
            case ir.Alloc():
                continue
            case ir.If(orelse=None) if not free_vars(stmt.cond) & reduced:
                around.append(stmt)
            case _:
                return None
    first = path[0]
    assert isinstance(first, ir.For)
    if not _set_once(block, again):
        return None
    return Hoist(first, tuple(around), guard)


def _set_once(block: ir.Block, loops: Sequence[ir.For]) -> bool:
    """Whether different iterations of the loops initialise different elements."""
    values = {axis.var: axis.value for axis in block.axes}
    extents = {x.var: linear(x.extent) for x in loops if x.extent != ir.as_expr(1)}
    sets = [
        node for node in walk(initial(block) or ir.seq()) if isinstance(node, ir.Store)
    ]
    for store in sets:
        indices = [substitute(index, values) for index in store.indices]
        if not injective([linear(index) for index in indices], extents):
            counts = {var: extent.constant for var, extent in extents.items()}
            known = all(extent.is_constant for extent in extents.values())
            if not known or not _all_different(indices, counts):
                return False
    return True


def _all_different(indices: Sequence[ir.Expr], counts: Mapping[ir.Var, int]) -> bool:
    """Whether the indices differ in all iterations, by enumerating them."""
    size = math.prod(counts.values())
    if size > _MOST_ENUMERATED or any(
        isinstance(node, ir.Load) for index in indices for node in walk(index)
    ):
        return False
    if size < 2:
        return True
    grid = dict(zip(counts, np.indices((*counts.values(),)), strict=True))
    others = frozenset().union(*map(free_vars, indices)) - counts.keys()
    for given in _OTHERS:
        values = {var: points.ravel() for var, points in grid.items()}
        values |= {var: np.full(1, given, var.dtype.numpy) for var in others}
        places = np.zeros(size, np.int64)  # row-major, as if in an array just as large
        for index in indices:
            found = evaluate(index, values).astype(np.int64, copy=False)
            places = places * (np.ptp(found) + 1) + (found - found.min())
        if np.unique(places).size < size:
            return False
    return True


def spatial_guard(
    block: ir.Block, others: Sequence[ir.Axis], reduced: frozenset[ir.Var]
) -> ir.Expr | None:
    """The part of `where` on spatial indices; a bounds check if tests mix the two."""
    tests = conjuncts(block.where)
    values = {axis.var: axis.value for axis in block.axes}
    tests = [substitute(test, values) for test in tests]
    kept = [test for test in tests if not free_vars(test) & reduced]
    mixed = [test for test in tests if free_vars(test) & reduced]
    if any(free_vars(test) - reduced for test in mixed):
        for axis in others:
            kept += [axis.value >= ir.as_expr(0), axis.value < axis.extent]
    return conjunction(kept)


def _variables(values: Sequence[ir.Expr]) -> frozenset[ir.Var]:
    found: frozenset[ir.Var] = frozenset()
    return found.union(*(free_vars(value) for value in values))


def _starts_known(value: ir.Expr, around: Sequence[ir.For]) -> bool:
    """Whether an axis has a constant value in the first iteration of all loops.

    If it is a size instead, this may be the tail of a split reduction.
    """
    zeros: dict[ir.Var, ir.Expr] = {
        loop.var: ir.Const(0, loop.var.dtype) for loop in around
    }
    return isinstance(fold(substitute(value, zeros)), ir.Const)


def _inside_allocation(
    block: ir.Block, path: tuple[ir.Stmt, ...]
) -> tuple[ir.Stmt, ...]:
    """The part of the path inside the allocation of the block's own state."""
    states: set[ir.Buffer] = set()
    for node in walk(block.body):
        if isinstance(node, ir.Reduce):
            states.update(node.buffers)
    for n in range(len(path) - 1, -1, -1):
        stmt = path[n]
        if isinstance(stmt, ir.Alloc) and stmt.buffer in states:
            return path[n + 1 :]
    return tuple(stmt for stmt in path if not isinstance(stmt, ir.Alloc))
