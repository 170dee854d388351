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
from dataclasses import dataclass, replace
from typing import Final

from tensorlang.ir.contents import free_vars, names
from tensorlang.ir.dtypes import i64
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
    If,
    LaneReduce,
    Let,
    Load,
    Node,
    Param,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    as_expr,
    binary,
    seq,
    splat,
)
from tensorlang.ir.visit import children, fresh, rebuild, rewriter, substitute, walk

COLUMNS: Final = 3  # whether an index was out of bounds, the index, and the size


@dataclass(frozen=True, slots=True)
class Access:
    """One dimension of an access: the subject of a row of the report.

    Attributes:
        text: The access as written in the definition.
        dimension: Which of the buffer's dimensions.
        line: The definition's `file:line`, if known.
    """

    text: str
    dimension: int
    line: str

    def message(self, index: int, size: int) -> str:
        """Error sentence for an out-of-bounds index."""
        where = f", {self.line}" if self.line else ""
        return (
            f"{self.text} has index {index} in dimension {self.dimension}, "
            f"whose size is {size}{where}"
        )


def _as_defined(access: Expr) -> str:
    """An access with axes named as before `partition` split off a ragged tail."""
    before = {
        var: Var(var.name.removesuffix("_tail"), var.dtype) for var in free_vars(access)
    }
    return repr(substitute(access, before))


def checked(function: Function) -> tuple[Function, tuple[Access, ...]]:
    """The function with its accesses checked, and the subjects of the report's rows."""
    state = _Checking(Buffer(fresh("outside", names(function)), i64, _shape(1)))
    body = state.visit(function.body, "")
    rows = max(len(state.accesses), 1)
    report = replace(state.report, shape=_shape(rows))
    body = _with(body, state.report, report)
    params = (*function.params, Param(report, "inout"))
    return replace(function, params=params, body=body), tuple(state.accesses)


def _shape(rows: int) -> tuple[Expr, ...]:
    return as_expr(rows), as_expr(COLUMNS)


def _with(body: Stmt, old: Buffer, new: Buffer) -> Stmt:
    @rewriter
    def visit(node: Node) -> Node:
        made = rebuild(node, visit)
        return new if made == old else made

    return visit(body)


class _Checking:
    """Rewrites the statements of a function in order."""

    def __init__(self, report: Buffer) -> None:
        self.report = report
        self.accesses: list[Access] = []

    def visit(self, stmt: Stmt, line: str) -> Stmt:
        """A statement preceded by its reports; `line` is its block's line."""
        if isinstance(stmt, Seq):
            return seq(*(self.visit(inner, line) for inner in stmt.stmts))
        line = stmt.line or line if isinstance(stmt, Block) else line
        first = len(self.accesses)
        reports = [t for part in _own(stmt) for t in self.loads(part, line)]

        @rewriter
        def change(child: Node) -> Node:
            if isinstance(child, Stmt):
                return self.visit(child, line)
            if isinstance(child, Axis):
                return rebuild(child, _inside)
            return _inside(child)

        new = rebuild(stmt, change)
        if isinstance(new, For) and new.kind in ("vectorized", "unrolled"):
            new = replace(new, kind="serial")
        if isinstance(new, For) and any(isinstance(n, Load) for n in walk(new.extent)):
            assert isinstance(stmt, For)
            for size in _along(stmt.body, stmt.var):
                new = replace(new, extent=Binary("min", new.extent, size + 1))
        if isinstance(new, While):
            rows = range(first, len(self.accesses))
            fine = (self.report[row, 0].equal(0) for row in rows)
            cond = functools.reduce(operator.and_, fine, new.cond)
            new = replace(new, cond=cond, body=seq(new.body, *reports))
        for buffer, indices, mask in _targets(stmt):
            text = _as_defined(buffer[getattr(stmt, "indices", ())])
            reports += self.rows(buffer, indices, mask, text, line)
            if mask is None:
                new = If(_all(_within(buffer, indices)), new)
            else:
                assert isinstance(new, Store)
                both = binary("and", mask, _within(buffer, indices))
                new = replace(new, mask=both)
        return seq(*reports, new)

    def loads(self, expr: Node, line: str) -> Iterator[Stmt]:
        """Report statements for the loads in an expression, inner ones first."""
        for child in children(expr):
            yield from self.loads(child, line)
        if isinstance(expr, Load):
            text = _as_defined(expr)
            yield from self.rows(expr.buffer, expr.indices, expr.mask, text, line)

    def rows(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        mask: Expr | None,
        text: str,
        line: str,
    ) -> Iterator[Stmt]:
        """A row per dimension of an access, written if the index is out of bounds."""
        for dimension, (index, size) in enumerate(
            zip(indices, buffer.shape, strict=True)
        ):
            at = _inside(index)
            good = _between(at, size)
            if mask is not None:
                good = Binary("or", splat(good, mask.dtype.lanes), ~_inside(mask))
            values = (as_expr(1), _worst(at), size)
            row = len(self.accesses)
            self.accesses.append(Access(text, dimension, line))
            stores = [
                Store(self.report, (as_expr(row), as_expr(column)), value)
                for column, value in enumerate(values)
            ]
            yield If(Unary("not", _all(good)), seq(*stores))


