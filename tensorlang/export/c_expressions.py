"""Sizes and conditions on sizes as C."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from tensorlang.codegen.c_family.forms import SYMBOLS
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.simplification.simplify import simplify

# of the launcher: as in Python, and none of the operands twice
_CALLS: Final = ("floordiv", "floormod", "min", "max")
_LARGEST: Final = (1 << 31) - 1


def c_text(expr: ir.Expr) -> str:
    """An expression of integers as C of 64 bits.

    Raises:
        CodegenError: it is none.
    """
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


def plain(expr: ir.Expr) -> str:
    """The same without parentheses around it."""
    text = c_text(expr)
    return text[1:-1] if text.startswith("(") else text


def total(extents: Iterable[ir.Expr], each: int = 1) -> ir.Expr:
    """The product of a shape, times the size of an element."""
    return simplify(reduce(lambda a, b: a * b, extents, ir.as_expr(each)))
