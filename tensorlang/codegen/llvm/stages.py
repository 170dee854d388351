"""A lowered function as LLVM routines: the kernel, and one routine per stage.

A *stage* is a sequence of statements between barriers. It is a separate internal
routine, with `noalias` pointers: within a stage no other thread accesses what this one
writes. Across a barrier that is false, and LLVM could keep a value in a register that
another thread has changed. The kernel itself, with plain pointers, holds the host
loops, the barriers and the calls.

The threads of a team claim the shares of each stage (`templates/pool.ll.j2`): there are
more shares than threads, and whoever is free runs the next one,

    for share in claims: stage(share, shares)

unless host loops or conditions read memory: then no thread may be late, and each runs
the share of its own number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import matrix_products, statements
from tensorlang.codegen.llvm.arithmetic import compare
from tensorlang.codegen.llvm.builder import Builder, Module
from tensorlang.codegen.llvm.transposes import variable_type
from tensorlang.codegen.team import TEAM, TID, UNITS, USEFUL
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.visit import children, walk_statements

_STAGE = "noinline nounwind"


@dataclass
class Kernel:
    """Builds the kernel routine, and the stages split from it."""

    function: ir.Function
    module: Module
    builder: Builder
    routines: list[ins.Routine]
    faults: bool  # whether stages can report faults
    claimed: bool  # whether threads claim shares
    # variables that depend on the share
    bounds: dict[ir.Var, ir.Let] = field(default_factory=dict)
    # whether a stage since the last wait may have a part for one thread
    alone: bool = False

    def add(self, stmts: Sequence[ir.Stmt]) -> None:
        """Emit a stage of these statements, and its call."""
        body = ir.seq(*stmts)
        if not self.claimed:
            self._call(body)
            return
        if TID in free_vars(body):  # no barrier is between the parts of one thread
            if self.alone:
                self.wait()
            self.alone = True
        self._claim(self._bounds_of(body), body)

    def wait(self) -> None:
        """Wait until the stages that this thread has left behind are finished."""
        self.module.declarations.add("void @tensorlang_wait(ptr)")
        self.builder.emit(ins.call("", "void", "tensorlang_wait", ["ptr %member"]))
        self.builder.effect()
        self.alone = False

    def _bounds_of(self, body: ir.Stmt) -> list[ir.Let]:
        """The bounds of a share that statements use, in order."""
        needed = set(free_vars(body))
        for var, let in reversed(self.bounds.items()):
            if var in needed:
                needed |= free_vars(let.value)
        return [let for var, let in self.bounds.items() if var in needed]

    def _claim(self, bounds: Sequence[ir.Let], body: ir.Stmt) -> None:
        """A loop over the shares of a stage that this thread claims."""
        builder, variables = self.builder, self.builder.variables
        shares = self._shares() if bounds or TEAM in free_vars(body) else "1"
        share, before = builder.name("share"), builder.name("share.before")
        labels = [builder.label(f"share.{part}") for part in ("next", "run", "none")]
        phi = ins.Phi("i64", before, [("-1", builder.block)])
        builder.emit(ins.jump(labels[0]))
        builder.start(labels[0])
        builder.emit(phi)
        self._pool("claim", share, "%tid", shares, before)
        some = compare(builder, "ge", i64, share, "0")
        builder.emit(ins.branch(some, labels[1], labels[2]))
        builder.start(labels[1])
        thread = {name: variables[name] for name in (TID.name, TEAM.name)}
        with builder.scope():
            variables |= {TID.name: share, TEAM.name: shares}
            for let in bounds:
                statements.run(let, builder)
            self._call(body)
            variables |= thread
        phi.incoming = [*phi.incoming, (share, builder.block)]
        builder.emit(ins.jump(labels[0]))
        builder.start(labels[2])

    def _shares(self) -> str:
        """The number of shares of a divided stage."""
        shares, variables = self.builder.name("shares"), self.builder.variables
        self._pool("shares", shares, variables.get(UNITS, variables[USEFUL]))
        return shares

    def _pool(self, function: str, result: str, *given: str) -> None:
        """Ask the pool something about this thread's membership of the team."""
        numbers = ["i64 %team", *(f"i64 {text}" for text in given)]
        kinds = ", ".join(["ptr", *("i64" for _ in numbers)])
        name = f"tensorlang_{function}"
        self.module.declarations.add(f"i64 @{name}({kinds})")
        self.builder.emit(ins.call(result, "i64", name, ["ptr %member", *numbers]))

    def _call(self, body: ir.Stmt) -> None:
        buffers, variables = _used(body, self.builder)
        name = f"{self.function.name}.stage{len(self.routines)}"
        routine = stage(self, name, body, buffers, variables)
        self.routines.append(routine)
        given = [f"ptr {self.builder.pointers[buffer]}" for buffer in buffers]
        given += [
            f"{variable_type(self.builder, var)} {self.builder.variables[var.name]}"
            for var in variables
        ]
        result = self.builder.name() if self.faults else ""
        kind = "i32" if self.faults else "void"
        self.builder.emit(ins.call(result, kind, name, given))
        self.builder.effect()
        if self.faults:
            _record(self.builder, result)


def _record(builder: Builder, fault: str) -> None:
    """Record a stage's fault code unless there is an earlier one."""
    old = builder.emit(ins.load(builder.name(), "i32", builder.faults, 4))
    fine = compare(builder, "eq", i32, old, "0")
    new = builder.emit(ins.select(builder.name(), "i1", fine, "i32", fault, old))
    builder.emit(ins.store("i32", new, builder.faults, 4))


