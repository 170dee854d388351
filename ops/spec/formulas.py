"""Formulas over sizes, such as `h >= 5 and x.1 % 4 == 0`, evaluated without `eval`.

Grammar: integers, sizes, attributes, `+ - * // %`, comparisons, `and`, `or` and `not`.
A size is written as a name, or as array and dimension: `x.1`, or `x.shape[1]`.
"""

from __future__ import annotations

import ast
import operator as operators
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from tensorlang.errors import OperatorError
from tensorlang.frozen import frozen

_LONGEST: Final = 1000
_FURTHEST: Final = 64  # maximum change of a size to meet a condition
_DIMENSION: Final = re.compile(
    r"\b([A-Za-z_]\w*)(?:\.shape\s*\[\s*(\d+)\s*\]|\.(\d+)\b)"
)
_SHAPES: Final = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.Load,
)  # fmt: skip
_OPERATIONS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operators.add,
    ast.Sub: operators.sub,
    ast.Mult: operators.mul,
    ast.FloorDiv: operators.floordiv,
    ast.Mod: operators.mod,
    ast.USub: operators.neg,
    ast.Not: operators.not_,
    ast.Lt: operators.lt,
    ast.LtE: operators.le,
    ast.Gt: operators.gt,
    ast.GtE: operators.ge,
    ast.Eq: operators.eq,
    ast.NotEq: operators.ne,
}


@frozen
class Formula:
    """A condition on sizes, or a bound in terms of them."""

    text: str  # source text
    tree: ast.expr  # its Python AST, in which `x.1` is a name

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct sizes and attributes that it contains."""
        found = (n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name))
        return tuple(dict.fromkeys(found))

    @property
    def conjuncts(self) -> tuple[Formula, ...]:
        """The conditions that `and` joins."""
        joined = isinstance(self.tree, ast.BoolOp) and isinstance(self.tree.op, ast.And)
        parts = self.tree.values if joined else [self.tree]  # type: ignore[attr-defined]
        return tuple(Formula(self.text, part) for part in parts)

    def value(self, values: Mapping[str, object]) -> Any:
        """Its value; False on division by zero."""
        try:
            return _value(self.tree, values)
        except ZeroDivisionError:
            return False


def formula(
    what: str, text: str, names: Collection[str], arrays: Collection[str]
) -> Formula:
    """Parse a formula.

    Args:
        what: Its location, for error messages.
        text: The formula.
        names: The names of sizes and attributes.
        arrays: The arrays whose dimensions it may name.

    Raises:
        OperatorError: it does not match the grammar, or contains another name.
    """
    if len(text) > _LONGEST:
        raise OperatorError(f"{what}= has more than {_LONGEST} characters")
    try:
        dotted = _DIMENSION.sub(r"\1[\2\3]", text.strip())
        tree = _Dimensions().visit(ast.parse(dotted, mode="eval").body)
        for node in ast.walk(tree):
            _check(node, names, arrays)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as problem:
        raise OperatorError(
            f"{what}={text[:80]!r} is no formula on sizes such as "
            f"'n >= 5 and x.1 % 4 == 0': {problem}"
        ) from None
    return Formula(text, tree)


class _Dimensions(ast.NodeTransformer):
    """Replaces each `x[1]` by a name `x.1`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.Name:
        """The name of a dimension."""
        return ast.Name(f"{ast.unparse(node.value)}.{ast.unparse(node.slice)}")


def _check(node: ast.AST, names: Collection[str], arrays: Collection[str]) -> None:
    """Refuse a node outside the grammar."""
    if isinstance(node, ast.Name):
        array, _, dimension = node.id.partition(".")
        known = array in arrays and dimension.isdigit() if dimension else array in names
        if not known:
            every = ", ".join((*names, *(f"{array}.0" for array in arrays)))
            raise ValueError(f"{node.id} is no size; these are: {every}")
    elif isinstance(node, ast.Constant):
        if type(node.value) is not int:
            raise ValueError(f"{node.value!r} is no whole number")
    elif not isinstance(node, _SHAPES) and type(node) not in _OPERATIONS:
        raise ValueError(f"{type(node).__name__} is not of its grammar")


def _value(node: ast.expr, values: Mapping[str, object]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BoolOp):
        found = (bool(_value(part, values)) for part in node.values)
        return all(found) if isinstance(node.op, ast.And) else any(found)
    if isinstance(node, ast.Compare):
        sides = [_value(part, values) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, pairwise(sides), strict=True)
        return all(_OPERATIONS[type(op)](*pair) for op, pair in pairs)
    if isinstance(node, ast.UnaryOp):
        return _OPERATIONS[type(node.op)](_value(node.operand, values))
    assert isinstance(node, ast.BinOp)
    sides = [_value(part, values) for part in (node.left, node.right)]
    return _OPERATIONS[type(node.op)](*sides)


def nearest(
    condition: Formula, values: Mapping[str, Any], names: Iterable[str]
) -> Iterator[tuple[str, int]]:
    """Changes (name, value) of one size that make a condition hold, nearest first."""
    for distance in range(1, _FURTHEST + 1):
        for name in names:
            for size in (values[name] + distance, values[name] - distance):
                if size >= 0 and condition.value({**values, name: size}):
                    yield name, size
