"""Parse IR text: `parse(show(f)) == f` for every verified function.

The text has Python syntax and is parsed to a syntax tree by Python, behind the limits
of `text_limits`; nothing is ever compiled or evaluated. The tree is then converted by
tables: whatever has no entry is refused with a message and its location.
"""

from __future__ import annotations

import ast
import contextlib
from typing import Final

from tensorlang.errors import IRError, ParseError
from tensorlang.ir.nodes import Function, Param, Reducer, Var
from tensorlang.ir.text import limits as text_limits
from tensorlang.ir.text.parse_expressions import exprs
from tensorlang.ir.text.parse_statements import body
from tensorlang.ir.text.parse_types import buffer
from tensorlang.ir.text.parser_base import Scope, dtype, elements, name, wrong

_ROLES: Final = {"Out": "out", "InOut": "inout"}


def parse(text: str) -> Function:
    """Parse a function, with the reducers declared before it.

    The result consists of well-typed nodes; `verify` checks the rest.

    Raises:
        ParseError: the text is too large or deep, is not in the grammar, or has a type
            error; the message starts with line and column.
    """
    text_limits.check(text)
    try:
        return _module(_tree(text))
    except ParseError:
        raise
    except (RecursionError, MemoryError):
        raise text_limits.fault(1, 1, "the text nests too deep to be read") from None
    except IRError as error:
        raise text_limits.fault(1, 1, str(error)) from None


# CPython 3.11 counts AST depth in a variable shared by threads and the garbage
# collector, and sporadically raises SystemError for valid text.
_TRIES: Final = 9


def _tree(text: str) -> ast.Module:
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return _parsed(text)
    return _parsed(text)


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text, mode="exec")
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        raise text_limits.fault(line, column, f"not the syntax: {error.msg}") from None
    except ValueError as error:
        raise text_limits.fault(1, 1, str(error)) from None


def _module(tree: ast.Module) -> Function:
    definitions: list[ast.FunctionDef] = []
    for item in tree.body:
        if not isinstance(item, ast.FunctionDef):
            raise wrong(item, "the text is a function, after the reducers it declares")
        definitions.append(item)
    if not definitions:
        raise text_limits.fault(1, 1, "the text holds no function")
    *before, last = definitions
    scope = Scope()
    for definition in before:
        made = _reducer(definition)
        if (made.name, made.dtypes) in scope.reducers:
            raise wrong(definition, f"reducer {made.name!r} is declared twice")
        scope.reducers[made.name, made.dtypes] = made
    return _function(last, scope)


def _signature(node: ast.FunctionDef) -> ast.arguments:
    args = node.args
    plain = not (
        node.returns or args.posonlyargs or args.vararg or args.kwarg or args.defaults
    )
    if not plain or any(args.kw_defaults):
        message = "a signature has typed names only: no defaults, no '*args', no '->'"
        raise wrong(node, message)
    return args


def _function(node: ast.FunctionDef, scope: Scope) -> Function:
    args = _signature(node)
    if node.decorator_list:
        raise wrong(node, "a function has no decorator, and comes after all reducers")
    scalars = tuple([_variable(arg) for arg in args.kwonlyargs])
    scope.variables.update({var.name: var for var in scalars})
    params = tuple([_param(arg, scope) for arg in args.args])
    scope.buffers.update({param.buffer.name: param.buffer for param in params})
    return Function(name(node, node.name), params, scalars, body(node.body, scope))


def _variable(arg: ast.arg) -> Var:
    return Var(name(arg, arg.arg), dtype(arg.annotation, arg))


def _param(arg: ast.arg, scope: Scope) -> Param:
    given, role = arg.annotation, "in"
    if given is None:
        raise wrong(arg, f"{arg.arg} needs a type, such as f32[n, 4]")
    if isinstance(given, ast.Subscript) and isinstance(given.value, ast.Name):
        role = _ROLES.get(given.value.id, "in")
        given = given.slice if role != "in" else given
    return Param(buffer(name(arg, arg.arg), given, scope), role)


def _reducer(node: ast.FunctionDef) -> Reducer:
    commutative = _commutative(node)
    args = _signature(node)
    variables = tuple([_variable(arg) for arg in args.args])
    half = len(variables) // 2
    if args.kwonlyargs or len(variables) % 2 or not half:
        raise wrong(node, "a reducer takes its left state, then its right state")
    scope = Scope({var.name: var for var in variables})
    if len(scope.variables) < len(variables):
        raise wrong(node, f"reducer {node.name!r} uses one name twice")
    identity, result = _two_statements(node)
    left, right = variables[:half], variables[half:]
    return Reducer(
        name(node, node.name),
        left,
        right,
        exprs(identity, Scope()),
        exprs(elements(result), scope),
        commutative,
    )


def _commutative(node: ast.FunctionDef) -> bool:
    match node.decorator_list:
        case [
            ast.Call(
                func=ast.Name(id="reducer"),
                args=[],
                keywords=[ast.keyword(arg="commutative", value=ast.Constant(value=v))],
            )
        ] if isinstance(v, bool):
            return v
    raise wrong(node, "what comes before the function is '@reducer(commutative=True)'")


def _two_statements(node: ast.FunctionDef) -> tuple[list[ast.expr], ast.expr]:
    match node.body:
        case [
            ast.Expr(
                value=ast.Call(func=ast.Name(id="identity"), args=start, keywords=[])
            ),
            ast.Return(value=ast.expr() as result),
        ]:
            return start, result
    raise wrong(node, "a reducer's body is 'identity(...)', then 'return ...'")
