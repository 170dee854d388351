"""Sizes that a definition takes to be equal: those of dimensions read together.

In `compute(x.shape, lambda i: x[i] + y[i])`, every read of `y` runs over all of `x`: a
longer `y` would be cut silently. A dimension that is read in another way too, such as
`y[i + 1]`, or whose size the operator's `sizes=` names, may be longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from tensorlang import ir
from tensorlang.errors import ShapeError
from tensorlang.ir.contents import blocks
from tensorlang.ir.definitions.sizes import Facts, evaluate
from tensorlang.ops.spec.demands import extents

Dimension: TypeAlias = tuple[ir.Buffer, int]


def check_shared(func: ir.Function, facts: Facts, stated: Collection[str]) -> None:
    """Refuse a call if dimensions that are only read together differ in size.

    Args:
        func: The traced function.
        facts: The sizes of the call.
        stated: The dimensions that the operator's `sizes=` names, such as `x.0`.

    Raises:
        ShapeError: a dimension is longer or shorter than the one that it is read with.
    """
    owners = _owners(func)
    found: dict[Dimension, set[ir.Expr | None]] = {}
    for block in blocks(func):
        for dimension, along in _reads(block):
            found.setdefault(dimension, set()).add(along)
    for (buffer, at), every in found.items():
        size, (extent, *others) = buffer.shape[at], every
        if others or extent is None or extent not in owners:
            continue
        if size not in owners and buffer not in func.buffers:
            continue
        mine, theirs = owners.get(size, (buffer, at)), owners[extent]
        apart = mine[0] == theirs[0] or any(name in stated for name in _names(mine))
        if not apart and _value(size, facts) != _value(extent, facts):
            raise ShapeError(
                f"{_shape(mine[0], facts)} and {_shape(theirs[0], facts)}; dimension "
                f"{mine[1]} of {mine[0].name} is read along dimension {theirs[1]} of "
                f"{theirs[0].name}, so they must be equal"
            )


def _owners(func: ir.Function) -> dict[ir.Expr, Dimension]:
    """The first dimension of an input that has each symbolic size."""
    inputs = [param.buffer for param in func.params if param.role != "out"]
    dims = [(buffer, at) for buffer in inputs for at in range(buffer.ndim)]
    pairs = ((buffer.shape[at], (buffer, at)) for buffer, at in reversed(dims))
    return {size: dimension for size, dimension in pairs if isinstance(size, ir.Var)}


def _reads(block: ir.Block) -> Iterator[tuple[Dimension, ir.Expr | None]]:
    """Each dimension read, with the extent of the axis that is its index, if it is."""
    named: dict[ir.Var, ir.Expr] = {}
    along: Mapping[ir.Expr, ir.Expr] = {axis.var: axis.extent for axis in block.axes}
    for node in chain(*map(ir.visit.walk, extents(block)), ir.visit.walk(block.body)):
        if isinstance(node, ir.Let):
            named[node.var] = ir.visit.substitute(node.value, named)
        elif isinstance(node, ir.Load):
            for at, index in enumerate(node.indices):
                whole = along.get(ir.visit.substitute(index, named))
                yield (node.buffer, at), None if node.mask is not None else whole


def _names(dimension: Dimension) -> tuple[str, str]:
    """Its names in formulas: `x.1`, and counted from the end, `x.-1`."""
    buffer, at = dimension
    return f"{buffer.name}.{at}", f"{buffer.name}.{at - buffer.ndim}"


def _shape(buffer: ir.Buffer, facts: Facts) -> str:
    shape = tuple(_value(size, facts) for size in buffer.shape)
    return f"{buffer.name} has shape {shape}"


def _value(size: ir.Expr, facts: Facts) -> int:
    return int(evaluate(size, facts.values))
