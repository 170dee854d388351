"""The cost of a function from its definition alone: operations and bytes.

Counts are expressions if sizes are symbolic; `Cost.at` substitutes the sizes. Every
floating-point addition, multiplication, division, comparison or call of a mathematical
function is one operation (`fma` is two); index arithmetic is not counted. An operation
counts for the loops that its operands vary with, as compilers hoist it out of the
others. Bytes are the minimum traffic: each parameter is read or written once.

Where the lengths of loops vary with a loop around, its iterations are counted one by
one; if they are many, evenly spaced ones stand for those around them: exact if the work
is linear in the loop's variable, and close otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from tensorlang.errors import IRError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.contents import free_vars, loops, writes
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import children, holds, statements, substitute, walk

_MOST_COUNTED: Final = 1024  # iterations of a nest, counted one by one
_MOST_COMPARED: Final = 64  # for each of them: iterations whose lengths are compared


@frozen
class Cost:
    """The work of one call: i64 expressions in the function's symbolic sizes."""

    float_ops: ir.Expr  # floating-point operations
    integer_ops: ir.Expr  # integer and bitwise operations on data (not on indices)
    bytes_read: ir.Expr  # bytes of the `in` and `inout` parameters
    bytes_written: ir.Expr  # bytes of the `out` and `inout` parameters

    def at(self, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
        """The four counts for the given sizes; IRError if one is missing."""
        parts = (self.float_ops, self.integer_ops, self.bytes_read, self.bytes_written)
        return tuple(_evaluate(part, sizes) for part in parts)  # type: ignore[return-value]


def cost(func: ir.Function) -> Cost:
    """The work of one call of `func`."""
    place = _Place((), {}, writes(func.body))
    floats, integers = _statement(func.body, place)
    zero: ir.Expr = ir.as_expr(0)
    read = written = zero
    for param in func.params:
        size: ir.Expr = ir.as_expr(param.buffer.dtype.bytes)
        for extent in param.buffer.shape:
            size = size * extent
        read = read + size if param.role != "out" else read
        written = written + size if param.role != "in" else written
    counts = (floats, integers, read, written)
    return Cost(*(simplify(count) for count in counts))


def cost_at(func: ir.Function, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
    """The four counts for given sizes, of loops too whose extents vary.

    The time is bounded whatever the sizes: of long such loops the counts are estimates.

    Raises:
        IRError: the counts depend on a size that is missing, or on data.
    """
    known = {
        var: ir.Const(sizes[var.name], var.dtype)
        for var in func.scalars
        if var.name in sizes
    }
    return cost(replace(func, body=substitute(func.body, known))).at(sizes)


def _evaluate(count: ir.Expr, sizes: Mapping[str, int]) -> int:
    known = {
        v: ir.as_expr(sizes[v.name])
        for v in walk(count)
        if isinstance(v, ir.Var) and v.name in sizes
    }
    result = simplify(substitute(count, known))
    if not isinstance(result, ir.Const):
        raise IRError(f"the cost depends on sizes that were not given: {result}")
    return int(result.value)


Counts = tuple[ir.Expr, ir.Expr]
_NONE: Counts = (ir.as_expr(0), ir.as_expr(0))


@frozen
class _Place:
    """The context of a statement: the loops around it, and what varies with them.

    Attributes:
        extents: The extents of the loops around, outermost first.
        depths: The depth of the innermost loop that each variable varies with; 0: none.
        written: Buffers that the function writes: their elements vary with all loops.
        most: The number of iterations of the nest here that may be counted one by one.
    """

    extents: tuple[ir.Expr, ...]
    depths: Mapping[ir.Var, int]
    written: frozenset[ir.Buffer]
    most: int = _MOST_COUNTED

    def inside(self, loop: ir.For) -> _Place:
        """The context of the loop's body."""
        extents = (*self.extents, loop.extent)
        return self._with({loop.var: len(extents)}, extents)

    def named(self, values: Mapping[ir.Var, ir.Expr]) -> _Place:
        """The context with variables bound to these values."""
        depths = {var: self.depth(value) for var, value in values.items()}
        return self._with(depths, self.extents)

    def depth(self, node: ir.Node) -> int:
        """The depth of the innermost loop a value varies with, where it is computed."""
        if isinstance(node, ir.Var):
            return self.depths.get(node, 0)
        if isinstance(node, ir.Load) and node.buffer in self.written:
            return len(self.extents)
        return max(map(self.depth, children(node)), default=0)

    def times(self, count: int, depth: int) -> ir.Expr:
        """`count` per iteration of the outermost `depth` loops."""
        total: ir.Expr = ir.as_expr(count)
        for extent in self.extents[:depth]:
            total = total * extent
        return total

    def _with(
        self, depths: Mapping[ir.Var, int], extents: tuple[ir.Expr, ...]
    ) -> _Place:
        return replace(self, extents=extents, depths={**self.depths, **depths})


def _plus(*counts: Counts) -> Counts:
    floats, integers = _NONE
    for more_floats, more_integers in counts:
        floats, integers = floats + more_floats, integers + more_integers
    return floats, integers


def _weights(node: ir.Node) -> tuple[int, int]:
    """Float and integer operations of one expression node, without its operands.

    Index arithmetic, which is i64, and selects are free.
    """
    if not isinstance(node, (ir.Unary, ir.Binary, ir.Compare, ir.Call, ir.LaneReduce)):
        return 0, 0
    dtype = node.a.dtype if isinstance(node, ir.Compare) else node.dtype
    weight = 2 if getattr(node, "name", "") == "fma" else 1
    if dtype.is_float:
        return weight * dtype.lanes, 0
    return 0, 0 if dtype.scalar.name == "i64" else weight * dtype.lanes


def _operations(expr: ir.Node, place: _Place) -> Counts:
    """The operations of all subexpressions, each for the loops it varies with."""
    parts = []
    for node in walk(expr):
        floats, integers = _weights(node)
        if floats or integers:
            depth = place.depth(node)
            parts.append((place.times(floats, depth), place.times(integers, depth)))
    return _plus(*parts)


@by_class
def _statement(stmt: ir.Stmt, place: _Place) -> Counts:
    del stmt, place
    return _NONE


@_statement.register
def _(stmt: ir.Seq, place: _Place) -> Counts:
    parts = []
    for part in stmt.stmts:
        parts.append(_statement(part, place))
        if isinstance(part, ir.Let):
            place = place.named({part.var: part.value})
    return _plus(*parts)


@_statement.register
def _(stmt: ir.For, place: _Place) -> Counts:
    loop = replace(stmt, extent=simplify(stmt.extent))
    different = _different(loop, int(place.most ** (1 / max(_nested(loop), 1))))
    if not different:
        return _statement(loop.body, place.inside(loop))
    place = replace(place, most=max(place.most // len(different), 1))
    total = _NONE
    for number, times in different.items():
        body = substitute(loop.body, {loop.var: ir.Const(number, loop.var.dtype)})
        floats, integers = _statement(body, place)
        total = _plus(total, (floats * times, integers * times))
        total = simplify(total[0]), simplify(total[1])
    return total


def _different(loop: ir.For, most: int) -> dict[int, int]:
    """Iterations between which loops inside differ in length, and how many are alike.

    At most `most` of them. Empty if there are none, or not known which.
    """
    extents = _varying(loop)
    if not isinstance(loop.extent, ir.Const) or not extents:
        return {}
    if any(holds(each, ir.Load) for each in extents):
        return {}
    extent = int(loop.extent.value)
    if all(free_vars(each) == {loop.var} for each in extents):
        spread = _spread(extent, most * _MOST_COMPARED)
        numbers = np.array([*spread], np.int64)
        found = [evaluate(each, {loop.var: numbers}) for each in extents]
        _, first, kinds = np.unique(
            found, axis=1, return_index=True, return_inverse=True
        )
        times = np.bincount(kinds.ravel(), [*spread.values()]).astype(np.int64)
        if len(first) <= most:
            return dict(zip(numbers[first].tolist(), times.tolist(), strict=True))
    return _spread(extent, most)


def _spread(extent: int, most: int) -> dict[int, int]:
    """At most `most` iterations, and how many around each it stands for.

    They are in the middle of an odd number, so that a linear function's sum is kept;
    the last one may stand for fewer.
    """
    width = -(-extent // most) | 1
    parts = ((start, min(width, extent - start)) for start in range(0, extent, width))
    return {start + (size - 1) // 2: size for start, size in parts}


def _varying(loop: ir.For) -> list[ir.Expr]:
    """The extents of loops inside that vary with a loop."""
    return [e.extent for e in loops(loop.body) if loop.var in free_vars(e.extent)]


def _nested(stmt: ir.Stmt) -> int:
    """The most loops around one another with whose variables extents vary."""
    own = isinstance(stmt, ir.For) and bool(_varying(stmt))
    return own + max(map(_nested, statements(stmt)), default=0)


@_statement.register
def _(stmt: ir.While, place: _Place) -> Counts:
    return _plus(_operations(stmt.cond, place), _statement(stmt.body, place))


@_statement.register
def _(stmt: ir.If, place: _Place) -> Counts:
    cond = simplify(stmt.cond)
    other = _statement(stmt.orelse, place) if stmt.orelse else _NONE
    if isinstance(cond, ir.Const):
        return _statement(stmt.then, place) if cond.value else other
    return _plus(_statement(stmt.then, place), other)


@_statement.register
def _(stmt: ir.Block, place: _Place) -> Counts:
    axes = {axis.var: axis.value for axis in stmt.axes}
    return _statement(stmt.body, place.named(axes))


@_statement.register
def _(stmt: ir.Let, place: _Place) -> Counts:
    return _operations(stmt.value, place)


@_statement.register
def _(stmt: ir.Store, place: _Place) -> Counts:
    return _operations(stmt.value, place)


@_statement.register
def _(stmt: ir.AtomicUpdate, place: _Place) -> Counts:
    own = place.times(1, len(place.extents)), ir.as_expr(0)
    if not stmt.buffer.dtype.is_float:
        own = own[1], own[0]
    return _plus(_operations(stmt.value, place), own)


@_statement.register
def _(stmt: ir.Reduce, place: _Place) -> Counts:
    parts = [_operations(value, place) for value in stmt.values]
    floats = integers = 0
    for combined in stmt.reducer.combine:
        for node in walk(combined):
            more_floats, more_integers = _weights(node)
            floats, integers = floats + more_floats, integers + more_integers
    depth = len(place.extents)
    return _plus(*parts, (place.times(floats, depth), place.times(integers, depth)))
