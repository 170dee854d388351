"""Conditions of a traced function on sizes: accesses in bounds, some sizes fixed.

Every access must be in bounds for all sizes that the trace serves. Where that does not
follow from the loop bounds, a guard is added: an index shared by two arrays, as in
`y[i]` and `x[i]`, requires equal lengths. If no guard can express the condition, the
sizes are fixed to those of this call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from tensorlang import ir
from tensorlang.errors import ShapeError
from tensorlang.ir.accesses import buffers_of
from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.definitions.sizes import Facts, evaluate
from tensorlang.ir.integers.known import Known, Range
from tensorlang.ir.integers.polynomials import Poly, factors, poly

SHORT: Final = 64  # reductions of at most this trip count have a fixed length
SIDE: Final = 16  # side of a tile: shorter dimensions of transpositions are fixed
FEW: Final = 8  # rows of a product that have kernels of their own
Extents = Mapping[ir.Var, ir.Expr]


def extents(block: ir.Block) -> list[ir.Expr]:
    """The extent of each axis, in terms of the block's other axes."""
    axes = {
        axis.value: axis.var for axis in block.axes if isinstance(axis.value, ir.Var)
    }
    return [ir.visit.substitute(axis.extent, axes) for axis in block.axes]


def accesses(block: ir.Block) -> Iterator[tuple[ir.Buffer, tuple[ir.Expr, ...]]]:
    """The buffers that a block reads and writes, with indices in terms of its axes.

    Predicated reads are left out: the predicate ensures that they are in bounds.
    """
    named: dict[ir.Var, ir.Expr] = {}
    for node in chain(*map(ir.visit.walk, extents(block)), ir.visit.walk(block.body)):
        if isinstance(node, ir.Let):
            named[node.var] = ir.visit.substitute(node.value, named)
        elif isinstance(node, ir.Load) and node.mask is not None:
            continue
        elif isinstance(node, (ir.Load, ir.Store, ir.Reduce)):
            indices = tuple(ir.visit.substitute(index, named) for index in node.indices)
            yield from ((buffer, indices) for buffer in buffers_of(node))


def stay_inside(func: ir.Function, facts: Facts) -> None:
    """Add the guards that keep accesses in bounds; ShapeError if one is outside."""
    for block in blocks(func):
        axes = [axis for axis in block.axes if not _of_data(axis.extent)]
        ragged = {axis.var for axis in block.axes if axis not in axes}
        known = {axis.var: facts.resolved(axis.extent) for axis in axes}
        runs = all(evaluate(e, facts.values) > 0 for e in known.values())
        for buffer, indices in dict.fromkeys(accesses(block)):
            for at, index in enumerate(indices):
                if _of_data(index) or not ragged.isdisjoint(free_vars(index)):
                    continue
                size = facts.resolved(buffer.shape[at])
                last = known.get(index) if isinstance(index, ir.Var) else None
                same = last is not None and _value(facts, last) == _value(facts, size)
                if same and facts.holds("eq", size, known[index]):  # type: ignore[index]
                    continue
                total = poly(facts.resolved(index))
                for room in (poly(size).shifted(-1) - total, total):
                    if not _proven(room, known, facts) and not (
                        runs and _guarded(room, known, facts)
                    ):
                        _fix(facts, [index, size, *known.values()])
                        if runs and _outside(room, known, facts):
                            raise _error(facts, buffer, at)


def fix_short(func: ir.Function, facts: Facts) -> ir.Function:
    """The function with the short sizes fixed that kernels are specialised for.

    Transpositions use square tiles: dimensions shorter than a tile are fixed. So are
    the rows of a matrix product where they are few, as what is best for them is not
    for many. Batch dimensions stay symbolic.
    """
    fixed: dict[ir.Expr, ir.Expr] = {}
    for block in blocks(func):
        axes = [axis.var for axis in block.axes if axis.kind == "spatial"]
        loads = [
            node for node in ir.visit.walk(block.body) if isinstance(node, ir.Load)
        ]
        short = dict.fromkeys((axis.extent for axis in _rows(block)[-1:]), FEW + 1)
        if any(_transposed(load, axes) for load in loads):
            short |= dict.fromkeys((axis.extent for axis in block.axes), SIDE)
        for extent in short.keys() - facts.batches:
            if not free_vars(extent) <= facts.values.keys():
                continue  # it differs between iterations of a loop around
            value = _value(facts, extent)
            if value < short[extent]:
                fixed[extent] = ir.as_expr(value)
                facts.holds("eq", extent, fixed[extent])
            else:
                facts.holds("ge", extent, ir.as_expr(short[extent]))

    def visit(node: Any) -> Any:
        return fixed[node] if node in fixed else ir.visit.rebuild(node, visit)

    scalars = tuple(var for var in func.scalars if var not in fixed)
    made: ir.Function = visit(replace(func, scalars=scalars))
    return made


