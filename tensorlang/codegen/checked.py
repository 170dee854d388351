"""Checked builds: out-of-bounds accesses are suppressed, and the first is reported.

    y[i] = x[at[i]]   ->   if not (at[i] >= 0 and at[i] < n):
                               outside[1, 0], outside[1, 1], outside[1, 2] = 1, at[i], n
                           y[i] = x[select(at[i] >= 0 and at[i] < n, at[i], 0)]

Out of bounds, a load reads element 0 if there is one, a store is skipped, and a `while`
loop ends. A loop with a data-dependent extent that walks along a dimension ends one
step past it. Reports go to an array added as a last parameter, with a row per dimension
of each access; simplification removes checks that bounds prove redundant.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, names
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import (
    children,
    fresh,
    rebuild,
    replace_buffers,
    rewriter,
    substitute,
    walk,
)

COLUMNS: Final = 3  # whether an index was out of bounds, the index, and the size


@frozen
class Access:
    """One dimension of an access: the subject of a row of the report."""

    text: str  # access as written in the definition
    dimension: int  # which of the buffer's dimensions
    line: str  # definition's `file:line`, if known

    def message(self, index: int, size: int) -> str:
        """Error sentence for an out-of-bounds index."""
        where = f", {self.line}" if self.line else ""
        return (
            f"{self.text} has index {index} in dimension {self.dimension}, "
            f"whose size is {size}{where}"
        )


def _as_defined(access: ir.Expr) -> str:
    """An access with axes named as before `partition` split off a ragged tail."""
    before = {
        var: ir.Var(var.name.removesuffix("_tail"), var.dtype)
        for var in free_vars(access)
    }
    return repr(substitute(access, before))


def checked(function: ir.Function) -> tuple[ir.Function, tuple[Access, ...]]:
    """The function with its accesses checked, and the subjects of the report's rows."""
    state = _Checking(ir.Buffer(fresh("outside", names(function)), i64, _shape(1)))
    body = state.visit(function.body, "")
    rows = max(len(state.accesses), 1)
    report = replace(state.report, shape=_shape(rows))
    body = replace_buffers(body, {state.report: report})
    params = (*function.params, ir.Param(report, "inout"))
    return replace(function, params=params, body=body), tuple(state.accesses)


def _shape(rows: int) -> tuple[ir.Expr, ...]:
    return ir.as_expr(rows), ir.as_expr(COLUMNS)


class _Checking:
    """Rewrites the statements of a function in order."""

    def __init__(self, report: ir.Buffer) -> None:
        self.report = report
        self.accesses: list[Access] = []

    def visit(self, stmt: ir.Stmt, line: str) -> ir.Stmt:
        """A statement preceded by its reports; `line` is its block's line."""
        if isinstance(stmt, ir.Seq):
            return ir.seq(*(self.visit(inner, line) for inner in stmt.stmts))
        line = stmt.line or line if isinstance(stmt, ir.Block) else line
        first = len(self.accesses)
        reports = [t for part in _own(stmt) for t in self.loads(part, line)]

        @rewriter
        def change(child: ir.Node) -> ir.Node:
            if isinstance(child, ir.Stmt):
                return self.visit(child, line)
            if isinstance(child, ir.Axis):
                return rebuild(child, _inside)
            return _inside(child)

        new = rebuild(stmt, change)
        if isinstance(new, ir.For) and new.kind in ("vectorized", "unrolled"):
            new = replace(new, kind="serial")
        if isinstance(new, ir.For) and any(
            isinstance(n, ir.Load) for n in walk(new.extent)
        ):
            assert isinstance(stmt, ir.For)
            for size in _along(stmt.body, stmt.var):
                new = replace(new, extent=ir.Binary("min", new.extent, size + 1))
        if isinstance(new, ir.While):
            rows = range(first, len(self.accesses))
            fine = (self.report[row, 0].equal(0) for row in rows)
            cond = functools.reduce(operator.and_, fine, new.cond)
            new = replace(new, cond=cond, body=ir.seq(new.body, *reports))
        for buffer, indices, mask in _targets(stmt):
            text = _as_defined(buffer[getattr(stmt, "indices", ())])
            reports += self.rows(buffer, indices, mask, text, line)
            if mask is None:
                new = ir.If(_all(_within(buffer, indices)), new)
            else:
                assert isinstance(new, ir.Store)
                both = ir.binary("and", mask, _within(buffer, indices))
                new = replace(new, mask=both)
        return ir.seq(*reports, new)

    def loads(self, expr: ir.Node, line: str) -> Iterator[ir.Stmt]:
        """Report statements for the loads in an expression, inner ones first."""
        for child in children(expr):
            yield from self.loads(child, line)
        if isinstance(expr, ir.Load):
            text = _as_defined(expr)
            yield from self.rows(expr.buffer, expr.indices, expr.mask, text, line)

    def rows(
        self,
        buffer: ir.Buffer,
        indices: tuple[ir.Expr, ...],
        mask: ir.Expr | None,
        text: str,
        line: str,
    ) -> Iterator[ir.Stmt]:
        """A row per dimension of an access, written if the index is out of bounds."""
        for dimension, (index, size) in enumerate(
            zip(indices, buffer.shape, strict=True)
        ):
            at = _inside(index)
            good = _between(at, size)
            if mask is not None:
                good = ir.Binary("or", ir.splat(good, mask.dtype.lanes), ~_inside(mask))
            values = (ir.as_expr(1), _worst(at), size)
            row = len(self.accesses)
            self.accesses.append(Access(text, dimension, line))
            stores = [
                ir.Store(self.report, (ir.as_expr(row), ir.as_expr(column)), value)
                for column, value in enumerate(values)
            ]
            yield ir.If(ir.Unary("not", _all(good)), ir.seq(*stores))


