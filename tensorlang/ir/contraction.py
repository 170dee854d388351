"""Contraction of products and additions: the rule shared by lowering and interpreter.

An addition is contracted with the product beside it, into an `fma`, if the addition or
that product says `contract`. Of two products the right one is contracted. The addition
of an f32 or f64 reducer always is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir.nodes import Binary, Call, Expr, Reducer, Unary
from tensorlang.ir.visit import substitute

_REDUCED: Final = ("f32", "f64")


def as_fma(node: Expr) -> Call | None:
    """The `fma` equivalent to `node`, or None if it is no contracted addition.

    `a*b + c` and `c + a*b` are `fma(a, b, c)`, `a*b - c` is `fma(a, b, -c)` and `c -
    a*b` is `fma(-a, b, c)`.
    """
    if not isinstance(node, Binary) or node.op not in ("add", "sub"):
        return None
    if not node.dtype.is_float:
        return None
    if (product := _product(node.b, node.contract)) is not None:
        a = Unary("neg", product.a) if node.op == "sub" else product.a
        return Call("fma", (a, product.b, node.a), node.dtype)
    if (product := _product(node.a, node.contract)) is not None:
        c = Unary("neg", node.b) if node.op == "sub" else node.b
        return Call("fma", (product.a, product.b, c), node.dtype)
    return None


def _product(node: Expr, contract: bool) -> Binary | None:
    if isinstance(node, Binary) and node.op == "mul" and (contract or node.contract):
        return node
    return None


def combination(
    reducer: Reducer,
    left: tuple[Expr, ...],
    right: tuple[Expr, ...],
    *,
    contract: bool = True,
) -> tuple[Expr, ...]:
    """The reducer's expressions on these operands, with sums of products contracted.

    `sum` of a state and `a*b` is `fma(a, b, state)`, unless `contract` is false, for
    processors without that instruction.
    """
    values = dict(zip(reducer.left + reducer.right, left + right, strict=True))
    made = (substitute(part, values) for part in reducer.combine)
    return tuple(_absorbing(part) if contract else part for part in made)


def _absorbing(node: Expr) -> Expr:
    if not isinstance(node, Binary) or node.op != "add":
        return node
    if node.dtype.scalar.name not in _REDUCED:
        return node
    found = as_fma(replace(node, contract=True))
    return node if found is None else found
