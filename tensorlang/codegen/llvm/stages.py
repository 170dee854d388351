"""A lowered function as LLVM routines: the kernel, and one routine per stage.

A *stage* is a sequence of statements between barriers. It is a separate internal
routine, with `noalias` pointers: within a stage no other thread accesses what this one
writes. Across a barrier that is false, and LLVM could keep a value in a register that
another thread has changed. The kernel itself, with plain pointers, holds the host
loops, the barriers and the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import statements
from tensorlang.codegen.llvm.arithmetic import compare
from tensorlang.codegen.llvm.builder import Builder, Module
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.ir.contents import allocations
from tensorlang.ir.dtypes import i32
from tensorlang.ir.nodes import (
    Alloc,
    Barrier,
    Buffer,
    Evaluate,
    For,
    Function,
    If,
    Let,
    Seq,
    Stmt,
    Var,
    While,
    seq,
)
from tensorlang.ir.visit import children, parts, walk_statements

_STAGE = "noinline nounwind"


@dataclass
class Kernel:
    """Builds the kernel routine, and the stages split from it."""

    function: Function
    module: Module
    builder: Builder
    routines: list[ins.Routine]
    faults: bool

    def add(self, stmts: Sequence[Stmt]) -> None:
        """Emit a stage of these statements, and its call."""
        body = seq(*stmts)
        buffers, variables = _used(body, self.builder)
        name = f"{self.function.name}.stage{len(self.routines)}"
        routine = stage(self, name, body, buffers, variables)
        self.routines.append(routine)
        given = [f"ptr {self.builder.pointers[buffer]}" for buffer in buffers]
        given += [
            f"{llvm_type(var.dtype)} {self.builder.variables[var.name]}"
            for var in variables
        ]
        result = self.builder.name() if self.faults else ""
        kind = "i32" if self.faults else "void"
        self.builder.emit(ins.Call(result, kind, name, given))
        self.builder.effect()
        if self.faults:
            _record(self.builder, result)


def _record(builder: Builder, fault: str) -> None:
    """Record a stage's fault code unless there is an earlier one."""
    old = builder.emit(ins.Load(builder.name(), "i32", builder.faults, 4))
    fine = compare(builder, "eq", i32, old, "0")
    new = builder.emit(ins.Select(builder.name(), "i1", fine, "i32", fault, old))
    builder.emit(ins.Store("i32", new, builder.faults, 4))


def _used(body: Stmt, builder: Builder) -> tuple[list[Buffer], list[Var]]:
    """Buffers and variables of the kernel that a stage uses, in order of use."""
    inner = {b for b in allocations(body) if b not in builder.pointers}
    bound = {s.var.name for s in walk_statements(body) if isinstance(s, (For, Let))}
    buffers: dict[Buffer, None] = {}
    variables: dict[str, Var] = {}
    for stmt in walk_statements(body):
        for part in _named(stmt):
            if isinstance(part, Buffer):
                if part not in inner:
                    buffers.setdefault(part)
            elif part.name not in bound:
                variables.setdefault(part.name, part)
    known = [buffer for buffer in buffers if buffer in builder.pointers]
    return known, [var for var in variables.values() if var.name in builder.variables]


def _named(stmt: Stmt) -> Iterator[Buffer | Var]:
    """The buffers and variables of a statement, without variables in shapes."""
    for child in children(stmt):
        if isinstance(child, Stmt):
            continue
        shape = 0
        for part in parts(child):
            if shape:
                shape -= 1
            elif isinstance(part, Buffer):
                shape = sum(1 for _ in parts(part)) - 1
                yield part
            elif isinstance(part, Var):
                yield part


def stage(
    kernel: Kernel,
    name: str,
    body: Stmt,
    buffers: Sequence[Buffer],
    variables: Sequence[Var],
) -> ins.Routine:
    """The routine of one stage."""
    result = "i32" if kernel.faults else "void"
    routine = ins.Routine("internal ", result, name, [], _STAGE)
    builder = Builder(kernel.module, routine)
    params: list[str] = []
    for buffer in buffers:
        builder.pointers[buffer] = builder.name(buffer.name)
        align = "align 64 " if buffer in kernel.builder.aligned else ""
        params.append(f"ptr noalias {align}{builder.pointers[buffer]}")
        if align:
            builder.aligned.add(buffer)
    for var in variables:
        builder.variables[var.name] = builder.name(var.name)
        params.append(f"{llvm_type(var.dtype)} {builder.variables[var.name]}")
    routine.params = params
    statements.run(body, builder)
    finish(builder, kernel.faults)
    return routine


def finish(builder: Builder, faults: bool) -> None:
    """Emit the fence and the return of a routine, and its stack frame at the front."""
    if builder.streams and builder.module.target.has("weakly ordered streaming stores"):
        builder.call("llvm.x86.sse.sfence", "void")
    front: list[ins.Instruction] = [ins.Label("entry"), *builder.entry]
    if builder.faults:
        front += [
            ins.Alloca(builder.faults, 1, "i32", 4),
            ins.Store("i32", "0", builder.faults, 4),
        ]
    text = "0"
    if faults and builder.faults:
        text = builder.emit(ins.Load(builder.name(), "i32", builder.faults, 4))
    builder.emit(ins.Return("i32", text) if faults else ins.Return("void", ""))
    builder.body[:0] = front


def host(stmt: Stmt, kernel: Kernel) -> None:
    """Emit the host program: statements between barriers become stages."""
    pending: list[Stmt] = []
    for item in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
        if _stays(item):
            _flush(pending, kernel)
            _host_statement(item, kernel)
        else:
            pending.append(item)
    _flush(pending, kernel)


def _flush(pending: list[Stmt], kernel: Kernel) -> None:
    if pending:
        kernel.add(pending)
    pending.clear()


def _stays(stmt: Stmt) -> bool:
    """Whether a statement stays in the kernel: barriers, and what stages refer to."""
    if isinstance(stmt, (Let, Alloc)):
        return True
    return any(isinstance(inner, Barrier) for inner in walk_statements(stmt))


def _host_statement(stmt: Stmt, kernel: Kernel) -> None:
    builder = kernel.builder
    match stmt:
        case Barrier():
            given = ["ptr %barrier", f"i64 {builder.variables['team']}"]
            builder.module.declarations.add("void @tensorlang_barrier(ptr, i64)")
            builder.emit(ins.Call("", "void", "tensorlang_barrier", given))
            builder.effect()
        case Alloc(buffer=buffer) if buffer in builder.pointers:
            pass
        case For() | If() | While():
            statements.control(stmt, builder, lambda body: host(body, kernel))
        case _:
            statements.run(stmt, builder)


def has_faults(function: Function) -> bool:
    """Whether any statement of the function can report a fault."""
    return any(
        getattr(stmt.expr, "name", "") == "check"
        for stmt in walk_statements(function.body)
        if isinstance(stmt, Evaluate)
    )
