"""Transposes in registers as shuffles of two rows each: a butterfly.

    columns: f32x16 = transpose_4(r0, r1, r2, r3)
    y[ramp(b, 1, 4)] = columns[0:4]
->  columns_1_0: f32x4 = shuffle((r0, r1), (0, 4, 2, 6))
    ...
    columns_2_0: f32x4 = shuffle((columns_1_0, columns_1_2), (0, 1, 4, 5))
    y[ramp(b, 1, 4)] = columns_2_0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.cpu_natives import TRANSPOSES
from tensorlang.ir.visit import transform, transform_statements

# round, result, first row, lanes taken
Step: TypeAlias = tuple[int, int, int, tuple[int, ...]]


def is_transpose(expr: ir.Expr) -> bool:
    """Whether an expression is the columns of a square."""
    return isinstance(expr, ir.Call) and expr.name in TRANSPOSES


def column(shuffle: ir.Shuffle, count: int) -> int | None:
    """The number of the column that a shuffle of `count` columns takes, or None."""
    first, lanes = shuffle.lanes_taken[0], len(shuffle.lanes_taken)
    whole = shuffle.lanes_taken == tuple(range(first, first + lanes))
    if whole and first % lanes == 0 and lanes * count == shuffle.vectors[0].dtype.lanes:
        return first // lanes
    return None


def butterfly(count: int, group: int) -> Iterator[Step]:
    """Steps that turn rows into columns.

    Row and lane numbers are exchanged bit by bit: in the round of bit b, rows i and
    i + b become two others of these numbers. A `group` of lanes stays together.
    """
    for bit in (1 << n for n in range(count.bit_length() - 1)):
        low = [x if not x & bit else count + (x ^ bit) for x in range(count)]
        high = [count + x if x & bit else x | bit for x in range(count)]
        for row in range(count):
            places = high if row & bit else low
            lanes = tuple(at * group + n for at in places for n in range(group))
            yield bit, row, row & ~bit, lanes


def expand_transposes(function: ir.Function, names: Names) -> ir.Function:
    """The function with shuffles in place of transposes."""

    def change(stmt: ir.Stmt) -> ir.Stmt:
        return _expanded(stmt, names) if isinstance(stmt, ir.Seq) else stmt

    return transform_statements(function, change)


def _expanded(seq: ir.Seq, names: Names) -> ir.Stmt:
    made: list[ir.Stmt] = []
    columns: dict[ir.Expr, list[ir.Expr]] = {}

    def taken(node: ir.Node) -> ir.Node:
        match node:
            case ir.Shuffle(vectors=(vector,)) if vector in columns:
                at = column(node, len(columns[vector]))
                return node if at is None else columns[vector][at]
        return node

    for stmt in seq.stmts:
        match transform(stmt, taken) if columns else stmt:
            case ir.Let(var, ir.Call() as call) if is_transpose(call):
                lets, columns[var] = _rounds(var, call, names)
                made += lets
            case other:
                made.append(other)
    return ir.seq(*made)


def _rounds(
    var: ir.Var, call: ir.Call, names: Names
) -> tuple[list[ir.Let], list[ir.Expr]]:
    """The lets of a transpose, and its columns."""
    rows, lets, count = list(call.args), [], len(call.args)
    before = rows
    for bit, row, first, lanes in butterfly(count, rows[0].dtype.lanes // count):
        if row == 0:
            before = list(rows)
        value = ir.Shuffle((before[first], before[first | bit]), lanes)
        made = names.var(f"{var.name}_{bit}_{row}", value.dtype)
        lets.append(ir.Let(made, value))
        rows[row] = made
    return lets, rows
