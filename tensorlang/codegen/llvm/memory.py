"""Loads, stores, gathers and shuffles.

A contiguous ramp of indices is one wide access; other index vectors gather or scatter.
Alignment is known for our own memory (stack, workspace), from the divisors of the
index, or by a hint of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TypeAlias

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.arithmetic import compare, constant, take
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import (
    llvm_type,
    mangled,
    memory_type,
    vector_literal,
)
from tensorlang.codegen.multiples import multiple
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType

Value: TypeAlias = Callable[[ir.Expr, Builder], str]
_LINE = 64
_GATHERED = 32  # bits of the smallest elements that processors gather
_ATOMIC = ("add", "and", "or", "xor")


def contiguous(index: ir.Expr) -> bool:
    """Whether the lanes of an index are contiguous in memory."""
    match index:
        case ir.Ramp(stride=ir.Const(value=1)):
            return True
        case _:
            return False


def address(
    builder: Builder, access: ir.Load | ir.Store | ir.AtomicUpdate, value: Value
) -> str:
    """The address of the (first) element of an access to flattened memory."""
    buffer = access.buffer
    if len(access.indices) > 1:
        raise CodegenError(
            f"{buffer.name} reaches code generation without being flattened"
        )
    if buffer not in builder.pointers:
        raise CodegenError(f"{buffer.name} is used outside of its allocation")
    index = access.indices[0] if access.indices else ir.Const(0, DType("i64"))
    pointer = builder.pointers[buffer]
    match index:
        case ir.Ramp(stride=ir.Const(value=1)):
            index = index.base
    if isinstance(index, ir.Const) and index.value == 0:
        return pointer
    kind = llvm_type(index.dtype)
    text = value(index, builder)
    element = memory_type(buffer.dtype)
    whole = isinstance(access, ir.AtomicUpdate) or access.mask is None
    name = builder.name()
    return builder.emit(ins.address(name, element, pointer, kind, text, whole))


def alignment(builder: Builder, access: ir.Load | ir.Store) -> int:
    """Known alignment of an access, in bytes."""
    size = access.buffer.dtype.bytes
    index = access.indices[0] if access.indices else ir.Const(0, DType("i64"))
    lanes = index.dtype.lanes
    if "aligned" in access.hints and not lanes & (lanes - 1):
        return max(size, min(size * lanes, _LINE))
    if access.buffer not in builder.aligned:
        return size
    base = index.base if isinstance(index, ir.Ramp) else index
    if contiguous(index):
        return gcd(_LINE, multiple(base, builder.multiples) * size)
    return size


def load(builder: Builder, expr: ir.Load, mask: str | None, value: Value) -> str:
    """A scalar, contiguous or gathered load; masked-off lanes are 0."""
    stored = memory_type(expr.dtype)
    index = expr.indices[0] if expr.indices else None
    if mask is None and _lane_by_lane(expr, expr.dtype):
        text = _loads(builder, expr, value)
        return _as_truth(builder, expr.dtype, text) if expr.dtype.is_bool else text
    pointer = address(builder, expr, value)
    if index is not None and index.dtype.lanes > 1 and not contiguous(index):
        text = _gather(builder, expr, pointer, mask)
    elif mask is not None:
        text = _masked_load(builder, expr, pointer, mask)
    else:
        align = alignment(builder, expr)
        text = builder.emit(ins.load(builder.name(), stored, pointer, align))
    return _as_truth(builder, expr.dtype, text) if expr.dtype.is_bool else text


def _as_truth(builder: Builder, dtype: DType, text: str) -> str:
    kind = dtype_of_bytes(dtype)
    return compare(builder, "ne", kind, text, constant(kind, 0))


def dtype_of_bytes(dtype: DType) -> DType:
    """The type in memory: `u8` for bool; other types are unchanged."""
    return DType("u8", dtype.lanes) if dtype.is_bool else dtype


def _masked_load(builder: Builder, expr: ir.Load, pointer: str, mask: str) -> str:
    """A masked load; a scalar as one lane, which LLVM turns into a branch."""
    dtype = dtype_of_bytes(expr.dtype)
    lanes = dtype.lanes
    kind = f"<{lanes} x {llvm_type(dtype.scalar)}>"
    name = mangled(dtype) if lanes > 1 else f"v1{mangled(dtype)}"
    if lanes == 1:
        one = builder.name()
        mask = builder.emit(ins.insert(one, "<1 x i1>", "poison", "i1", mask, 0))
    text = builder.call(
        f"llvm.masked.load.{name}.p0",
        kind,
        ("ptr", pointer),
        ("i32", str(alignment(builder, expr))),
        (f"<{lanes} x i1>", mask),
        (kind, "zeroinitializer"),
    )
    if lanes > 1:
        return text
    return builder.emit(ins.extract(builder.name(), kind, text, 0))


def _lane_by_lane(access: ir.Load | ir.Store, dtype: DType) -> bool:
    """Whether lanes are to be loaded or stored one by one.

    No processor gathers elements of less than 32 bits: LLVM would take each address out
    of a vector, though they differ by constants.
    """
    index = access.indices[0] if access.indices else None
    if index is None or dtype.lanes == 1 or contiguous(index):
        return False
    offsets = _offsets(index) if dtype.bits < _GATHERED else None
    return offsets is not None and len({*offsets}) == dtype.lanes


def _offsets(index: ir.Expr) -> list[int] | None:
    """What is added to the first lane of an index in each, if that is constant."""
    count = range(index.dtype.lanes)
    match index:
        case ir.Splat():
            return [0 for _ in count]
        case ir.Ramp(stride=ir.Const(value=step)):
            return [int(step) * n for n in count]
        case ir.Binary(op="add" | "sub" as op, a=a, b=b):
            first, second = _offsets(a), _offsets(b)
            if first is None or second is None:
                return None
            sign = 1 if op == "add" else -1
            return [x + sign * y for x, y in zip(first, second, strict=True)]
        case ir.Binary(op="mul", a=a, b=ir.Splat(value=ir.Const(value=by))):
            found = _offsets(a)
            return found and [n * int(by) for n in found]
        case ir.Binary(
            op="floordiv" | "floormod" as op,
            a=ir.Ramp(base=ir.Const(value=base), stride=ir.Const(value=step)),
            b=ir.Splat(value=ir.Const(value=by)),
        ) if by > 0:
            digits = [divmod(int(base) + int(step) * n, int(by)) for n in count]
            values = [q if op == "floordiv" else r for q, r in digits]
            return [value - values[0] for value in values]
    return None


def _lane(index: ir.Expr, lane: int) -> ir.Expr:
    """One lane of such an index."""
    match index:
        case ir.Binary(op=op, a=a, b=b):
            return ir.Binary(op, _lane(a, lane), _lane(b, lane))
        case ir.Ramp(base=base, stride=stride):
            return base + stride * ir.Const(lane, stride.dtype)
        case ir.Splat(value=value):
            return value
    raise CodegenError(f"{index!r} has no lanes")


def _loads(builder: Builder, expr: ir.Load, value: Value) -> str:
    """The lanes of a vector, loaded one by one."""
    dtype, (index,) = dtype_of_bytes(expr.dtype), expr.indices
    kind, text = llvm_type(dtype), "poison"
    for lane in range(dtype.lanes):
        one = ir.Load(expr.buffer, (_lane(index, lane),))
        stored = memory_type(one.dtype)
        pointer = address(builder, one, value)
        align = alignment(builder, one)
        made = builder.emit(ins.load(builder.name(), stored, pointer, align))
        text = builder.emit(ins.insert(builder.name(), kind, text, stored, made, lane))
    return text


def _gather(builder: Builder, expr: ir.Load, pointers: str, mask: str | None) -> str:
    dtype = dtype_of_bytes(expr.dtype)
    lanes, kind = dtype.lanes, llvm_type(dtype)
    every = vector_literal("i1", ["true"])
    return builder.call(
        f"llvm.masked.gather.{mangled(dtype)}.v{lanes}p0",
        kind,
        (f"<{lanes} x ptr>", pointers),
        ("i32", str(dtype.bytes)),
        (f"<{lanes} x i1>", mask or every),
        (kind, "zeroinitializer"),
    )


def store(builder: Builder, stmt: ir.Store, value: Value) -> None:
    """The mirror of `load`; the caller branches around a masked scalar store."""
    text, dtype = stored(builder, stmt, value)
    mask = None if stmt.mask is None else value(stmt.mask, builder)
    kind = llvm_type(dtype)
    if mask is None and _lane_by_lane(stmt, dtype):
        _stores(builder, stmt, text, dtype, value)
        return
    pointer = address(builder, stmt, value)
    index = stmt.indices[0] if stmt.indices else None
    if index is not None and index.dtype.lanes > 1 and not contiguous(index):
        _scatter(builder, dtype, text, pointer, mask)
    elif mask is not None:
        builder.call(
            f"llvm.masked.store.{mangled(dtype)}.p0",
            "void",
            (kind, text),
            ("ptr", pointer),
            ("i32", str(alignment(builder, stmt))),
            (f"<{dtype.lanes} x i1>", mask),
        )
    else:
        align = alignment(builder, stmt)
        builder.emit(ins.store(kind, text, pointer, align))


def _stores(
    builder: Builder, stmt: ir.Store, text: str, dtype: DType, value: Value
) -> None:
    """The lanes of a vector, stored one by one."""
    (index,), kind, element = stmt.indices, llvm_type(dtype), llvm_type(dtype.scalar)
    for lane in range(dtype.lanes):
        place = ir.Load(stmt.buffer, (_lane(index, lane),))
        one = builder.emit(ins.extract(builder.name(), kind, text, lane))
        pointer = address(builder, place, value)
        builder.emit(ins.store(element, one, pointer, alignment(builder, place)))


def stored(builder: Builder, stmt: ir.Store, value: Value) -> tuple[str, DType]:
    """The value of a store as represented in memory, and its type there."""
    text = value(stmt.value, builder)
    dtype = dtype_of_bytes(stmt.value.dtype)
    if stmt.value.dtype.is_bool:
        kinds = llvm_type(stmt.value.dtype), llvm_type(dtype)
        text = builder.emit(ins.cast(builder.name(), "zext", kinds[0], text, kinds[1]))
    return text, dtype


def _scatter(
    builder: Builder, dtype: DType, text: str, pointers: str, mask: str | None
) -> None:
    lanes, kind = dtype.lanes, llvm_type(dtype)
    builder.call(
        f"llvm.masked.scatter.{mangled(dtype)}.v{lanes}p0",
        "void",
        (kind, text),
        (f"<{lanes} x ptr>", pointers),
        ("i32", str(dtype.bytes)),
        (f"<{lanes} x i1>", mask or vector_literal("i1", ["true"])),
    )


def atomic(builder: Builder, stmt: ir.AtomicUpdate, value: Value) -> None:
    """`atomicrmw` if LLVM has it, else a compare-and-exchange loop.

    `atomicrmw` of min and max treats NaN as the IR does.
    """
    dtype = stmt.buffer.dtype
    text = value(stmt.value, builder)
    pointer = address(builder, stmt, value)
    op = _atomic_op(stmt.op, dtype)
    if not op:
        _exchange(builder, stmt, text, pointer, value)
        return
    if dtype.is_bool:
        text = builder.emit(ins.cast(builder.name(), "zext", "i1", text, "i8"))
    kind = memory_type(dtype)
    builder.emit(ins.atomic(builder.name(), op, pointer, kind, text))


def _atomic_op(op: str, dtype: DType) -> str:
    """LLVM's name of an update; empty if there is none."""
    if dtype.name in ("f32", "f64"):
        return f"f{op}" if op in ("add", "min", "max") else ""
    if dtype.is_float:
        return ""
    if op in ("min", "max"):
        return op if dtype.kind == "int" else f"u{op}"
    return op if op in _ATOMIC else ""


