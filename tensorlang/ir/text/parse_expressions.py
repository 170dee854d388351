"""Parse expressions from Python's syntax tree: a table of readers by node class."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import fields
from typing import Final, TypeAlias

from tensorlang.errors import IRError, ParseError
from tensorlang.ir import nodes as ir
from tensorlang.ir.intrinsics import INTRINSICS, intrinsic
from tensorlang.ir.text.parser_base import (
    Scope,
    arguments,
    dtype,
    elements,
    hints,
    integer,
    literal,
    string,
    typed_literal,
    wrong,
)
from tensorlang.ir.text.syntax import WRITTEN, split_dtype

Place: TypeAlias = tuple[ir.Buffer, tuple[ir.Expr, ...]]


def expr(node: ast.expr, scope: Scope) -> ir.Expr:
    """Parse an expression; ParseError if it is malformed, or its types do not fit."""
    try:
        return _READERS.get(type(node), _refuse)(node, scope)
    except ParseError:
        raise
    except IRError as error:
        raise wrong(node, str(error)) from None


def exprs(nodes: list[ast.expr], scope: Scope) -> tuple[ir.Expr, ...]:
    """Several expressions, in order."""
    return tuple([expr(node, scope) for node in nodes])


def place(node: ast.expr, scope: Scope) -> Place:
    """The buffer and indices of `x[i, j]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        raise wrong(node, "expected an element of a buffer, such as x[i, j]")
    buffer = scope.buffers.get(node.value.id)
    if buffer is None:
        raise wrong(node, f"no buffer {node.value.id!r} is declared here")
    return buffer, exprs(elements(node.slice), scope)


def _constant(node: ast.Constant, _scope: Scope) -> ir.Expr:
    return literal(node, node.value)


def _name(node: ast.Name, scope: Scope) -> ir.Expr:
    if node.id in scope.variables:
        return scope.variables[node.id]
    if node.id in scope.buffers:
        raise wrong(node, f"{node.id!r} is a buffer; read it as {node.id}[...]")
    raise wrong(node, f"no variable {node.id!r} is in scope here")


def _unary(node: ast.UnaryOp, scope: Scope) -> ir.Expr:
    op = _UNARY.get(type(node.op))
    if op is None:
        raise wrong(node, "of the prefix operators only '-' and '~' are in the IR")
    operand = node.operand
    if op == "neg" and isinstance(operand, ast.Constant):
        return literal(operand, operand.value, sign=-1)
    return ir.Unary(op, expr(operand, scope))


def _binary(node: ast.BinOp, scope: Scope) -> ir.Expr:
    chain: list[ast.BinOp] = []  # a left spine, parsed without recursion
    leaf: ast.expr = node
    while isinstance(leaf, ast.BinOp):
        chain.append(leaf)
        leaf = leaf.left
    value = expr(leaf, scope)
    for link in reversed(chain):
        op = _BINARY.get(type(link.op))
        if op is None:
            raise wrong(link, "'**' and '@' are not operators of the IR")
        right = expr(link.right, scope)
        try:
            value = ir.Binary(op, value, right)
        except IRError as error:
            raise wrong(link, str(error)) from None
    return value


def _compare(node: ast.Compare, scope: Scope) -> ir.Expr:
    op = _COMPARE.get(type(node.ops[0]))
    if op is None or len(node.ops) > 1:
        raise wrong(node, "compare two values, with == != < <= > >=; join with '&'")
    return ir.Compare(op, expr(node.left, scope), expr(node.comparators[0], scope))


def _subscript(node: ast.Subscript, scope: Scope) -> ir.Expr:
    """`x[i, j]`, or lanes of a vector: `v[16:32]`."""
    match node:
        case ast.Subscript(ast.Name(id=name)) if name in scope.buffers:
            pass
        case ast.Subscript(of, ast.Slice(ast.expr() as low, ast.expr() as high, None)):
            vector, first, end = expr(of, scope), integer(low), integer(high)
            if not 0 <= first < end <= vector.dtype.lanes:
                raise wrong(node, f"{vector.dtype} has no lanes {first}:{end}")
            return ir.Shuffle((vector,), tuple(range(first, end)))
    return ir.Load(*place(node, scope))


def _call(node: ast.Call, scope: Scope) -> ir.Expr:
    if not isinstance(node.func, ast.Name):
        raise wrong(node, "only a named function of the IR can be called")
    word = node.func.id
    if word in _FORMS:
        return _FORMS[word](node, scope)
    if split_dtype(word):
        return typed_literal(node)
    if word not in INTRINSICS:
        raise wrong(node, f"{word!r} is no function of the IR")
    args, _ = arguments(node, INTRINSICS[word].arity)
    return intrinsic(word, *exprs(args, scope))


def _two(op: str) -> Form:
    def read(node: ast.Call, scope: Scope) -> ir.Expr:
        a, b = exprs(arguments(node, 2)[0], scope)
        return ir.Binary(op, a, b)

    return read


def _abs(node: ast.Call, scope: Scope) -> ir.Expr:
    return ir.Unary("abs", *exprs(arguments(node, 1)[0], scope))


def _hinted_load(node: ast.Call, scope: Scope) -> ir.Expr:
    (where,), given = arguments(node, 1, "mask", "hints")
    mask = expr(given["mask"], scope) if "mask" in given else None
    return ir.Load(*place(where, scope), mask, hints(given.get("hints")))


def _written(kind: type) -> Form:
    """The reader of an expression written as a call with its fields."""
    readers = [_FIELDS[str(field.type)] for field in fields(kind)]

    def read(node: ast.Call, scope: Scope) -> ir.Expr:
        given, _ = arguments(node, len(readers))
        pairs = zip(readers, given, strict=True)
        made: ir.Expr = kind(*[read(each, scope) for read, each in pairs])
        return made

    return read


def _contract(node: ast.Call, scope: Scope) -> ir.Expr:
    inner = expr(arguments(node, 1)[0][0], scope)
    if not isinstance(inner, ir.Binary) or inner.contract:
        raise wrong(
            node, "contract(...) takes one arithmetic operation: contract(a + b)"
        )
    return ir.Binary(inner.op, inner.a, inner.b, contract=True)


def _refuse(node: ast.expr, _scope: Scope) -> ir.Expr:
    what = _FOREIGN.get(type(node), f"Python's {type(node).__name__}")
    raise wrong(node, f"{what} is not part of the IR")


Form: TypeAlias = Callable[[ast.Call, Scope], ir.Expr]
_FIELDS: Final[dict[str, Callable[[ast.expr, Scope], object]]] = {
    "Expr": expr,
    "tuple[Expr, ...]": lambda node, scope: exprs(elements(node), scope),
    "DType": lambda node, _: dtype(node, node),
    "int": lambda node, _: integer(node),
    "tuple[int, ...]": lambda node, _: tuple(map(integer, elements(node))),
    "str": lambda node, _: string(node),
}
_FORMS: Final[dict[str, Form]] = {
    "min": _two("min"),
    "max": _two("max"),
    "abs": _abs,
    "load": _hinted_load,
    "contract": _contract,
    **{word: _written(kind) for word, kind in WRITTEN.items()},
}
_READERS: Final[dict[type[ast.expr], Callable[..., ir.Expr]]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _compare,
    ast.Subscript: _subscript,
    ast.Call: _call,
}
_UNARY: Final[dict[type[ast.unaryop], str]] = {ast.USub: "neg", ast.Invert: "not"}
_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_FOREIGN: Final[dict[type[ast.expr], str]] = {
    ast.Attribute: "an attribute access",
    ast.Lambda: "a lambda outside a layout",
    ast.BoolOp: "'and' or 'or' (write '&' or '|')",
    ast.IfExp: "'a if c else b' (write select(c, a, b))",
    ast.JoinedStr: "an f-string",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.NamedExpr: "':='",
    ast.Tuple: "a tuple in this place",
    ast.List: "a list",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.Slice: "a slice of a buffer",
    ast.Starred: "'*' before a value",
}
