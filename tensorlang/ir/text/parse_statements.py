"""Parse statements from Python's syntax tree: a table of readers by node class."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final, TypeAlias

from tensorlang.errors import IRError, ParseError
from tensorlang.ir import nodes as ir
from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.text.parse_expressions import expr, exprs, place
from tensorlang.ir.text.parse_roles import arrive, barrier_object, role, wait
from tensorlang.ir.text.parse_types import placed
from tensorlang.ir.text.parser_base import (
    Scope,
    arguments,
    dtype,
    elements,
    hints,
    name,
    string,
    wrong,
)
from tensorlang.ir.text.syntax import AXIS_WORDS, LOOP_WORDS


def body(nodes: list[ast.stmt], scope: Scope) -> ir.Stmt:
    """The statements of an indented body, with a scope of its own inside `scope`."""
    inner = scope.inner()
    return ir.seq([_statement(node, inner) for node in nodes])


def _statement(node: ast.stmt, scope: Scope) -> ir.Stmt:
    try:
        return _READERS.get(type(node), _refuse)(node, scope)
    except ParseError:
        raise
    except IRError as error:
        raise wrong(node, str(error)) from None


def _pass(_node: ast.Pass, _scope: Scope) -> ir.Stmt:
    return ir.Seq(())


def _assign(node: ast.Assign, scope: Scope) -> ir.Stmt:
    match node.targets, node.value:
        case [ast.Subscript() as target], value:
            return ir.Store(*place(target, scope), expr(value, scope))
        case [ast.Name(id=word)], ast.Call(func=ast.Name(id="alloc")) as call:
            made = placed(name(node, word), call, scope)
            scope.buffers[word] = made
            return ir.Alloc(made)
        case [ast.Name(id=word)], ast.Call(func=ast.Name(id="barrier_object")) as call:
            return barrier_object(name(node, word), call, scope)
    raise wrong(node, "assign to an element, x[i] = e, or name a value, a: f32 = e")


def _let(node: ast.AnnAssign, scope: Scope) -> ir.Stmt:
    if not isinstance(node.target, ast.Name) or node.value is None:
        raise wrong(node, "a named value is written a: f32 = e")
    value = expr(node.value, scope)
    var = ir.Var(name(node, node.target.id), dtype(node.annotation, node))
    scope.variables[var.name] = var
    return ir.Let(var, value)


def _for(node: ast.For, scope: Scope) -> ir.Stmt:
    call, kind = node.iter, None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        kind = _LOOP_KINDS.get(call.func.id)
    if not isinstance(call, ast.Call) or kind is None or node.orelse:
        message = f"a loop runs over {', '.join(_LOOP_KINDS)} of an extent, no 'else'"
        raise wrong(node, message)
    if not isinstance(node.target, ast.Name):
        raise wrong(node, "a loop has one variable")
    (run, *thread), _ = arguments(call, 2 if kind == "bound" else 1)
    extent = expr(run, scope)
    var = ir.Var(name(node, node.target.id), extent.dtype)
    inner = _within(scope, var)
    words = [string(word) for word in thread]
    return ir.For(var, extent, kind, body(node.body, inner), *words)


def _within(scope: Scope, *variables: ir.Var) -> Scope:
    inner = scope.inner()
    inner.variables.update({var.name: var for var in variables})
    return inner


def _while(node: ast.While, scope: Scope) -> ir.Stmt:
    if node.orelse:
        raise wrong(node, "a while loop has no 'else'")
    return ir.While(expr(node.test, scope), body(node.body, scope))


def _if(node: ast.If, scope: Scope) -> ir.Stmt:
    orelse = body(node.orelse, scope) if node.orelse else None
    return ir.If(expr(node.test, scope), body(node.body, scope), orelse)


def _block(node: ast.With, scope: Scope) -> ir.Stmt:
    call = _with_call(node, "block")
    if len(call.args) != 1:
        raise wrong(node, "a block starts with its name in quotes")
    axes: list[ir.Axis] = []
    extra: dict[str, ast.expr] = {}
    for keyword in call.keywords:
        if keyword.arg in AXIS_WORDS:
            extra[keyword.arg] = keyword.value
        else:
            axes.append(_axis(keyword, scope))
    init, rest = _split_init(node)
    inner = _within(scope, *(axis.var for axis in axes))
    return ir.Block(
        string(call.args[0]),
        tuple(axes),
        body(rest, inner),
        expr(extra["where"], inner) if "where" in extra else None,
        None if init is None else body(init, inner),
        string(extra["scope"]) if "scope" in extra else "thread",
        f"line {node.lineno}",
    )


def _with(node: ast.With, scope: Scope) -> ir.Stmt:
    match node.items:
        case [ast.withitem(context_expr=ast.Call(func=ast.Name(id="role")) as call)]:
            _with_call(node, "role")
            return role(call, scope, body(node.body, scope))
        case [ast.withitem(context_expr=ast.Call(func=ast.Name(id="arrive")) as call)]:
            _with_call(node, "arrive")
            return arrive(call, scope, body(node.body, scope))
    return _block(node, scope)


def _with_call(node: ast.With, word: str) -> ast.Call:
    match node.items:
        case [
            ast.withitem(
                context_expr=ast.Call(func=ast.Name(id=given)) as call,
                optional_vars=None,
            )
        ] if given == word:
            return call
    raise wrong(node, f"expected 'with {word}(...):' in this place")


def _axis(keyword: ast.keyword, scope: Scope) -> ir.Axis:
    call = keyword.value
    match call:
        case ast.Call(func=ast.Name(id=kind)) if kind in ir.AXIS_KINDS and keyword.arg:
            extent, value = exprs(arguments(call, 2)[0], scope)
            return ir.Axis(
                ir.Var(name(keyword, keyword.arg), value.dtype), kind, extent, value
            )
    message = (
        f"an axis is written vi=kind(extent, value), kinds {', '.join(ir.AXIS_KINDS)}"
    )
    raise wrong(keyword, message)


def _split_init(node: ast.With) -> tuple[list[ast.stmt] | None, list[ast.stmt]]:
    """The statements under a leading `with init():`, and those after it."""
    first, *rest = node.body
    match first:
        case ast.With(
            items=[ast.withitem(context_expr=ast.Call(func=ast.Name("init")))]
        ):
            arguments(_with_call(first, "init"), 0)
            if not rest:
                raise wrong(first, "a block needs a body after its init")
            return first.body, rest
    return None, node.body


def _action(node: ast.Expr, scope: Scope) -> ir.Stmt:
    call = node.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        read = _ACTIONS.get(call.func.id)
        if read is not None:
            return read(call, scope)
    raise wrong(node, f"a statement on its own is one of {', '.join(_ACTIONS)}")


def _reduce(node: ast.Call, scope: Scope) -> ir.Stmt:
    (word, target, given), _ = arguments(node, 3)
    if not isinstance(word, ast.Name):
        raise wrong(word, "the first argument of reduce is the name of a reducer")
    places = [place(item, scope) for item in elements(target)]
    buffers = tuple([buffer for buffer, _ in places])
    if not places or any(indices != places[0][1] for _, indices in places):
        raise wrong(target, "all components of a state have the same indices")
    dtypes = tuple([buffer.dtype for buffer in buffers])
    reducer = scope.reducers.get((word.id, dtypes)) or builtin(word.id, dtypes)
    if reducer is None:
        shown = ", ".join(map(str, dtypes))
        raise wrong(
            word, f"no reducer {word.id!r} of ({shown}) is declared or built in"
        )
    return ir.Reduce(reducer, buffers, places[0][1], exprs(elements(given), scope))


def _store(node: ast.Call, scope: Scope) -> ir.Stmt:
    (target, value), given = arguments(node, 2, "mask", "hints")
    mask = expr(given["mask"], scope) if "mask" in given else None
    where = place(target, scope)
    return ir.Store(*where, expr(value, scope), mask, hints(given.get("hints")))


def _atomic(node: ast.Call, scope: Scope) -> ir.Stmt:
    op, target, value = arguments(node, 3)[0]
    return ir.AtomicUpdate(string(op), *place(target, scope), expr(value, scope))


def _barrier(node: ast.Call, _scope: Scope) -> ir.Stmt:
    return ir.Barrier(string(arguments(node, 1)[0][0]))


def _evaluate(node: ast.Call, scope: Scope) -> ir.Stmt:
    value: ir.Expr = expr(arguments(node, 1)[0][0], scope)
    return ir.Evaluate(value)


def _refuse(node: ast.stmt, _scope: Scope) -> ir.Stmt:
    raise wrong(node, f"Python's {type(node).__name__} is not a statement of the IR")


Reader: TypeAlias = Callable[..., ir.Stmt]
_LOOP_KINDS: Final = {word: kind for kind, word in LOOP_WORDS.items()}
_READERS: Final[dict[type[ast.stmt], Reader]] = {
    ast.Pass: _pass,
    ast.Assign: _assign,
    ast.AnnAssign: _let,
    ast.For: _for,
    ast.While: _while,
    ast.If: _if,
    ast.With: _with,
    ast.Expr: _action,
}
_ACTIONS: Final[dict[str, Callable[[ast.Call, Scope], ir.Stmt]]] = {
    "reduce": _reduce,
    "store": _store,
    "atomic": _atomic,
    "barrier": _barrier,
    "evaluate": _evaluate,
    "arrive": arrive,
    "wait": wait,
}
