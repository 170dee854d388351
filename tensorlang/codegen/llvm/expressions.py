"""Emit expressions: `value(expr, builder)` returns the operand that holds the value."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.codegen.llvm import (
    arithmetic,
    convert,
    dot_products,
    intrinsics,
    memory,
    transposes,
)
from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.legalize import legalized
from tensorlang.codegen.llvm.types import literal, llvm_type, mangled, vector_literal
from tensorlang.errors import CodegenError
from tensorlang.instructions import DOT_PRODUCTS
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.cpu_natives import TRANSPOSES
from tensorlang.ir.dtypes import DType, u32
from tensorlang.ir.integers.intervals import Interval, within


def value(expr: ir.Expr, builder: Builder) -> str:
    """The operand holding `expr`: a literal, or the name of an instruction."""
    if isinstance(expr, ir.Const):
        return literal(expr)
    if isinstance(expr, ir.Var):
        return _variable(expr, builder)
    return builder.once(expr, _computed)


def _computed(expr: ir.Expr, builder: Builder) -> str:
    other = legalized(expr, builder)
    return _compute(expr, builder) if other is None else value(other, builder)


def _variable(var: ir.Var, builder: Builder) -> str:
    if var.name not in builder.variables:
        raise CodegenError(f"{var.name} is undefined where it is used")
    return builder.variables[var.name]


@by_class
def _compute(expr: ir.Expr, builder: Builder) -> str:
    del builder
    raise CodegenError(f"LLVM code has no {type(expr).__name__} expression")


@_compute.register
def _binary(expr: ir.Binary, builder: Builder) -> str:
    a, b = value(expr.a, builder), value(expr.b, builder)
    if expr.op in ("floordiv", "floormod") and expr.dtype.kind == "int":
        intervals = [builder.module.known.interval(part) for part in (expr.a, expr.b)]
        if all(within(each, (0, expr.dtype.limits[1])) for each in intervals):
            return _natural_division(expr, builder, a, b, intervals)
    return arithmetic.binary(builder, expr.op, expr.dtype, a, b, expr.b)


def _natural_division(
    expr: ir.Binary, builder: Builder, a: str, b: str, intervals: Sequence[Interval]
) -> str:
    """A division of what is not negative, of vectors in 32 bits where they suffice.

    No processor divides vectors, and few multiply 64 bits, which a division by a
    constant becomes.
    """
    dtype = expr.dtype
    few = dtype.lanes > 1 and all(within(each, u32.limits) for each in intervals)
    kind = DType("u32" if few else f"u{dtype.bits}", dtype.lanes)
    divisor = arithmetic.literal_value(expr.b)
    a = convert.cast(builder, dtype, a, kind)
    if divisor is None:
        b = convert.cast(builder, dtype, b, kind)
    else:
        b = arithmetic.constant(kind, divisor)
    made = arithmetic.binary(builder, expr.op, kind, a, b, expr.b)
    return convert.cast(builder, kind, made, dtype)


@_compute.register
def _unary(expr: ir.Unary, builder: Builder) -> str:
    return arithmetic.unary(builder, expr.op, expr.dtype, value(expr.a, builder))


@_compute.register
def _compare(expr: ir.Compare, builder: Builder) -> str:
    a, b = value(expr.a, builder), value(expr.b, builder)
    return arithmetic.compare(builder, expr.op, expr.a.dtype, a, b)


@_compute.register
def _select(expr: ir.Select, builder: Builder) -> str:
    cond = value(expr.cond, builder)
    a, b = value(expr.a, builder), value(expr.b, builder)
    kinds = llvm_type(expr.cond.dtype), llvm_type(expr.dtype)
    name = builder.name()
    return builder.emit(ins.select(name, kinds[0], cond, kinds[1], a, b))


@_compute.register
def _cast(expr: ir.Cast, builder: Builder) -> str:
    match expr:
        case ir.Cast(
            DType("u16", lanes), ir.Binary("shr", words, ir.Splat(ir.Const(16)))
        ):
            if words.dtype.scalar == u32:
                return convert.upper_halves(builder, lanes, value(words, builder))
    return convert.cast(builder, expr.a.dtype, value(expr.a, builder), expr.dtype)


@_compute.register
def _bitcast(expr: ir.Bitcast, builder: Builder) -> str:
    source, target = llvm_type(expr.a.dtype), llvm_type(expr.dtype)
    text = value(expr.a, builder)
    if source == target:
        return text
    return builder.emit(ins.cast(builder.name(), "bitcast", source, text, target))


@_compute.register
def _load(expr: ir.Load, builder: Builder) -> str:
    builder.reading()
    mask = None if expr.mask is None else value(expr.mask, builder)
    return memory.load(builder, expr, mask, value)


@_compute.register
def _call(expr: ir.Call, builder: Builder) -> str:
    if expr.name == "prefetch":
        (target,) = expr.args
        assert isinstance(target, ir.Load)
        return memory.prefetch(builder, target, value)
    if expr.name in DOT_PRODUCTS:
        return dot_products.call(builder, expr, value)
    if expr.name in TRANSPOSES:
        return transposes.call(builder, expr, value)
    args = [value(arg, builder) for arg in expr.args]
    return intrinsics.call(builder, expr, args)


@_compute.register
def _ramp(expr: ir.Ramp, builder: Builder) -> str:
    """The lanes' multiples of the stride, a literal if constant, plus the base."""
    kind, element = expr.dtype, llvm_type(expr.base.dtype)
    base = splat(builder, value(expr.base, builder), expr.base, kind.lanes)
    if isinstance(expr.stride, ir.Const):
        steps = [
            ir.Const(i * expr.stride.value, kind.scalar) for i in range(kind.lanes)
        ]
        lanes = vector_literal(element, [literal(step) for step in steps])
        if isinstance(expr.base, ir.Const) and expr.base.value == 0:
            return lanes
        return builder.emit(
            ins.binary(builder.name(), "add", llvm_type(kind), base, lanes)
        )
    stride = splat(builder, value(expr.stride, builder), expr.stride, kind.lanes)
    count = vector_literal(element, [str(i) for i in range(kind.lanes)])
    step = builder.emit(
        ins.binary(builder.name(), "mul", llvm_type(kind), stride, count)
    )
    return builder.emit(ins.binary(builder.name(), "add", llvm_type(kind), base, step))