def _along(stmt: ir.Stmt, index: ir.Var) -> Iterator[ir.Expr]:
    """Sizes of the dimensions that a variable indexes in every run of a statement."""
    if isinstance(stmt, ir.Seq):
        for inner in stmt.stmts:
            yield from _along(inner, index)
    elif isinstance(stmt, ir.Block) and stmt.where is None:
        for var in (axis.var for axis in stmt.axes if axis.value == index):
            yield from _along(stmt.body, var)
    elif isinstance(stmt, (ir.Let, ir.Store, ir.Reduce)):
        for access in (node for part in _own(stmt) for node in walk(part)):
            if isinstance(access, ir.Load) and access.mask is None:
                pairs = zip(access.indices, access.buffer.shape, strict=True)
                yield from (size for at, size in pairs if at == index)


def _own(stmt: ir.Stmt) -> Iterator[ir.Node]:
    """A statement's own expressions, in evaluation order."""
    for child in children(stmt):
        if not isinstance(child, ir.Stmt | ir.Buffer):
            yield child


def _targets(
    stmt: ir.Stmt,
) -> Iterator[tuple[ir.Buffer, tuple[ir.Expr, ...], ir.Expr | None]]:
    """What a statement writes: buffer, indices, mask."""
    indices = tuple(map(_inside, getattr(stmt, "indices", ())))
    match stmt:
        case ir.Store(buffer=buffer, mask=mask):
            yield buffer, indices, None if mask is None else _inside(mask)
        case ir.AtomicUpdate(buffer=buffer):
            yield buffer, indices, None
        case ir.Reduce(buffers=buffers):
            yield from ((buffer, indices, None) for buffer in buffers)


@rewriter
def _inside(node: ir.Node) -> ir.Node:
    """An expression whose loads stay in bounds."""
    if isinstance(node, ir.Buffer) or not isinstance(node, ir.Expr):
        return node
    made = rebuild(node, _inside)
    if not isinstance(made, ir.Load):
        return made
    kept = [
        ir.Select(_between(i, size), i, ir.splat(ir.Const(0, i64), i.dtype.lanes))
        for i, size in zip(made.indices, made.buffer.shape, strict=True)
    ]
    masks = [
        ir.splat(size > 0, made.dtype.lanes)
        for size in made.buffer.shape
        if not isinstance(size, ir.Const) or size.value < 1
    ]
    if made.mask is not None:
        masks.append(made.mask)
    mask = functools.reduce(operator.and_, masks) if masks else None
    return replace(made, indices=tuple(kept), mask=mask)


def _between(index: ir.Expr, size: ir.Expr) -> ir.Expr:
    lanes = index.dtype.lanes
    return ir.Binary("and", index >= 0, index < ir.splat(size, lanes))


def _within(buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Expr:
    """Whether all indices of an access are in bounds."""
    found: ir.Expr = ir.as_expr(True)
    for index, size in zip(indices, buffer.shape, strict=True):
        found = ir.binary("and", found, _between(index, size))
    return found


def _all(cond: ir.Expr) -> ir.Expr:
    return cond if cond.dtype.lanes == 1 else ir.LaneReduce("and", cond)


def _worst(index: ir.Expr) -> ir.Expr:
    """The index, or for vectors that of an out-of-bounds lane."""
    if index.dtype.lanes == 1:
        return index
    low = ir.LaneReduce("min", index)
    return ir.Select(low < 0, low, ir.LaneReduce("max", index))
