"""Operands of tensor intrinsics: their location in a function's buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import Access, change_accesses, moved
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.visit import fresh, substitute, walk


@frozen
class Operand:
    """The location of an intrinsic's operand: a buffer, an origin, its dimensions.

    For each dimension of the buffer, `dims` holds the operand's dimension that runs
    along it, or None.
    """

    buffer: ir.Buffer
    origin: tuple[ir.Expr, ...]
    dims: tuple[int | None, ...]

    def at(self, indices: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        """The buffer indices of an element of the operand."""
        return tuple(
            base if d is None else _plus(base, indices[d])
            for base, d in zip(self.origin, self.dims, strict=True)
        )


def last_dims(buffer: ir.Buffer, count: int) -> tuple[int | None, ...]:
    """The dimensions of an operand that occupies the last ones of its buffer."""
    first = buffer.ndim - count
    return (*(None,) * first, *range(count))


def _plus(base: ir.Expr, index: ir.Expr) -> ir.Expr:
    """`base + index`, folded into a ramp's base if `index` is one."""
    if linear(base) == Poly():
        return index
    if isinstance(index, ir.Ramp):
        return dataclasses.replace(index, base=_plus(base, index.base))
    return base if index == ir.Const(0, i64) else base + index


def placed(
    body: ir.Stmt,
    operands: Mapping[ir.Buffer, Operand],
    variables: Mapping[ir.Var, ir.Expr],
    taken: set[str],
) -> ir.Stmt:
    """An intrinsic's statements, applied to its operands, with fresh names."""
    named: dict[ir.Var, ir.Expr] = dict(variables)
    for node in walk(body):
        if isinstance(node, ir.Let):
            named[node.var] = ir.Var(fresh(node.var.name, taken), node.var.dtype)

    def put(access: Access) -> Access:
        if isinstance(access, ir.Reduce) or access.buffer not in operands:
            return access
        place = operands[access.buffer]
        return moved(access, {access.buffer: place.buffer}, place.at(access.indices))

    return change_accesses(substitute(body, named), put)
