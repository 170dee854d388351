"""Print any node as Python-like text; `parser.parse` reads functions back.

    def scale(x: f32[n], y: Out[f32[n]], *, n: i64):
        for i in range(n):
            with block("scale", vi=spatial(n, i)):
                y[vi] = x[vi] * 2.0

Equal trees print equally, and different verified functions print differently, so the
text serves as their identity (see `digest`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorlang.errors import IRError
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.text.print_expressions import (
    access,
    index_map,
    indices,
    options,
    text,
    texts,
)
from tensorlang.ir.text.syntax import LOOP_WORDS, ROLE_WORDS
from tensorlang.ir.visit import rebuild, rewriter, walk_statements

_WIDTH: Final = 100
_INDENT: Final = "    "


def show(node: ir.Node) -> str:
    """The text of a function, statement, expression or any other node.

    A function's text ends with a newline and starts with the reducers it uses, except
    built-in ones.
    """
    return _show(node)


@by_class
def _show(node: ir.Node) -> str:
    raise IRError(f"{type(node).__name__} has no text")


@_show.register
def _expr(node: ir.Expr) -> str:
    return text(node)


@_show.register
def _stmt(node: ir.Stmt) -> str:
    return "\n".join(_lines(node))


@_show.register
def _map(node: ir.IndexMap) -> str:
    return index_map(node)


@_show.register
def _axis(node: ir.Axis) -> str:
    return f"{node.var.name}={node.kind}({text(node.extent)}, {text(node.value)})"


@_show.register
def _buffer(node: ir.Buffer) -> str:
    return f"{node.name}: {_memory(node)}"


@_show.register
def _param(node: ir.Param) -> str:
    word = ROLE_WORDS[node.role]
    memory = _memory(node.buffer)
    return f"{node.buffer.name}: {f'{word}[{memory}]' if word else memory}"


def _memory(buffer: ir.Buffer) -> str:
    """The type of a parameter: `f32[n, 4]`, with scope and layout unless default."""
    shape = f"{buffer.dtype}[{indices(buffer.shape)}]"
    unusual = _placement(buffer)
    return f"buffer({shape}{unusual})" if unusual else shape


def _placement(buffer: ir.Buffer) -> str:
    scope = "" if buffer.scope == "global" else f', scope="{buffer.scope}"'
    layout = buffer.layout
    return scope + ("" if layout is None else f", layout={index_map(layout)}")


@_show.register
def _reducer(node: ir.Reducer) -> str:
    args = [f"{var.name}: {var.dtype}" for var in node.left + node.right]
    return "\n".join(
        [
            f"@reducer(commutative={node.commutative})",
            f"def {node.name}({', '.join(args)}):",
            f"{_INDENT}identity({texts(node.identity)})",
            f"{_INDENT}return {texts(node.combine)}",
        ]
    )


@_show.register
def _function(node: ir.Function) -> str:
    args = [_param(param) for param in node.params]
    if node.scalars:
        args += ["*", *(f"{var.name}: {var.dtype}" for var in node.scalars)]
    lines = [*_header(f"def {node.name}(", args, "):"), *_body(node.body)]
    parts = [_reducer(reducer) for reducer in own_reducers(node)]
    return "\n\n\n".join([*parts, "\n".join(lines) + "\n"])


def own_reducers(node: ir.Node) -> tuple[ir.Reducer, ...]:
    """The reducers used below `node` that are not built in, in order of first use."""
    used = (n.reducer for n in walk_statements(node) if isinstance(n, ir.Reduce))
    return tuple(r for r in dict.fromkeys(used) if builtin(r.name, r.dtypes) != r)


def _header(opening: str, args: list[str], closing: str) -> Iterator[str]:
    """A header on one line, or with one argument per line if too wide."""
    line = opening + ", ".join(args) + closing
    if len(line) <= _WIDTH:
        yield line
        return
    yield opening
    yield from (f"{_INDENT}{arg}," for arg in args)
    yield closing


def _body(stmt: ir.Stmt) -> list[str]:
    return [_INDENT + line for line in _lines(stmt)]


@by_class
def _lines(stmt: ir.Stmt) -> list[str]:
    """The lines of a statement, not indented."""
    raise IRError(f"{type(stmt).__name__} is not a statement that can be printed")


@_lines.register
def _seq(stmt: ir.Seq) -> list[str]:
    return [line for inner in stmt.stmts for line in _lines(inner)] or ["pass"]


@_lines.register
def _let(stmt: ir.Let) -> list[str]:
    return [f"{stmt.var.name}: {stmt.var.dtype} = {text(stmt.value)}"]


@_lines.register
def _alloc(stmt: ir.Alloc) -> list[str]:
    b = stmt.buffer
    return [f"{b.name} = alloc({b.dtype}[{indices(b.shape)}]{_placement(b)})"]


@_lines.register
def _for(stmt: ir.For) -> list[str]:
    thread = f', "{stmt.thread}"' if stmt.thread else ""
    run = f"{LOOP_WORDS[stmt.kind]}({text(stmt.extent)}{thread})"
    return [f"for {stmt.var.name} in {run}:", *_body(stmt.body)]


@_lines.register
def _while(stmt: ir.While) -> list[str]:
    return [f"while {text(stmt.cond)}:", *_body(stmt.body)]


@_lines.register
def _if(stmt: ir.If) -> list[str]:
    lines = [f"if {text(stmt.cond)}:", *_body(stmt.then)]
    if isinstance(stmt.orelse, ir.If):
        first, *rest = _lines(stmt.orelse)
        return [*lines, f"el{first}", *rest]
    return lines if stmt.orelse is None else [*lines, "else:", *_body(stmt.orelse)]


@_lines.register
def _store(stmt: ir.Store) -> list[str]:
    place = access(stmt.buffer, stmt.indices)
    if stmt.mask is None and not stmt.hints:
        return [f"{place} = {text(stmt.value)}"]
    return [f"store({place}, {text(stmt.value)}{options(stmt.mask, stmt.hints)})"]


@_lines.register
def _reduce(stmt: ir.Reduce) -> list[str]:
    state = ", ".join([access(buffer, stmt.indices) for buffer in stmt.buffers])
    values = texts(stmt.values)
    if len(stmt.values) > 1:
        state, values = f"({state})", f"({values})"
    return [f"reduce({stmt.reducer.name}, {state}, {values})"]


@_lines.register
def _atomic(stmt: ir.AtomicUpdate) -> list[str]:
    place = access(stmt.buffer, stmt.indices)
    return [f'atomic("{stmt.op}", {place}, {text(stmt.value)})']


@_lines.register
def _block(stmt: ir.Block) -> list[str]:
    args = [f'"{stmt.name}"', *map(_axis, stmt.axes)]
    if stmt.where is not None:
        args.append(f"where={text(_with_axes(stmt.where, stmt.axes))}")
    if stmt.scope != "thread":
        args.append(f'scope="{stmt.scope}"')
    init = [] if stmt.init is None else ["with init():", *_body(stmt.init)]
    inner = [_INDENT + line for line in init] + _body(stmt.body)
    return [*_header("with block(", args, "):"), *inner]


def _with_axes(where: ir.Expr, axes: tuple[ir.Axis, ...]) -> ir.Expr:
    """A condition that names the axes whose values it repeats, as blocks take it."""
    named: dict[ir.Node, ir.Var] = {}
    for axis in axes:
        if not isinstance(axis.value, ir.Var | ir.Const):
            named.setdefault(axis.value, axis.var)

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        return named[node] if node in named else rebuild(node, visit)

    made = visit(where)
    assert isinstance(made, ir.Expr)
    return made


@_lines.register
def _barrier(stmt: ir.Barrier) -> list[str]:
    return [f'barrier("{stmt.scope}")']


@_lines.register
def _evaluate(stmt: ir.Evaluate) -> list[str]:
    return [f"evaluate({text(stmt.expr)})"]


@_lines.register
def _role(stmt: ir.Role) -> list[str]:
    most = f", registers={stmt.registers}" if stmt.registers else ""
    return [f"with role({text(stmt.cond)}{most}):", *_body(stmt.body)]


@_lines.register
def _barrier_object(stmt: ir.BarrierObject) -> list[str]:
    return [f"{stmt.name} = barrier_object({stmt.count}, {stmt.size})"]


@_lines.register
def _arrive(stmt: ir.Arrive) -> list[str]:
    call = f"arrive({stmt.name}[{text(stmt.index)}])"
    if stmt.copies is None:
        return [call]
    return [f"with {call}:", *_body(stmt.copies)]


@_lines.register
def _wait(stmt: ir.Wait) -> list[str]:
    return [f"wait({stmt.name}[{text(stmt.index)}], {text(stmt.phase)})"]
