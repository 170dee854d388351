"""Emit dot product instructions: a row of `DOT_PRODUCTS` each."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.convert import emit
from tensorlang.codegen.llvm.memory import Value, shuffle
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.errors import CodegenError
from tensorlang.instructions import DOT_PRODUCTS
from tensorlang.ir.nodes import Call, Expr, Shuffle


def call(builder: Builder, expr: Call, value: Value) -> str:
    """The value of a dot product, with the factors of a sum made adjacent.

    Raises:
        CodegenError: the processor lacks the instruction.
    """
    row, dtype = DOT_PRODUCTS[expr.name], expr.dtype
    if dtype.lanes != row.lanes or not row.fits(builder.module.target.features):
        raise CodegenError(
            f"{row.name} is an instruction on {row.lanes} lanes of processors with "
            f"{' and '.join(row.features)}: this is for {dtype.lanes} lanes, or for "
            "another one"
        )
    kind = llvm_type(dtype)
    sums, *factors = expr.args
    return builder.call(
        row.llvm,
        kind,
        (kind, value(sums, builder)),
        _adjacent(builder, factors[: row.group], value),
        _adjacent(builder, factors[row.group :], value),
    )


def _adjacent(builder: Builder, parts: Sequence[Expr], value: Value) -> tuple[str, str]:
    """The lanes of several vectors in turn: the LLVM type, and the value.

    Vectors taken from one are a single shuffle of that, which is often none.
    """
    lanes, count = parts[0].dtype.lanes, len(parts)
    kind = parts[0].dtype.scalar.vector(lanes * count)
    taken = [part * lanes + lane for lane in range(lanes) for part in range(count)]
    held = [part for part in parts if isinstance(part, Shuffle)]
    sources = {part.vectors for part in held}
    if len(held) == count and len(sources) == 1 and len(held[0].vectors) == 1:
        places = [place for part in held for place in part.lanes_taken]
        taken, parts = [places[at] for at in taken], held[0].vectors
    given = [(value(part, builder), part.dtype) for part in parts]
    words = shuffle(builder, given, tuple(taken))
    if kind.name != "bf16":
        return llvm_type(kind), words
    operand = f"<{kind.lanes} x bfloat>"
    return operand, emit(builder, "bitcast", llvm_type(kind), words, operand)