def _exchange(
    builder: Builder, stmt: ir.AtomicUpdate, text: str, pointer: str, value: Value
) -> None:
    """A compare-and-exchange loop that computes the new value."""
    dtype = stmt.buffer.dtype
    kind, bits = llvm_type(dtype), f"i{dtype.bits}"
    again, done = builder.label("update"), builder.label("updated")
    old, new = (ir.Var(builder.name(hint)[1:], dtype) for hint in ("old", "new"))
    builder.emit(ins.jump(again))
    builder.start(again)
    with builder.scope():
        name = f"%{old.name}"
        raw = builder.emit(
            ins.load(builder.name(), bits, pointer, dtype.bytes, atomic=True)
        )
        builder.emit(ins.cast(name, "bitcast", bits, raw, kind))
        builder.variables |= {old.name: name, new.name: text}
        made = value(ir.Binary(stmt.op, old, new), builder)
        made = builder.emit(ins.cast(builder.name(), "bitcast", kind, made, bits))
        kept = builder.emit(ins.exchange(builder.name(), bits, pointer, raw, made))
    builder.emit(ins.branch(kept, done, again))
    builder.start(done)


def prefetch(builder: Builder, target: ir.Load, value: Value) -> str:
    """A read prefetch into all cache levels."""
    pointer = address(builder, target, value)
    given = [("ptr", pointer), ("i32", "0"), ("i32", "3"), ("i32", "1")]
    builder.call("llvm.prefetch.p0", "void", *given)
    return "true"


