"""Parser basics: scopes, located errors, words, literals."""

from __future__ import annotations

import ast
import math
from dataclasses import field

from tensorlang.errors import ParseError
from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import DType, boolean, f32, i64
from tensorlang.ir.nodes import Buffer, Const, Reducer, Var
from tensorlang.ir.text.limits import fault
from tensorlang.ir.text.syntax import name_fault, split_dtype


@frozen
class Scope:
    """The names in scope at a place of the text."""

    variables: dict[str, Var] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    reducers: dict[tuple[str, tuple[DType, ...]], Reducer] = field(default_factory=dict)
    barriers: set[str] = field(default_factory=set)

    def inner(self) -> Scope:
        """A copy: names added to it are not visible outside."""
        return Scope(
            dict(self.variables), dict(self.buffers), self.reducers, set(self.barriers)
        )


def wrong(node: ast.AST, message: str) -> ParseError:
    """The error at a node of Python's syntax tree."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return fault(line, column + 1, message)


def elements(node: ast.expr) -> list[ast.expr]:
    """The items of a tuple, or a single expression as one item."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def name(node: ast.AST, spelling: str) -> str:
    """A name being introduced, after validation."""
    problem = name_fault(spelling)
    if problem:
        raise wrong(node, problem)
    return spelling


def dtype(node: ast.expr | None, place: ast.AST) -> DType:
    """The type spelled by a word such as `f32` or `u32x16`."""
    found = split_dtype(node.id) if isinstance(node, ast.Name) else None
    if found is None:
        raise wrong(node or place, "expected an element type such as f32 or u32x16")
    return DType(*found)


def string(node: ast.expr) -> str:
    """A string literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise wrong(node, "expected a quoted word")


def hints(node: ast.expr | None) -> tuple[str, ...]:
    """A tuple of string literals; empty if omitted."""
    return () if node is None else tuple([string(word) for word in elements(node)])


def integer(node: ast.expr) -> int:
    """An integer literal, such as a lane number."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise wrong(node, "expected a whole number")


def arguments(
    node: ast.Call, count: int, *keywords: str
) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """The arguments of a call: `count` by position, and some of `keywords`."""
    word = ast.unparse(node.func) if isinstance(node.func, ast.Name) else "this call"
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            raise wrong(argument, "'*' before an argument is not part of the IR")
    if len(node.args) != count:
        raise wrong(node, f"{word} takes {count} arguments, not {len(node.args)}")
    given: dict[str, ast.expr] = {}
    for keyword in node.keywords:
        if keyword.arg not in keywords or keyword.arg in given:
            raise wrong(keyword, f"{word} has no (second) argument {keyword.arg!r}")
        given[keyword.arg] = keyword.value
    return node.args, given


def literal(node: ast.expr, value: object, sign: int = 1) -> Const:
    """An untyped number or bool literal: i64, f32 or bool."""
    if isinstance(value, bool) and sign == 1:
        return Const(value, boolean)
    if type(value) is int:
        return _integer(node, sign * value, i64)
    if type(value) is float:
        return _float(node, sign * value, f32)
    raise wrong(node, f"a {type(value).__name__} is not a value of the IR")


def _integer(node: ast.expr, value: int, kind: DType) -> Const:
    low, high = kind.limits
    if not low <= value <= high:
        raise wrong(node, f"{value} is not a value of {kind}: {low} .. {high}")
    return Const(value, kind)


def _float(node: ast.expr, value: float, kind: DType) -> Const:
    made = Const(value, kind)
    if not math.isfinite(float(made.value)):
        message = f'the number is too big for {kind}; write {kind}("inf")'
        raise wrong(node, message)
    return made


def typed_literal(node: ast.Call) -> Const:
    """`u32(3)`, `f64(-1.5)`, `f32("nan")`."""
    kind = dtype(node.func, node)
    (given,), _ = arguments(node, 1)
    sign, bare = 1, given
    if isinstance(given, ast.UnaryOp) and isinstance(given.op, ast.USub):
        sign, bare = -1, given.operand
    value = bare.value if isinstance(bare, ast.Constant) else None
    if kind.is_float and sign == 1 and value in ("inf", "-inf", "nan"):
        return Const(float(value), kind)
    if kind.is_float and type(value) is float:
        return _float(given, sign * value, kind)
    if kind.is_integer and type(value) is int:
        return _integer(given, sign * value, kind)
    raise wrong(node, f"{kind}(...) takes a literal of that kind; convert with cast")
