"""Emit statements: `run(stmt, builder)` appends their instructions in order.

A serial loop is rotated: it is guarded at its start and tests at its end; its counter
is the only phi. All other loop-carried state is in memory, which SROA and LICM promote
to registers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TypeAlias

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import matrix_products, memory, nontemporal
from tensorlang.codegen.llvm.arithmetic import compare
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.expressions import value
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.codegen.multiples import multiple
from tensorlang.codegen.narrow import NARROW
from tensorlang.codegen.nontemporal import is_nontemporal
from tensorlang.codegen.vectors.transposes import is_transpose
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import walk

Body: TypeAlias = Callable[[ir.Stmt], None]
_NO_VECTORS = '!{!"llvm.loop.vectorize.enable", i1 false}'
_NO_UNROLL = '!{!"llvm.loop.unroll.disable"}'


def run(stmt: ir.Stmt, builder: Builder) -> None:
    """Append the instructions of a statement.

    Raises:
        CodegenError: the statement should have been lowered, or is not for CPUs.
    """
    first = len(builder.body)
    _run(stmt, builder)
    builder.observe(first, stmt)


@by_class
def _run(stmt: ir.Stmt, builder: Builder) -> None:
    del builder
    raise CodegenError(f"LLVM code has no {type(stmt).__name__} statement")


@_run.register
def _seq(stmt: ir.Seq, builder: Builder) -> None:
    for streaming, items in groupby(stmt.stmts, is_nontemporal):
        if streaming:
            first = len(builder.body)
            stores = [s for s in items if is_nontemporal(s)]
            nontemporal.store_all(builder, stores, value)
            builder.observe(first, *stores)
            builder.effect()
        else:
            for item in items:
                run(item, builder)


@_run.register
def _let(stmt: ir.Let, builder: Builder) -> None:
    text = value(stmt.value, builder)
    name = stmt.var.name
    if name in builder.variables:
        builder.forget(stmt.var)
    builder.variables[name] = builder.rename(stmt.value, text, name)
    builder.multiples[stmt.var] = multiple(stmt.value, builder.multiples)
    match stmt.value:
        case ir.Call() if is_transpose(stmt.value):
            builder.squares[stmt.var] = stmt.value
        case ir.Cast(a=a) if a.dtype.name in NARROW:
            twin = ir.Var(builder.name(f"{name}.{a.dtype.name}")[1:], a.dtype)
            builder.variables[twin.name] = value(a, builder)
            builder.narrow[stmt.var] = twin


@_run.register
def _alloc(stmt: ir.Alloc, builder: Builder) -> None:
    if stmt.buffer in builder.pointers:  # in the workspace
        return
    (extent,) = stmt.buffer.shape or (ir.Const(1, i64),)
    if not isinstance(extent, ir.Const):
        raise CodegenError(
            f"{stmt.buffer.name}: a buffer on the stack needs a constant size"
        )
    builder.allocate(stmt.buffer, int(extent.value))


@_run.register
def _store(stmt: ir.Store, builder: Builder) -> None:
    if stmt.mask is not None and stmt.mask.dtype.lanes == 1:
        plain = ir.Store(stmt.buffer, stmt.indices, stmt.value, None, stmt.hints)
        run(ir.If(stmt.mask, plain), builder)
        return
    if matrix_products.store(builder, stmt, value):
        return
    if is_nontemporal(stmt):
        nontemporal.store_all(builder, [stmt], value)
    else:
        memory.store(builder, stmt, value)
    builder.effect()


@_run.register
def _atomic(stmt: ir.AtomicUpdate, builder: Builder) -> None:
    memory.atomic(builder, stmt, value)
    builder.effect()


@_run.register
def _evaluate(stmt: ir.Evaluate, builder: Builder) -> None:
    builder.effect()  # repeated checks must not be merged
    with builder.scope():
        value(stmt.expr, builder)


@_run.register
def _control(stmt: ir.If | ir.For | ir.While, builder: Builder) -> None:
    control(stmt, builder, lambda body: run(body, builder))


def control(stmt: ir.If | ir.For | ir.While, builder: Builder, body: Body) -> None:
    """Emit a branch or loop; `body` emits the statements inside."""
    first = len(builder.body)
    match stmt:
        case ir.If():
            _branch(stmt, builder, body)
        case ir.For():
            _loop(stmt, builder, body)
        case ir.While():
            _repeat(stmt, builder, body)
    builder.observe(first, stmt)


def _branch(stmt: ir.If, builder: Builder, body: Body) -> None:
    cond = value(stmt.cond, builder)
    hints = ("then", "else", "joined") if stmt.orelse else ("then", "joined")
    labels = [builder.label(hint) for hint in hints]
    builder.emit(ins.branch(cond, labels[0], labels[1]))
    for label, branch in zip(labels[:-1], (stmt.then, stmt.orelse), strict=False):
        assert branch is not None
        builder.start(label)
        with builder.scope():
            body(branch)
        builder.emit(ins.jump(labels[-1]))
    builder.start(labels[-1])


def _loop(stmt: ir.For, builder: Builder, body: Body) -> None:
    if stmt.kind != "serial":
        raise CodegenError(f"loop {stmt.var.name}: {stmt.kind} should be lowered")
    extent, kind = value(stmt.extent, builder), llvm_type(stmt.var.dtype)
    name = stmt.var.name
    head, after = builder.label(f"{name}.loop"), builder.label(f"{name}.done")
    before = _enter(stmt, builder, extent, head, after)
    builder.start(head)
    counter, following = builder.name(name), builder.name(f"{name}.next")
    phi = ins.Phi(kind, counter)
    builder.emit(phi)
    with builder.scope():
        builder.variables[name] = counter
        body(stmt.body)
        builder.emit(ins.binary(following, "add nuw nsw", kind, counter, "1"))
        more = compare(builder, "lt", stmt.var.dtype, following, extent)
        phi.incoming = [("0", before), (following, builder.block)]
        properties = _properties(stmt)
        loop = builder.module.loop(*properties) if properties else ""
        builder.emit(ins.branch(more, head, after, loop))
    builder.start(after)


def _enter(stmt: ir.For, builder: Builder, extent: str, head: str, after: str) -> str:
    """Branch into a loop, or past an empty one; returns the block branched from."""
    before = builder.block
    if isinstance(stmt.extent, ir.Const) and stmt.extent.value > 0:
        builder.emit(ins.jump(head))
    else:
        some = compare(builder, "gt", stmt.var.dtype, extent, "0")
        builder.emit(ins.branch(some, head, after))
    return before


def _properties(stmt: ir.For) -> tuple[str, ...]:
    """Keep loops over vectors as scheduled; LLVM may transform others."""
    scheduled = any(isinstance(n, (ir.Ramp, ir.Splat)) for n in walk(stmt.body))
    return (_NO_VECTORS, _NO_UNROLL) if scheduled else ()


def _repeat(stmt: ir.While, builder: Builder, body: Body) -> None:
    labels = [builder.label(f"while.{part}") for part in ("test", "body", "done")]
    builder.emit(ins.jump(labels[0]))
    builder.start(labels[0])
    with builder.scope():
        cond = value(stmt.cond, builder)
        builder.emit(ins.branch(cond, labels[1], labels[2]))
        builder.start(labels[1])
        with builder.scope():
            body(stmt.body)
        builder.emit(ins.jump(labels[0]))
    builder.start(labels[2])