def _used(body: ir.Stmt, builder: Builder) -> tuple[list[ir.Buffer], list[ir.Var]]:
    """Buffers and variables of the kernel that a stage uses, in order of use.

    Variables in shapes do not count.
    """
    bound = {
        s.var.name for s in walk_statements(body) if isinstance(s, (ir.For, ir.Let))
    }
    buffers: dict[ir.Buffer, None] = {}
    variables: dict[str, ir.Var] = {}
    seen: set[int] = set()  # simplified statements share many expressions
    stack: list[ir.Node] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, ir.Buffer):
            buffers.setdefault(node)
        elif isinstance(node, ir.Var):
            if node.name not in bound:
                variables.setdefault(node.name, node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack += children(node)[::-1]
    known = [buffer for buffer in buffers if buffer in builder.pointers]
    return known, [var for var in variables.values() if var.name in builder.variables]


def stage(
    kernel: Kernel,
    name: str,
    body: ir.Stmt,
    buffers: Sequence[ir.Buffer],
    variables: Sequence[ir.Var],
) -> ins.Routine:
    """The routine of one stage."""
    result = "i32" if kernel.faults else "void"
    routine = ins.Routine("internal ", result, name, [], _STAGE)
    builder = Builder(kernel.module, routine)
    builder.squares = kernel.builder.squares
    params: list[str] = []
    for buffer in buffers:
        builder.pointers[buffer] = builder.name(buffer.name)
        align = "align 64 " if buffer in kernel.builder.aligned else ""
        params.append(f"ptr noalias {align}{builder.pointers[buffer]}")
        if align:
            builder.aligned.add(buffer)
    for var in variables:
        builder.variables[var.name] = builder.name(var.name)
        params.append(f"{variable_type(builder, var)} {builder.variables[var.name]}")
    routine.params = params
    builder.tiles = matrix_products.tiles_of(body)
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
            ins.alloca(builder.faults, 1, "i32", 4),
            ins.store("i32", "0", builder.faults, 4),
        ]
    text = "0"
    if faults and builder.faults:
        text = builder.emit(ins.load(builder.name(), "i32", builder.faults, 4))
    builder.emit(ins.returns("i32", text) if faults else ins.returns("void", ""))
    builder.body[:0] = front


def host(stmt: ir.Stmt, kernel: Kernel) -> None:
    """Emit the host program: statements between barriers become stages."""
    pending: list[ir.Stmt] = []
    for item in stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,):
        if kernel.claimed and isinstance(item, (ir.Let, ir.Alloc)):
            if isinstance(item, ir.Let) and _of_share(item, kernel):
                kernel.bounds[item.var] = item
            else:  # reads nothing that the pending stage writes
                _host_statement(item, kernel)
        elif _stays(item):
            _flush(pending, kernel)
            _host_statement(item, kernel)
        else:
            pending.append(item)
    _flush(pending, kernel)


def _flush(pending: list[ir.Stmt], kernel: Kernel) -> None:
    if pending:
        kernel.add(pending)
    pending.clear()


def _stays(stmt: ir.Stmt) -> bool:
    """Whether a statement stays in the kernel: barriers, and what stages refer to."""
    if isinstance(stmt, (ir.Let, ir.Alloc)):
        return True
    return any(isinstance(inner, ir.Barrier) for inner in walk_statements(stmt))


def _host_statement(stmt: ir.Stmt, kernel: Kernel) -> None:
    builder = kernel.builder
    match stmt:
        case ir.Barrier() if kernel.claimed:
            kernel.wait()
        case ir.Barrier():
            given = ["ptr %member", f"i64 {builder.variables['team']}"]
            builder.module.declarations.add("void @tensorlang_barrier(ptr, i64)")
            builder.emit(ins.call("", "void", "tensorlang_barrier", given))
            builder.effect()
        case ir.Alloc(buffer=buffer) if buffer in builder.pointers:
            pass
        case ir.For() | ir.If() | ir.While():
            kernel.alone = True  # in other iterations, or in a branch
            statements.control(stmt, builder, lambda body: host(body, kernel))
            kernel.alone = True
        case _:
            statements.run(stmt, builder)


def _of_share(let: ir.Let, kernel: Kernel) -> bool:
    """Whether a variable depends on the share that is run."""
    return not free_vars(let.value).isdisjoint((TID, TEAM, *kernel.bounds))


def has_claims(function: ir.Function) -> bool:
    """Whether threads claim the shares of stages."""
    return TEAM in free_vars(function.body) and _is_timeless(function.body)


def _is_timeless(stmt: ir.Stmt) -> bool:
    """Whether the host program is the same for a thread that is late.

    So it is if nothing that it depends on is in memory, which may have changed since.
    """
    for item in stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,):
        match item:
            case ir.Let(value=depends) | ir.For(extent=depends) | ir.If(cond=depends):
                pass
            case ir.While(cond=depends):
                pass
            case _:
                continue
        if isinstance(item, ir.Let) or _stays(item):
            if reads(depends):
                return False
            if not all(_is_timeless(part) for part in _bodies(item)):
                return False
    return True


def _bodies(stmt: ir.Stmt) -> list[ir.Stmt]:
    return [child for child in children(stmt) if isinstance(child, ir.Stmt)]


def has_faults(function: ir.Function) -> bool:
    """Whether any statement of the function can report a fault."""
    return any(
        getattr(stmt.expr, "name", "") == "check"
        for stmt in walk_statements(function.body)
        if isinstance(stmt, ir.Evaluate)
    )