def _transposed(load: ir.Load, axes: Sequence[ir.Var]) -> bool:
    """Whether the indices are a permutation of the axes other than the identity."""
    return {*load.indices} == {*axes} and [*load.indices] != [*axes]


def _of_data(expr: ir.Expr) -> bool:
    """Whether an expression depends on the elements of an array."""
    return any(isinstance(part, ir.Load) for part in ir.visit.walk(expr))


def _value(facts: Facts, expr: ir.Expr) -> int:
    return int(evaluate(expr, facts.values))


def _proven(room: Poly, extents: Extents, facts: Facts) -> bool:
    """Whether a polynomial is provably at least 0 in all iterations, for all sizes."""
    sizes: dict[ir.Var, Range] = dict.fromkeys(facts.values, (0, None))
    loops: dict[ir.Var, Range] = {
        var: (0, poly(extent).shifted(-1).expr()) for var, extent in extents.items()
    }
    return Known(sizes | loops).at_least_zero(room)


def _guarded(room: Poly, extents: Extents, facts: Facts) -> bool:
    """Whether a linear expression is at least 0 in this call; adds a guard if so."""
    for var, extent in extents.items():
        slope = Poly(
            {
                tuple(f for f in monomial if f != var): coefficient
                for monomial, coefficient in room.items()
                if var in monomial
            }
        )
        rest = Poly({m: c for m, c in room.items() if var not in m})
        falls = any(coefficient < 0 for coefficient in slope.values())
        last = poly(extent).shifted(-1) if falls else Poly()
        room = rest + slope.product(last)
    known = room.vars <= facts.values.keys()
    return known and facts.holds("ge", room.expr(), ir.as_expr(0))


def _outside(room: Poly, extents: Extents, facts: Facts) -> bool:
    """Whether a linear expression is below 0 in some iteration of this call."""
    known = {var: ir.as_expr(value) for var, value in facts.values.items()}
    total = poly(ir.visit.substitute(room.expr(), known))
    loops: dict[ir.Var, Range] = {
        var: (0, _value(facts, extent) - 1) for var, extent in extents.items()
    }
    linear = all(isinstance(factor, ir.Var) for factor in factors(total))
    return linear and not Known(loops).at_least_zero(total)


def _fix(facts: Facts, exprs: Iterable[ir.Expr]) -> None:
    """Fix the sizes that occur in expressions."""
    for expr in exprs:
        for var in free_vars(facts.resolved(expr)) & facts.values.keys():
            facts.holds("eq", var, ir.as_expr(facts.values[var]))


def _error(facts: Facts, buffer: ir.Buffer, at: int) -> ShapeError:
    shape = tuple(_value(facts, extent) for extent in buffer.shape)
    return ShapeError(
        f"{buffer.name} has shape {shape}, and is read outside of dimension {at}"
    )


def fix_small(func: ir.Function, facts: Facts) -> None:
    """Fix the sizes that kernels are specialised for: short reductions, contractions.

    In a contraction, loops that index only its first operand (batch, rows) stay
    symbolic. A reduction along rows stays symbolic beyond 64 steps.
    """
    for block in blocks(func):
        folds = [axis for axis in block.axes if axis.kind == "reduction"]
        if not folds or any(_of_data(axis.extent) for axis in folds):
            continue
        if rows := _rows(block):
            rest = [axis for axis in block.axes if axis not in rows]
            _fix(facts, [axis.extent for axis in rest])
        elif any(axis.kind == "spatial" for axis in block.axes) and all(
            _value(facts, axis.extent) <= SHORT for axis in folds
        ):
            _fix(facts, [axis.extent for axis in folds])


def _rows(block: ir.Block) -> list[ir.Axis]:
    """The axes of a contraction's results that index only its first operand."""
    spatial = [axis for axis in block.axes if axis.kind == "spatial"]
    loads = [node for node in ir.visit.walk(block.body) if isinstance(node, ir.Load)]
    multiplies = any(
        isinstance(node, ir.Binary) and node.op == "mul"
        for node in ir.visit.walk(block.body)
    )
    if len(spatial) == len(block.axes) or len(loads) < 2 or not multiplies:
        return []
    first, *rest = (frozenset().union(*map(free_vars, n.indices)) for n in loads)
    others = frozenset().union(*rest)
    rows = [axis for axis in spatial if axis.var in first - others]
    return rows if any(axis.var in others - first for axis in spatial) else []