def shuffle(
    builder: Builder, parts: list[tuple[str, DType]], taken: tuple[int, ...]
) -> str:
    """Lanes of several vectors, joined pairwise until at most two remain."""
    while len(parts) > 2 or (len(parts) == 2 and parts[0][1] != parts[1][1]):
        joined = [_join(builder, parts[i : i + 2]) for i in range(0, len(parts), 2)]
        if len(joined) == 1:
            parts = joined
            break
        parts = joined
    if len(parts) == 2 and len(taken) == 1:
        parts = [_join(builder, parts)]
    (first, kind), rest = parts[0], parts[1:]
    if not rest:
        return take(builder, kind, first, taken)
    second = rest[0][0]
    name = builder.name()
    return builder.emit(ins.shuffle(name, llvm_type(kind), first, second, taken))


def _join(builder: Builder, pair: list[tuple[str, DType]]) -> tuple[str, DType]:
    """Concatenate two vectors; the shorter one is padded first."""
    if len(pair) == 1:
        return pair[0]
    (_, ka), (_, kb) = pair
    lanes = max(ka.lanes, kb.lanes)
    padded = [_pad(builder, text, kind, lanes) for text, kind in pair]
    total = ka.scalar.vector(ka.lanes + kb.lanes)
    taken = [*range(ka.lanes), *range(lanes, lanes + kb.lanes)]
    kind = llvm_type(ka.scalar.vector(lanes))
    shuffled = ins.shuffle(builder.name(), kind, padded[0], padded[1], taken)
    return builder.emit(shuffled), total


def _pad(builder: Builder, text: str, kind: DType, lanes: int) -> str:
    if kind.lanes == lanes:
        return text
    taken = [*range(kind.lanes), *([kind.lanes] * (lanes - kind.lanes))]
    return builder.emit(
        ins.shuffle(builder.name(), llvm_type(kind), text, "poison", taken)
    )
