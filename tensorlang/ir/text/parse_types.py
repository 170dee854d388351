"""Parse buffers and layouts, in signatures and `alloc(...)`."""

from __future__ import annotations

import ast

from tensorlang.errors import IRError, ParseError
from tensorlang.ir.nodes import Buffer, IndexMap, Var
from tensorlang.ir.text.parse_expressions import exprs
from tensorlang.ir.text.parser_base import (
    Scope,
    arguments,
    dtype,
    elements,
    name,
    string,
    wrong,
)


def buffer(called: str, node: ast.expr, scope: Scope) -> Buffer:
    """The buffer of a type: `f32[n, 4]` or `buffer(f32[n, 4], scope=, layout=)`."""
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id != "buffer":
            raise wrong(node, "expected f32[...] or buffer(f32[...], scope=, layout=)")
        return placed(called, node, scope)
    return _shaped(called, node, scope)


def placed(called: str, node: ast.Call, scope: Scope) -> Buffer:
    """The buffer of a call `alloc(f32[4], scope=, layout=)` or `buffer(...)`."""
    (shape,), given = arguments(node, 1, "scope", "layout")
    where = string(given["scope"]) if "scope" in given else "global"
    layout = index_map(given["layout"]) if "layout" in given else None
    return _shaped(called, shape, scope, where, layout)


def _shaped(
    called: str,
    node: ast.expr,
    scope: Scope,
    where: str = "global",
    layout: IndexMap | None = None,
) -> Buffer:
    if not isinstance(node, ast.Subscript):
        raise wrong(node, "expected an element type with a shape, such as f32[n, 4]")
    kind = dtype(node.value, node)
    try:
        return Buffer(called, kind, exprs(elements(node.slice), scope), where, layout)
    except ParseError:
        raise
    except IRError as error:
        raise wrong(node, str(error)) from None


def index_map(node: ast.expr) -> IndexMap:
    """The map of `lambda i, j: (j, i)`, from i64 to i64."""
    if not isinstance(node, ast.Lambda):
        raise wrong(node, "a layout is a lambda of the indices: lambda i, j: (j, i)")
    args = node.args
    if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg:
        raise wrong(node, "a layout's lambda takes plain indices only")
    if args.defaults:
        raise wrong(node, "a layout's lambda has no defaults")
    variables = tuple([Var(name(arg, arg.arg)) for arg in args.args])
    inner = Scope({var.name: var for var in variables})
    return IndexMap(variables, exprs(elements(node.body), inner))
