"""Sizes and conditions on sizes as C."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import pairwise
from typing import Final

from tensorlang.codegen.c_family.forms import SYMBOLS
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.simplification.simplify import simplify

# of the launcher: as in Python, and none of the operands twice
_CALLS: Final = ("floordiv", "floormod", "min", "max")
_LARGEST: Final = (1 << 31) - 1


def c_text(expr: ir.Expr) -> str:
    """An expression of integers as C of 64 bits; CodegenError if it is none."""
    match expr:
        case ir.Const(value=value):
            return f"{value}" if abs(value) <= _LARGEST else f"INT64_C({value})"
        case ir.Var(name=name):
            return name
        case ir.Unary(op="neg", a=a):
            return f"(-{c_text(a)})"
        case ir.Cast(a=a):
            return c_text(a)
        case ir.Binary(op=op, a=a, b=b) if op in _CALLS:
            return f"{op}_of({c_text(a)}, {c_text(b)})"
        case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b):
            return f"({c_text(a)} {SYMBOLS[op]} {c_text(b)})"
    raise CodegenError(f"{expr} is no expression of sizes")


def condition_text(tree: ast.expr, names: Mapping[str, str]) -> str:
    """A declared condition on sizes as C; `names` are C's of those that it contains."""
    match tree:
        case ast.Constant(value=int() as value):
            return f"{value}"
        case ast.Name(id=name):
            return names[name]
        case ast.BoolOp(op=op, values=parts):
            joined = " && " if isinstance(op, ast.And) else " || "
            return f"({joined.join(condition_text(part, names) for part in parts)})"
        case ast.Compare(left=left, ops=ops, comparators=rest):
            sides = [condition_text(side, names) for side in (left, *rest)]
            pairs = zip(ops, pairwise(sides), strict=True)
            made = [f"{a} {_SIGNS[type(op)]} {b}" for op, (a, b) in pairs]
            return f"({' && '.join(made)})"
        case ast.UnaryOp(op=op, operand=operand):
            sign = "!" if isinstance(op, ast.Not) else "-"
            return f"({sign}{condition_text(operand, names)})"
        case ast.BinOp(left=left, op=op, right=right):
            a, b = condition_text(left, names), condition_text(right, names)
            call = {ast.FloorDiv: "floordiv_of", ast.Mod: "floormod_of"}.get(type(op))
            return f"{call}({a}, {b})" if call else f"({a} {_SIGNS[type(op)]} {b})"
    raise CodegenError(f"{ast.unparse(tree)} is no condition on sizes")


_SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def plain(expr: ir.Expr) -> str:
    """The same without parentheses around it."""
    text = c_text(expr)
    return text[1:-1] if text.startswith("(") else text


def total(extents: Iterable[ir.Expr], each: int = 1) -> ir.Expr:
    """The product of a shape, times the size of an element."""
    return simplify(reduce(lambda a, b: a * b, extents, ir.as_expr(each)))
