"""What a traced function asks of the sizes: accesses stay inside, some sizes are fixed.

Every access must lie within its array for all sizes that the trace serves. Where that
does not follow from the loops, a guard says it: an index that runs along one array as
along another, as `y[i]` beside `x[i]`, makes them arrays of one length. What cannot be
said so holds for the sizes of this call alone: they are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from tensorlang.errors import ShapeError
from tensorlang.ir.affine import Poly, add, constant, expression, factors, poly, product
from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.known import Known, Range
from tensorlang.ir.nodes import (
    Binary,
    Block,
    Buffer,
    Expr,
    Function,
    Let,
    Load,
    Reduce,
    Store,
    Var,
    as_expr,
)
from tensorlang.ir.sizes import Facts, evaluate
from tensorlang.ir.visit import rebuild, substitute, walk

SHORT: Final = 64  # steps up to which a fold along rows is part of the kernel
SIDE: Final = 16  # of a tile: shorter dimensions of a transposition are part of it
Extents = Mapping[Var, Expr]


def extents(block: Block) -> list[Expr]:
    """The extent of each axis, in terms of the block's other axes."""
    axes = {axis.value: axis.var for axis in block.axes if isinstance(axis.value, Var)}
    return [substitute(axis.extent, axes) for axis in block.axes]


def accesses(block: Block) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """The buffers that a block reads and writes, with the indices by its axes."""
    named: dict[Var, Expr] = {}
    for node in chain(*map(walk, extents(block)), walk(block.body)):
        if isinstance(node, Let):
            named[node.var] = substitute(node.value, named)
        elif isinstance(node, (Load, Store, Reduce)):
            indices = tuple(substitute(index, named) for index in node.indices)
            held = node.buffers if isinstance(node, Reduce) else (node.buffer,)
            yield from ((buffer, indices) for buffer in held)


def stay_inside(func: Function, facts: Facts) -> None:
    """Note what keeps all accesses within their arrays.

    Raises:
        ShapeError: one is outside in this call.
    """
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
                last = known.get(index) if isinstance(index, Var) else None
                same = last is not None and _value(facts, last) == _value(facts, size)
                if same and facts.holds("eq", size, known[index]):  # type: ignore[index]
                    continue
                total = poly(facts.resolved(index))
                for room in (add(add(poly(size), constant(1), -1), total, -1), total):
                    if not _proven(room, known, facts) and not (
                        runs and _guarded(room, known, facts)
                    ):
                        _fix(facts, [index, size, *known.values()])
                        if runs and _outside(room, known, facts):
                            raise _error(facts, buffer, at)


def fix_sides(func: Function, facts: Facts) -> Function:
    """The function with the short dimensions fixed of what is transposed.

    Kernels are made of square tiles where a dimension is as long, and for its very
    length where it is shorter. Batches stay open.
    """
    fixed: dict[Expr, Expr] = {}
    for block in blocks(func):
        axes = [axis.var for axis in block.axes if axis.kind == "spatial"]
        loads = [node for node in walk(block.body) if isinstance(node, Load)]
        if any(_transposed(load, axes) for load in loads):
            sides = dict.fromkeys(axis.extent for axis in block.axes)
            for extent in [e for e in sides if e not in facts.batches]:
                value = _value(facts, extent)
                if value < SIDE:
                    fixed[extent] = as_expr(value)
                    facts.holds("eq", extent, fixed[extent])
                else:
                    facts.holds("ge", extent, as_expr(SIDE))

    def visit(node: Any) -> Any:
        return fixed[node] if node in fixed else rebuild(node, visit)

    scalars = tuple(var for var in func.scalars if var not in fixed)
    made: Function = visit(replace(func, scalars=scalars))
    return made


def _transposed(load: Load, axes: Sequence[Var]) -> bool:
    """Whether it goes along all axes, and not in their order."""
    return {*load.indices} == {*axes} and [*load.indices] != [*axes]


def _of_data(expr: Expr) -> bool:
    """Whether it depends on the elements of an array."""
    return any(isinstance(part, Load) for part in walk(expr))


def _value(facts: Facts, expr: Expr) -> int:
    return int(evaluate(expr, facts.values))


def _proven(room: Poly, extents: Extents, facts: Facts) -> bool:
    """Whether a sum is at least 0 in all loops, for all sizes."""
    sizes: dict[Var, Range] = dict.fromkeys(facts.values, (0, None))
    loops: dict[Var, Range] = {
        var: (0, expression(add(poly(extent), constant(1), -1)))
        for var, extent in extents.items()
    }
    return Known(sizes | loops).at_least_zero(room)


def _guarded(room: Poly, extents: Extents, facts: Facts) -> bool:
    """Whether a linear sum is at least 0 in this call; then a guard says so."""
    for var, extent in extents.items():
        slope = {
            tuple(f for f in monomial if f != var): coefficient
            for monomial, coefficient in room.items()
            if var in monomial
        }
        rest = {m: c for m, c in room.items() if var not in m}
        falls = any(coefficient < 0 for coefficient in slope.values())
        last = add(poly(extent), constant(1), -1) if falls else {}
        room = add(rest, product(slope, last))
    left = {var for factor in factors(room) for var in free_vars(factor)}
    return left <= facts.values.keys() and facts.holds(
        "ge", expression(room), as_expr(0)
    )


def _outside(room: Poly, extents: Extents, facts: Facts) -> bool:
    """Whether a linear sum is below 0 somewhere in the loops of this call."""
    known = {var: as_expr(value) for var, value in facts.values.items()}
    total = poly(substitute(expression(room), known))
    loops: dict[Var, Range] = {
        var: (0, _value(facts, extent) - 1) for var, extent in extents.items()
    }
    linear = all(isinstance(factor, Var) for factor in factors(total))
    return linear and not Known(loops).at_least_zero(total)


def _fix(facts: Facts, exprs: Iterable[Expr]) -> None:
    """Fix the sizes that expressions are made of."""
    for expr in exprs:
        for var in free_vars(facts.resolved(expr)) & facts.values.keys():
            facts.holds("eq", var, as_expr(facts.values[var]))


def _error(facts: Facts, buffer: Buffer, at: int) -> ShapeError:
    shape = tuple(_value(facts, extent) for extent in buffer.shape)
    return ShapeError(
        f"{buffer.name} has shape {shape}, and is read outside of dimension {at}"
    )


def fix_small(func: Function, facts: Facts) -> None:
    """Fix the sizes that a kernel is made for: of short folds, and of products.

    Of a contraction the loops that index its first operand alone stay open: the batch,
    the rows. A fold of rows is open beyond 64 steps.
    """
    for block in blocks(func):
        folds = [axis for axis in block.axes if axis.kind == "reduction"]
        if not folds or any(_of_data(axis.extent) for axis in folds):
            continue
        loads = [node for node in walk(block.body) if isinstance(node, Load)]
        used = [frozenset().union(*map(free_vars, load.indices)) for load in loads]
        spatial = [axis for axis in block.axes if axis.kind == "spatial"]
        first, others = used[0], frozenset().union(*used[1:])
        mine = [axis for axis in spatial if axis.var in first - others]
        theirs = [axis for axis in spatial if axis.var in others - first]
        product_of = [n for n in walk(block.body) if isinstance(n, Binary)]
        if mine and theirs and any(n.op == "mul" for n in product_of):
            rest = [axis for axis in block.axes if axis not in mine]
            _fix(facts, [axis.extent for axis in rest])
        elif spatial and all(_value(facts, axis.extent) <= SHORT for axis in folds):
            _fix(facts, [axis.extent for axis in folds])
