"""A lowered function as LLVM routines: the kernel, and one routine for each stage.

A *stage* is a run of statements between barriers. It is an internal routine of its own
whose pointers are `noalias`: that is true of one stage, where no other thread touches
what this one writes, and would not be across a barrier, where LLVM could then keep a
value in a register that another thread replaces. The kernel itself, with pointers that
promise nothing, holds the host loops, the barriers and the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import statements
from tensorlang.codegen.llvm.arithmetic import compare
from tensorlang.codegen.llvm.builder import Builder, Module
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.ir.contents import allocations, binders
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
    Node,
    Seq,
    Stmt,
    Var,
    While,
    seq,
)
from tensorlang.ir.visit import children, walk

_STAGE = "noinline nounwind"


@dataclass
class Kernel:
    """The kernel routine being written, and the stages split from it."""

    function: Function
    module: Module
    builder: Builder
    routines: list[ins.Routine]
    faults: bool

    def add(self, stmts: Sequence[Stmt]) -> None:
        """A stage of these statements, and its call."""
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
    """Keep the first stage's fault that is not 0."""
    old = builder.emit(ins.Load(builder.name(), "i32", builder.faults, 4))
    fine = compare(builder, "eq", i32, old, "0")
    new = builder.emit(ins.Select(builder.name(), "i1", fine, "i32", fault, old))
    builder.emit(ins.Store("i32", new, builder.faults, 4))


def _used(body: Stmt, builder: Builder) -> tuple[list[Buffer], list[Var]]:
    """Buffers and variables of the kernel that a stage needs, in order of use."""
    inner = {b for b in allocations(body) if b not in builder.pointers}
    bound = {var.name for var in binders(body)}
    buffers: dict[Buffer, None] = {}
    variables: dict[str, Var] = {}
    stack: list[Node] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, Buffer):
            if node not in inner:
                buffers.setdefault(node)
            continue
        if isinstance(node, Var) and node.name not in bound:
            variables.setdefault(node.name, node)
        stack.extend(reversed(list(children(node))))
    known = [buffer for buffer in buffers if buffer in builder.pointers]
    return known, [var for var in variables.values() if var.name in builder.variables]


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
    """The fences and the return of a routine, and its stack frame at the front."""
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
    """The host program: loops around barriers stay, runs between them become stages."""
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
    """A barrier, what holds one, and what later stages may need the name of."""
    if isinstance(stmt, (Let, Alloc)):
        return True
    return any(isinstance(node, Barrier) for node in walk(stmt))


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
    """Whether any statement of the function can report one."""
    return any(
        getattr(node.expr, "name", "") == "check"
        for node in walk(function.body)
        if isinstance(node, Evaluate)
    )
