"""Render a lowered function as LLVM IR: `render(function, target)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang import templates
from tensorlang.codegen.headers import header
from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import stages, workspace
from tensorlang.codegen.llvm.builder import Builder, Module
from tensorlang.codegen.llvm.dead_lanes import drop_dead_lanes
from tensorlang.codegen.llvm.expressions import value
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.codegen.llvm.unmask import unmask
from tensorlang.codegen.team import useful
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.nodes import Expr, Function, Var
from tensorlang.targets import Target

_KERNEL = "nounwind"


def render(
    function: Function, target: Target, knobs: Mapping[str, object] | None = None
) -> str:
    """The LLVM IR of a lowered function, with a header.

    A function `f` exports three symbols: `f` runs one thread's share and returns a
    fault code, `f.team` returns the useful number of threads, `f.workspace` the bytes
    of temporaries.

    Raises:
        CodegenError: the function is not lowered, or cannot be expressed.
    """
    function, module = printable(function), Module(target)
    return printed(function, module, routines(function, module), knobs or {})


def routines(function: Function, module: Module) -> list[ins.Routine]:
    """The routines of a printable function; see `render`."""
    module.function = function
    pieces, size = workspace.layout(function)
    kernel = _kernel(function, module, pieces)
    return [
        *module.helpers.values(),
        *kernel,
        _query(function, module, "team", useful(function)),
        _query(function, module, "workspace", size),
    ]


def printed(
    function: Function,
    module: Module,
    made: Sequence[ins.Routine],
    knobs: Mapping[str, object],
) -> str:
    """The text of a function's routines as a module."""
    return templates.render(
        "llvm.ll.j2",
        header=header(function, module.target, knobs),
        routines=made,
        declarations=sorted(module.declarations),
        loops=module.loops,
    )


def printable(function: Function) -> Function:
    """A lowered function without masks that its instructions do not need."""
    return unmask(drop_dead_lanes(function))


def _arguments(function: Function, builder: Builder, names: set[str]) -> None:
    """Load scalars from their slots, each in the low bytes of 8."""
    count = len(function.params)
    for number, var in enumerate(_scalars(function)):
        if var.name in names:
            builder.variables[var.name] = _argument(builder, count + number, var)


def _argument(builder: Builder, slot: int, var: Var) -> str:
    kind = DType("u8") if var.dtype.is_bool else var.dtype
    name = builder.name(var.name)
    text = builder.emit(ins.load(name, llvm_type(kind), _slot(builder, slot), 8))
    if not var.dtype.is_bool:
        return text
    return builder.emit(ins.binary(builder.name(), "icmp ne", "i8", text, "0"))


def _slot(builder: Builder, number: int) -> str:
    if number == 0:
        return "%args"
    return builder.emit(ins.address(builder.name(), "ptr", "%args", "i64", str(number)))


def _scalars(function: Function) -> tuple[Var, ...]:
    """The caller's scalars; `tid` and `team` are separate arguments."""
    return function.scalars[:-2]


def _query(function: Function, module: Module, name: str, answer: Expr) -> ins.Routine:
    """`i64 @f.name(ptr %args)`: an expression over the scalars."""
    routine = ins.Routine(
        "", "i64", f"{function.name}.{name}", ["ptr %args"], "nounwind"
    )
    builder = Builder(module, routine)
    builder.name("args")
    _arguments(function, builder, {var.name for var in free_vars(answer)})
    builder.emit(ins.returns("i64", value(answer, builder)))
    routine.body.insert(0, ins.Label("entry"))
    return routine


def _kernel(
    function: Function, module: Module, pieces: Sequence[workspace.Piece]
) -> list[ins.Routine]:
    """The exported routine, preceded by the stages that it calls."""
    params = ["ptr %args", "i64 %tid", "i64 %team", "ptr %member"]
    routine = ins.Routine("", "i32", function.name, params, _KERNEL)
    builder = Builder(module, routine)
    for reserved in ("args", "member"):
        builder.name(reserved)
    for var in function.scalars[-2:]:
        builder.variables[var.name] = builder.name(var.name)
    for number, param in enumerate(function.params):
        name = builder.name(param.buffer.name)
        load = ins.load(name, "ptr", _slot(builder, number), 8)
        builder.pointers[param.buffer] = builder.emit(load)
    _arguments(function, builder, {var.name for var in _scalars(function)})
    _place(function, builder, pieces)
    faults, claimed = stages.has_faults(function), stages.has_claims(function)
    kernel = stages.Kernel(function, module, builder, [], faults, claimed)
    if kernel.faults:
        builder.faults = builder.name("fault")
    stages.host(function.body, kernel)
    stages.finish(builder, faults=True)
    return [*kernel.routines, routine]


def _place(
    function: Function, builder: Builder, pieces: Sequence[workspace.Piece]
) -> None:
    """Pointers into the workspace, whose address is in the last slot."""
    if not pieces:
        return
    slot = len(function.params) + len(_scalars(function))
    base = builder.name("workspace")
    builder.emit(ins.load(base, "ptr", _slot(builder, slot), 8))
    for piece in pieces:
        offset = piece.offset
        if piece.per_thread:
            offset = offset + piece.size * Var("tid", i64)
        with builder.scope():  # `tid` is another thing inside of shares
            text = value(offset, builder)
        name = builder.name(piece.buffer.name)
        builder.emit(ins.address(name, "i8", base, "i64", text))
        builder.pointers[piece.buffer] = name
        builder.aligned.add(piece.buffer)
