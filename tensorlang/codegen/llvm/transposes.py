"""Emit transposes in registers: calls of helpers, which LLVM expands in line.

A helper takes the rows of a square as vectors and returns its columns in an array.
"""

from __future__ import annotations

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.memory import Value
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.codegen.vectors.transposes import butterfly, column, is_transpose
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType


def call(builder: Builder, expr: ir.Call, value: Value) -> str:
    """The columns of a square, as an array."""
    row, count = expr.args[0].dtype, len(expr.args)
    helper = _helper(builder, row, count)
    given = [f"{llvm_type(row)} {value(arg, builder)}" for arg in expr.args]
    return builder.emit(ins.call(builder.name(), _array(row, count), helper, given))


def taken(builder: Builder, expr: ir.Shuffle, value: Value) -> str | None:
    """A column that a shuffle takes from those of a square; None if it is another.

    Raises:
        CodegenError: it takes something else from them.
    """
    vector, *others = expr.vectors
    held = builder.squares.get(vector, vector)
    if others or not is_transpose(held):
        return None
    assert isinstance(held, ir.Call)
    count = len(held.args)
    number = column(expr, count)
    if number is None:
        raise CodegenError(f"{vector} is used one column at a time, not as {expr}")
    array = _array(held.args[0].dtype, count)
    return builder.emit(
        ins.member(builder.name(), array, value(vector, builder), number)
    )


def variable_type(builder: Builder, var: ir.Var) -> str:
    """The LLVM type of a variable, which may hold the columns of a square."""
    match builder.squares.get(var):
        case ir.Call(args=rows):
            return _array(rows[0].dtype, len(rows))
    return llvm_type(var.dtype)


def _array(row: DType, count: int) -> str:
    return f"[{count} x {llvm_type(row)}]"


def _helper(builder: Builder, row: DType, count: int) -> str:
    """The name of the helper for rows of a type, which the module has from now on."""
    group, kind, array = row.lanes // count, llvm_type(row), _array(row, count)
    across = f"{group}x{row.scalar}" if group > 1 else f"{row.scalar}"
    name = f"transpose_{count}x{count}x{across}"
    if name in builder.module.helpers:
        return name
    rows = [f"%r{n}" for n in range(count)]
    routine = ins.Routine(
        "internal ",
        array,
        name,
        [f"{kind} {text}" for text in rows],
        "alwaysinline nounwind",
        [ins.Label("entry")],
        "the columns of a square, by exchanging row and lane numbers bit by bit",
    )
    before = rows
    for bit, at, first, lanes in butterfly(count, group):
        if at == 0:
            before = list(rows)
        rows[at] = f"%s{bit}.{at}"
        pair = before[first], before[first | bit]
        routine.body.append(ins.shuffle(rows[at], kind, *pair, lanes))
    held = "poison"
    for number, text in enumerate(rows):
        made = f"%columns.{number}"
        routine.body.append(ins.with_member(made, array, held, kind, text, number))
        held = made
    routine.body.append(ins.returns(array, held))
    builder.module.helpers[name] = routine
    return name
