"""How an operation is written in C, and where it needs parentheses.

C's integers are not the IR's: narrow ones compute as `int`, signed ones must not
overflow, and division rounds towards zero. `form` says which way of writing it an
operation needs:

    infix     `a + b`, as it stands
    shift     division by a power of two, `a >> 3`
    mask      its remainder, `a & 7`
    wrapped   `(i32)((u32)a + (u32)b)`: signed, and it may wrap
    narrowed  `(u8)(a + b)`: C computes in `int`
    call      a function of the prelude, or of the language
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.intervals import BINARY, Interval, hull, within
from tensorlang.ir.node_intervals import type_limits
from tensorlang.ir.nodes import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Let,
    Load,
    Node,
    Select,
    Splat,
    Unary,
    Var,
)
from tensorlang.ir.visit import walk

SYMBOLS: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "/",
    "floormod": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
# C's levels, loosest first; what binds tighter than its surroundings stands bare
_LEVELS: Final = {"|": 6, "^": 7, "&": 8, "==": 9, "!=": 9, "<": 10, "<=": 10}
_LEVELS_: Final = {">": 10, ">=": 10, "<<": 11, ">>": 11, "+": 12, "-": 12}
LEVELS: Final = _LEVELS | _LEVELS_ | {"*": 13, "/": 13, "%": 13}
SELECTION: Final = 3
CAST: Final = 14
ATOM: Final = 16
_I32: Final = i32.limits
_BITS: Final = ("and", "or", "xor", "shr")
# operations that compilers warn of, or readers stumble at, beside another one
_CLOSED: Final = (6, 7, 8, 11)


class Facts:
    """What is known of a kernel's integers: their signs, and between what they lie."""

    def __init__(self, body: Node, bounds: Mapping[Var, Interval]) -> None:
        """`bounds` has the sizes, which are never negative."""
        self.natural = set(bounds)
        self.intervals: dict[Var, Interval] = dict(bounds)
        for node in walk(body):
            if isinstance(node, For):
                self.natural.add(node.var)
                self.intervals[node.var] = self._counted(node)
            if isinstance(node, Let) and node.var.dtype.is_integer:
                if self.at_least_zero(node.value):
                    self.natural.add(node.var)
                self.intervals[node.var] = self.interval(node.value)

    def _counted(self, loop: For) -> Interval:
        """Between what a loop's variable lies."""
        _, most = self.interval(loop.extent)
        return 0, None if most is None else max(most - 1, 0)

    def interval(self, expr: Expr) -> Interval:
        """Between what an integer lies; what may wrap lies anywhere."""
        anywhere = type_limits(expr.dtype)
        match expr:
            case Const(value=value):
                return int(value), int(value)
            case Var():
                return self.intervals.get(expr, anywhere)
            case Cast(a=a) if a.dtype.is_integer and within(self.interval(a), _I32):
                return self.interval(a)
            case Select(a=a, b=b):
                return hull(self.interval(a), self.interval(b))
            case Binary() if expr.dtype == i64:
                return self._exact(expr)
            case Binary() if expr.dtype == i32:
                exact = self._exact(expr)
                return exact if within(exact, _I32) else anywhere
        return anywhere

    def _exact(self, expr: Binary) -> Interval:
        return BINARY[expr.op](self.interval(expr.a), self.interval(expr.b))

    def fits(self, expr: Binary) -> bool:
        """Whether an operation on i32 is shown not to wrap."""
        return expr.dtype == i32 and within(self._exact(expr), _I32)

    def at_least_zero(self, expr: Expr) -> bool:
        """Whether an integer is shown not to be negative."""
        match expr:
            case Const(value=value):
                return value >= 0
            case Var():
                return expr in self.natural
            case Binary(op="add" | "mul" | "floordiv" | "min" | "shr", a=a, b=b):
                return self.at_least_zero(a) and self.at_least_zero(b)
            case Binary(op="floormod", b=b):
                return self.at_least_zero(b)
            case Binary(op="max" | "and", a=a, b=b):
                return self.at_least_zero(a) or self.at_least_zero(b)
            case Select(a=a, b=b):
                return self.at_least_zero(a) and self.at_least_zero(b)
            case Cast(a=a) if a.dtype.is_integer and a.dtype.bits < expr.dtype.bits:
                return self.at_least_zero(a)
        return expr.dtype.kind == "uint"

    def form(self, expr: Binary) -> str:
        """The way of writing an operation."""
        dtype, op = expr.dtype, expr.op
        if op in ("min", "max"):
            return "call"
        if dtype.lanes > 1:
            return self._vector_form(expr)
        if op in ("floordiv", "floormod"):
            return self._division(expr)
        if dtype.is_float or dtype.is_bool or op in _BITS:
            return "infix"
        if dtype.bits < 32:
            return "narrowed"
        if self.fits(expr):
            return "infix"
        return "wrapped" if dtype.name == "i32" or op == "shl" else "infix"

    def _vector_form(self, expr: Binary) -> str:
        """That of lanes, which are not promoted, and have no division of floors."""
        if expr.op in ("floordiv", "floormod"):
            by = expr.b.value if isinstance(expr.b, Splat) else expr.b
            divisor = int(by.value) if isinstance(by, Const) else 0
            if divisor <= 0 or divisor & (divisor - 1):
                return "call"
            return "shift" if expr.op == "floordiv" else "mask"
        if expr.dtype.kind != "int" or expr.op in _BITS or expr.dtype.bits == 64:
            return "infix"
        return "wrapped"

    def _division(self, expr: Binary) -> str:
        divisor = expr.b.value if isinstance(expr.b, Const) else 0
        least, _ = self.interval(expr.b)
        if least is None or least <= 0:
            return "call"
        if expr.dtype.kind == "uint" or self.at_least_zero(expr.a):
            return "infix"
        if divisor <= 0:
            return "call"
        if int(divisor) & (int(divisor) - 1) == 0:
            return "shift" if expr.op == "floordiv" else "mask"
        return "call"

    def level(self, expr: Expr) -> int:
        """How tightly the written expression binds."""
        match expr:
            case Const(value=value):
                negative = not expr.dtype.is_bool and value < 0
                return CAST if negative else ATOM
            case Binary():
                return self._level(expr)
            case Compare(op=op):
                return LEVELS[SYMBOLS[op]]
            case Load() if expr.dtype.is_bool and expr.dtype.lanes == 1:
                return LEVELS["!="]
            case Cast() if expr.dtype.is_bool:
                return LEVELS["!="]
            case Cast() | Unary():
                return CAST
            case Select():
                return SELECTION
        return ATOM

    def _level(self, expr: Binary) -> int:
        form = self.form(expr)
        if form in ("wrapped", "narrowed"):
            return CAST
        written = {"shift": ">>", "mask": "&", "infix": SYMBOLS.get(expr.op, "")}
        return LEVELS[written[form]] if form in written else ATOM

    def bare(self, expr: Expr, around: int, *, right: bool = False) -> bool:
        """Whether an operand needs no parentheses inside of an operator's level."""
        own = self.level(expr)
        if own == around and not right:
            return True
        mixed = own in _CLOSED or around in _CLOSED
        return own > around and (not mixed or own >= CAST)


def unpromoted(index: Expr) -> Expr:
    """An i32 index without its cast to i64, which C makes by itself."""
    if isinstance(index, Cast) and index.dtype == i64 and index.a.dtype == i32:
        return index.a
    return index


def promoted(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two operands, without the cast of one that C makes because of the other."""
    if a.dtype != i64 or b.dtype != i64:
        return a, b
    if unpromoted(a) is not a and not isinstance(b, Const):
        return unpromoted(a), b
    if unpromoted(b) is not b and not isinstance(a, Const):
        return a, unpromoted(b)
    return a, b
