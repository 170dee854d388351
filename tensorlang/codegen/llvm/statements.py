"""Statements to instructions: `run(stmt, builder)` appends them in order.

A serial loop tests at its end, after one guard at its start; its counter is the only
phi. Everything else that lives across iterations is in memory, which LLVM's SROA and
LICM turn into registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from itertools import groupby
from typing import TypeAlias

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import memory, stream
from tensorlang.codegen.llvm.arithmetic import compare
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.expressions import value
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.codegen.multiples import multiple
from tensorlang.codegen.narrow import NARROW
from tensorlang.codegen.streams import is_stream
from tensorlang.errors import CodegenError
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import (
    Alloc,
    AtomicUpdate,
    Cast,
    Const,
    Evaluate,
    For,
    If,
    Let,
    Ramp,
    Seq,
    Splat,
    Stmt,
    Store,
    Var,
    While,
)
from tensorlang.ir.visit import walk

Body: TypeAlias = Callable[[Stmt], None]
_NO_VECTORS = '!{!"llvm.loop.vectorize.enable", i1 false}'
_NO_UNROLL = '!{!"llvm.loop.unroll.disable"}'


@singledispatch
def run(stmt: Stmt, builder: Builder) -> None:
    """Append the instructions of a statement.

    Raises:
        CodegenError: the statement should have been lowered, or is not for CPUs.
    """
    del builder
    raise CodegenError(f"LLVM code has no {type(stmt).__name__} statement")


@run.register
def _seq(stmt: Seq, builder: Builder) -> None:
    for streaming, items in groupby(stmt.stmts, is_stream):
        if streaming:
            stream.store_all(builder, [s for s in items if is_stream(s)], value)
            builder.effect()
        else:
            for item in items:
                run(item, builder)


@run.register
def _let(stmt: Let, builder: Builder) -> None:
    text = value(stmt.value, builder)
    name = stmt.var.name
    builder.variables[name] = builder.rename(stmt.value, text, name)
    builder.multiples[stmt.var] = multiple(stmt.value, builder.multiples)
    match stmt.value:
        case Cast(a=a) if a.dtype.name in NARROW:
            twin = Var(builder.name(f"{name}.{a.dtype.name}")[1:], a.dtype)
            builder.variables[twin.name] = value(a, builder)
            builder.narrow[stmt.var] = twin


@run.register
def _alloc(stmt: Alloc, builder: Builder) -> None:
    if stmt.buffer in builder.pointers:  # a piece of the workspace
        return
    (extent,) = stmt.buffer.shape or (Const(1, i64),)
    if not isinstance(extent, Const):
        raise CodegenError(f"{stmt.buffer.name}: its size on the stack is not known")
    builder.allocate(stmt.buffer, int(extent.value))


@run.register
def _store(stmt: Store, builder: Builder) -> None:
    if stmt.mask is not None and stmt.mask.dtype.lanes == 1:
        plain = Store(stmt.buffer, stmt.indices, stmt.value, None, stmt.hints)
        run(If(stmt.mask, plain), builder)
        return
    if is_stream(stmt):
        stream.store_all(builder, [stmt], value)
    else:
        memory.store(builder, stmt, value)
    builder.effect()


@run.register
def _atomic(stmt: AtomicUpdate, builder: Builder) -> None:
    memory.atomic(builder, stmt, value)
    builder.effect()


@run.register
def _evaluate(stmt: Evaluate, builder: Builder) -> None:
    builder.effect()  # the same check twice is two checks
    with builder.scope():
        value(stmt.expr, builder)


@run.register
def _if(stmt: If, builder: Builder) -> None:
    control(stmt, builder, lambda body: run(body, builder))


@run.register
def _for(stmt: For, builder: Builder) -> None:
    control(stmt, builder, lambda body: run(body, builder))


@run.register
def _while(stmt: While, builder: Builder) -> None:
    control(stmt, builder, lambda body: run(body, builder))


def control(stmt: If | For | While, builder: Builder, body: Body) -> None:
    """Branches and loops; `body` appends what stands inside them."""
    match stmt:
        case If():
            _branch(stmt, builder, body)
        case For():
            _loop(stmt, builder, body)
        case While():
            _repeat(stmt, builder, body)


def _branch(stmt: If, builder: Builder, body: Body) -> None:
    cond = value(stmt.cond, builder)
    hints = ("then", "else", "joined") if stmt.orelse else ("then", "joined")
    labels = [builder.label(hint) for hint in hints]
    builder.emit(ins.Branch(cond, labels[0], labels[1]))
    for label, branch in zip(labels[:-1], (stmt.then, stmt.orelse), strict=False):
        assert branch is not None
        builder.start(label)
        with builder.scope():
            body(branch)
        builder.emit(ins.Jump(labels[-1]))
    builder.start(labels[-1])


def _loop(stmt: For, builder: Builder, body: Body) -> None:
    if stmt.kind != "serial":
        raise CodegenError(f"loop {stmt.var.name}: {stmt.kind} should be lowered")
    extent, kind = value(stmt.extent, builder), llvm_type(stmt.var.dtype)
    name = stmt.var.name
    head, after = builder.label(f"{name}.loop"), builder.label(f"{name}.done")
    before = _enter(stmt, builder, extent, head, after)
    builder.start(head)
    counter, following = builder.name(name), builder.name(f"{name}.next")
    phi = ins.Phi(counter, kind, [])
    builder.emit(phi)
    with builder.scope():
        builder.variables[name] = counter
        body(stmt.body)
        builder.emit(ins.Binary(following, "add nuw nsw", kind, counter, "1"))
        more = compare(builder, "lt", stmt.var.dtype, following, extent)
        phi.incoming = [("0", before), (following, builder.block)]
        properties = _properties(stmt)
        loop = builder.module.loop(*properties) if properties else ""
        builder.emit(ins.Branch(more, head, after, loop))
    builder.start(after)


def _enter(stmt: For, builder: Builder, extent: str, head: str, after: str) -> str:
    """Jump into a loop, past it where it has no iteration; the block jumped from."""
    before = builder.block
    if isinstance(stmt.extent, Const) and stmt.extent.value > 0:
        builder.emit(ins.Jump(head))
    else:
        some = compare(builder, "gt", stmt.var.dtype, extent, "0")
        builder.emit(ins.Branch(some, head, after))
    return before


def _properties(stmt: For) -> tuple[str, ...]:
    """A loop over vectors keeps its scheduled shape; LLVM may change others."""
    scheduled = any(isinstance(n, (Ramp, Splat)) for n in walk(stmt.body))
    return (_NO_VECTORS, _NO_UNROLL) if scheduled else ()


def _repeat(stmt: While, builder: Builder, body: Body) -> None:
    labels = [builder.label(f"while.{part}") for part in ("test", "body", "done")]
    builder.emit(ins.Jump(labels[0]))
    builder.start(labels[0])
    with builder.scope():
        cond = value(stmt.cond, builder)
        builder.emit(ins.Branch(cond, labels[1], labels[2]))
        builder.start(labels[1])
        with builder.scope():
            body(stmt.body)
        builder.emit(ins.Jump(labels[0]))
    builder.start(labels[2])