def _along(stmt: Stmt, index: Var) -> Iterator[Expr]:
    """Sizes of the dimensions that a variable indexes in every run of a statement."""
    if isinstance(stmt, Seq):
        for inner in stmt.stmts:
            yield from _along(inner, index)
    elif isinstance(stmt, Block) and stmt.where is None:
        for var in (axis.var for axis in stmt.axes if axis.value == index):
            yield from _along(stmt.body, var)
    elif isinstance(stmt, (Let, Store, Reduce)):
        for access in (node for part in _own(stmt) for node in walk(part)):
            if isinstance(access, Load) and access.mask is None:
                pairs = zip(access.indices, access.buffer.shape, strict=True)
                yield from (size for at, size in pairs if at == index)


def _own(stmt: Stmt) -> Iterator[Node]:
    """A statement's own expressions, in evaluation order."""
    for child in children(stmt):
        if not isinstance(child, Stmt | Buffer):
            yield child


def _targets(
    stmt: Stmt,
) -> Iterator[tuple[Buffer, tuple[Expr, ...], Expr | None]]:
    """What a statement writes: buffer, indices, mask."""
    indices = tuple(map(_inside, getattr(stmt, "indices", ())))
    match stmt:
        case Store(buffer=buffer, mask=mask):
            yield buffer, indices, None if mask is None else _inside(mask)
        case AtomicUpdate(buffer=buffer):
            yield buffer, indices, None
        case Reduce(buffers=buffers):
            yield from ((buffer, indices, None) for buffer in buffers)


@rewriter
def _inside(node: Node) -> Node:
    """An expression whose loads stay in bounds."""
    if isinstance(node, Buffer) or not isinstance(node, Expr):
        return node
    made = rebuild(node, _inside)
    if not isinstance(made, Load):
        return made
    kept = [
        Select(_between(i, size), i, splat(Const(0, i64), i.dtype.lanes))
        for i, size in zip(made.indices, made.buffer.shape, strict=True)
    ]
    lanes = made.indices[0].dtype.lanes if made.indices else 1
    masks = [
        splat(size > 0, lanes)
        for size in made.buffer.shape
        if not isinstance(size, Const) or size.value < 1
    ]
    if made.mask is not None:
        masks.append(made.mask)
    mask = functools.reduce(operator.and_, masks) if masks else None
    return replace(made, indices=tuple(kept), mask=mask)


def _between(index: Expr, size: Expr) -> Expr:
    lanes = index.dtype.lanes
    return Binary("and", index >= 0, index < splat(size, lanes))


def _within(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """Whether all indices of an access are in bounds."""
    found: Expr = as_expr(True)
    for index, size in zip(indices, buffer.shape, strict=True):
        found = binary("and", found, _between(index, size))
    return found


def _all(cond: Expr) -> Expr:
    return cond if cond.dtype.lanes == 1 else LaneReduce("and", cond)


def _worst(index: Expr) -> Expr:
    """The index, or for vectors that of an out-of-bounds lane."""
    if index.dtype.lanes == 1:
        return index
    low = LaneReduce("min", index)
    return Select(low < 0, low, LaneReduce("max", index))
