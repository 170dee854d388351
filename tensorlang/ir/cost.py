"""What a function costs, from its definition alone: operations and bytes, no data.

Counts are expressions where sizes are symbolic; `Cost.at` fills the sizes in. Every
floating-point addition, multiplication, division, comparison or call of a mathematical
function is one operation (`fma` is two); index arithmetic is not counted. Bytes are the
least possible traffic: each parameter read or written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

from tensorlang.errors import IRError
from tensorlang.ir.nodes import (
    AtomicUpdate,
    Binary,
    Block,
    Call,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    LaneReduce,
    Let,
    Node,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    as_expr,
)
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import walk


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one call: i64 expressions in the function's symbolic sizes.

    Attributes:
        float_ops: Floating-point operations.
        integer_ops: Integer and bit operations on data (not on indices).
        bytes_read: Bytes of the `in` and `inout` parameters.
        bytes_written: Bytes of the `out` and `inout` parameters.
    """

    float_ops: Expr
    integer_ops: Expr
    bytes_read: Expr
    bytes_written: Expr

    def at(self, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
        """The four counts for the given sizes.

        Raises:
            IRError: a size that the counts depend on is missing.
        """
        parts = (self.float_ops, self.integer_ops, self.bytes_read, self.bytes_written)
        return tuple(_evaluate(part, sizes) for part in parts)  # type: ignore[return-value]


def cost(func: Function) -> Cost:
    """The work of one call of `func`."""
    floats, integers = _statement(func.body)
    zero: Expr = as_expr(0)
    read = written = zero
    for param in func.params:
        size: Expr = as_expr(param.buffer.dtype.bytes)
        for extent in param.buffer.shape:
            size = size * extent
        read = read + size if param.role != "out" else read
        written = written + size if param.role != "in" else written
    counts = (floats, integers, read, written)
    return Cost(*(simplify(count) for count in counts))


def _evaluate(count: Expr, sizes: Mapping[str, int]) -> int:
    from tensorlang.ir.visit import substitute  # noqa: PLC0415 - used at the edge only

    known = {
        v: as_expr(sizes[v.name])
        for v in walk(count)
        if isinstance(v, Var) and v.name in sizes
    }
    result = simplify(substitute(count, known))
    if not isinstance(result, Const):
        raise IRError(f"the cost depends on sizes that were not given: {result}")
    return int(result.value)


Counts = tuple[Expr, Expr]
_NONE: Counts = (as_expr(0), as_expr(0))


def _plus(*counts: Counts) -> Counts:
    floats, integers = _NONE
    for more_floats, more_integers in counts:
        floats, integers = floats + more_floats, integers + more_integers
    return floats, integers


def _operations(node: Node) -> Counts:
    """Operations in all expressions below `node`, index arithmetic left out."""
    floats = integers = 0
    for current in walk(node):
        if not isinstance(current, (Unary, Binary, Compare, Call, Select, LaneReduce)):
            continue
        operand = current.a if isinstance(current, Compare) else current
        lanes = operand.dtype.lanes
        weight = 2 * lanes if getattr(current, "name", "") == "fma" else lanes
        if isinstance(current, Select):
            continue
        if operand.dtype.is_float:
            floats += weight
        elif operand.dtype.scalar.name != "i64":
            integers += weight
    return as_expr(floats), as_expr(integers)


@singledispatch
def _statement(stmt: Stmt) -> Counts:
    del stmt
    return _NONE


@_statement.register
def _(stmt: Seq) -> Counts:
    return _plus(*(_statement(part) for part in stmt.stmts))


@_statement.register
def _(stmt: For) -> Counts:
    floats, integers = _statement(stmt.body)
    return floats * stmt.extent, integers * stmt.extent


@_statement.register
def _(stmt: While) -> Counts:
    return _plus(_operations(stmt.cond), _statement(stmt.body))


@_statement.register
def _(stmt: If) -> Counts:
    return _plus(
        _statement(stmt.then), _statement(stmt.orelse) if stmt.orelse else _NONE
    )


@_statement.register
def _(stmt: Block) -> Counts:
    return _statement(stmt.body)


@_statement.register
def _(stmt: Let) -> Counts:
    return _operations(stmt.value)


@_statement.register
def _(stmt: Store) -> Counts:
    return _operations(stmt.value)


@_statement.register
def _(stmt: AtomicUpdate) -> Counts:
    own = as_expr(1)
    is_float = stmt.buffer.dtype.is_float
    own_counts = (own, as_expr(0)) if is_float else (as_expr(0), own)
    return _plus(_operations(stmt.value), own_counts)


@_statement.register
def _(stmt: Reduce) -> Counts:
    parts = [_operations(value) for value in stmt.values]
    return _plus(*parts, *(_operations(part) for part in stmt.reducer.combine))