@_compute.register
def _splat(expr: ir.Splat, builder: Builder) -> str:
    return splat(builder, value(expr.value, builder), expr.value, expr.lanes)


def splat(builder: Builder, text: str, scalar: ir.Expr, lanes: int) -> str:
    """A scalar operand in all lanes; a literal for a literal."""
    element = llvm_type(scalar.dtype)
    if not text.startswith("%"):
        return vector_literal(element, [text])
    return builder.emit(ins.splat(builder.name(), lanes, element, text))


@_compute.register
def _shuffle(expr: ir.Shuffle, builder: Builder) -> str:
    """LLVM shuffles two vectors of one type: join more pairwise first."""
    if column := transposes.taken(builder, expr, value):
        return column
    parts: list[tuple[str, DType]] = []
    places: list[int] = []
    start = 0
    for vector in expr.vectors:
        text, kind = value(vector, builder), vector.dtype
        places += range(start, start + kind.lanes)
        if kind.lanes == 1:  # LLVM has no one-lane vectors here
            text, kind = splat(builder, text, vector, 2), kind.vector(2)
        parts.append((text, kind))
        start += kind.lanes
    taken = tuple(places[lane] for lane in expr.lanes_taken)
    return memory.shuffle(builder, parts, taken)


@_compute.register
def _extract(expr: ir.Extract, builder: Builder) -> str:
    vector = value(expr.vector, builder)
    kind = llvm_type(expr.vector.dtype)
    return builder.emit(ins.extract(builder.name(), kind, vector, expr.lane))


@_compute.register
def _insert(expr: ir.Insert, builder: Builder) -> str:
    vector, item = value(expr.vector, builder), value(expr.value, builder)
    kinds = llvm_type(expr.dtype), llvm_type(expr.value.dtype)
    return builder.emit(
        ins.insert(builder.name(), kinds[0], vector, kinds[1], item, expr.lane)
    )


@_compute.register
def _lane_reduce(expr: ir.LaneReduce, builder: Builder) -> str:
    """Bools and sums of integers; `legalize` expands the others into halves."""
    kind = expr.vector.dtype
    function = f"llvm.vector.reduce.{expr.op}.{mangled(kind)}"
    text = value(expr.vector, builder)
    return builder.call(function, llvm_type(kind.scalar), (llvm_type(kind), text))
