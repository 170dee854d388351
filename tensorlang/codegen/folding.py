"""Build integer arithmetic with constants folded: offsets and extents.

Passes use these so that what they build is small from the start; `ir.simplify` does
the thorough work.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.operations import COMPARISONS, INTEGERS
from tensorlang.ir.visit import transform

_ZERO_RIGHT: Final = ("add", "sub", "or", "xor", "shl", "shr")


def is_const(expr: ir.Expr, value: int | None = None) -> bool:
    """Whether an expression is an integer constant (of this value)."""
    if not isinstance(expr, ir.Const) or not expr.dtype.is_integer:
        return False
    return value is None or expr.value == value


def make(op: str, a: ir.Expr, b: ir.Expr, contract: bool = False) -> ir.Expr:
    """`a op b`, folded if both are integer constants or one is neutral."""
    found = _folded(op, a, b)
    return ir.Binary(op, a, b, contract) if found is None else found


def _folded(op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr | None:
    """A simpler form of `a op b`, or None."""
    kind = a.dtype
    if kind.lanes > 1 or not (isinstance(a, ir.Const) or isinstance(b, ir.Const)):
        return None
    if kind.is_bool:
        return _truth(op, a, b)
    if not kind.is_integer:
        return None
    if isinstance(a, ir.Const) and isinstance(b, ir.Const):
        divided = op in ("floordiv", "floormod")
        if op in INTEGERS and op not in ("shl", "shr") and (b.value or not divided):
            return ir.whole(INTEGERS[op](int(a.value), int(b.value)), kind)
    return _neutral(op, a, b)


def _neutral(op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr | None:
    """The result where one operand is neutral or absorbing, or constants combine."""
    if op in _ZERO_RIGHT and is_const(b, 0):
        return a
    if op == "add" and is_const(a, 0):
        return b
    if op == "mul":
        if is_const(a, 0) or is_const(b, 1):
            return a
        if is_const(b, 0) or is_const(a, 1):
            return b
    if op == "floordiv" and is_const(b, 1):
        return a
    if op == "floormod" and is_const(b, 1):
        return ir.Const(0, a.dtype)
    if op == "add" and isinstance(b, ir.Const) and _adds_constant(a):
        assert isinstance(a, ir.Binary)
        return make("add", a.a, make("add", a.b, b))
    return None


def _adds_constant(a: ir.Expr) -> bool:
    return isinstance(a, ir.Binary) and a.op == "add" and isinstance(a.b, ir.Const)


def _truth(op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr | None:
    for known, other in ((a, b), (b, a)):
        if isinstance(known, ir.Const) and op in ("and", "or"):
            return other if known.value == (op == "and") else known
    return None


def add(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """`a + b`, folded."""
    return make("add", a, b)


def sub(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """`a - b`, folded."""
    return make("sub", a, b)


def mul(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """`a * b`, folded."""
    return make("mul", a, b)


def maximum(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """`max(a, b)`, folded."""
    return make("max", a, b)


def product(extents: tuple[ir.Expr, ...]) -> ir.Expr:
    """The product of all extents; 1 if there are none."""
    total: ir.Expr = ir.as_expr(1)
    for extent in extents:
        total = mul(total, extent)
    return total


def fold_node(node: ir.Node) -> ir.Node:
    """Fold one node whose children are folded."""
    if isinstance(node, ir.Binary):
        found = _folded(node.op, node.a, node.b)
        return node if found is None else found
    match node:
        case ir.Compare(op=op, a=ir.Const(value=a), b=ir.Const(value=b)) if (
            node.a.dtype.is_integer
        ):
            return ir.as_expr(COMPARISONS[op](int(a), int(b)))
        case ir.Select(cond=ir.Const(value=known)):
            return node.a if known else node.b
        case ir.Splat(value=value, lanes=1):
            return value
        case _:
            return node


def fold(expr: ir.Expr) -> ir.Expr:
    """An expression with its integer constants folded."""
    return transform(expr, fold_node)
