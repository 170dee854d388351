"""Print expressions with the fewest parentheses that preserve the tree."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Final

from tensorlang.errors import IRError
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.text.syntax import (
    ATOM,
    COMPARISON,
    COMPARISON_SIGNS,
    PREFIX,
    SIGNS,
    UNARY_SIGNS,
    WRITTEN,
)

_WHOLE: Final = 1e9  # integral floats below are printed without an exponent
# numbers of digits that may suffice, and that always do
_DIGITS: Final = {"f16": (3, 5), "bf16": (2, 4), "f32": (6, 9)}
_WORDS: Final[dict[type, tuple[str, list[str]]]] = {
    kind: (word, [field.name for field in fields(kind)])
    for word, kind in WRITTEN.items()
}


def text(expr: ir.Expr) -> str:
    """`expr` at the top level or as an argument."""
    return _show(expr)[0]


def texts(exprs: tuple[ir.Expr, ...]) -> str:
    """The expressions, separated by commas."""
    return ", ".join([_show(expr)[0] for expr in exprs])


def indices(exprs: tuple[ir.Expr, ...]) -> str:
    """The text between the brackets of an access; `()` without dimensions."""
    return texts(exprs) or "()"


def access(buffer: ir.Buffer, where: tuple[ir.Expr, ...]) -> str:
    """`buffer[where]`."""
    return f"{buffer.name}[{indices(where)}]"


def options(mask: ir.Expr | None, hints: tuple[str, ...]) -> str:
    """The keyword arguments of a masked or hinted access, each after a comma."""
    shown = "" if mask is None else f", mask={text(mask)}"
    return shown + (f", hints={_field(hints)}" if hints else "")


def index_map(layout: ir.IndexMap) -> str:
    """`lambda i, j: (j, i)`."""
    names = ", ".join([var.name for var in layout.vars])
    results = texts(layout.results)
    body = results if len(layout.results) == 1 else f"({results})"
    return f"lambda {names}: {body}" if names else f"lambda: {body}"


def _wrap(shown: tuple[str, int], least: int) -> str:
    inner, precedence = shown
    return inner if precedence >= least else f"({inner})"


@by_class
def _show(node: ir.Node) -> tuple[str, int]:
    """The text of an expression and the precedence of its outermost operation."""
    kind = type(node)
    if kind not in _WORDS:
        raise IRError(f"{kind.__name__} is not an expression that can be printed")
    word, names = _WORDS[kind]
    given = []
    for name in names:  # a comprehension would be one more frame to recurse through
        value = getattr(node, name)
        given.append(_show(value)[0] if isinstance(value, ir.Expr) else _field(value))
    return f"{word}({', '.join(given)})", ATOM


def _field(value: object) -> str:
    """A field that is no expression."""
    if isinstance(value, tuple):
        inner = ", ".join(
            [text(x) if isinstance(x, ir.Expr) else _field(x) for x in value]
        )
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return f'"{value}"' if isinstance(value, str) else str(value)


@_show.register
def _shuffle(e: ir.Shuffle) -> tuple[str, int]:
    first, count = e.lanes_taken[0], len(e.lanes_taken)
    if len(e.vectors) == 1 and e.lanes_taken == tuple(range(first, first + count)):
        return f"{_wrap(_show(e.vectors[0]), ATOM)}[{first}:{first + count}]", ATOM
    return f"shuffle({_field(e.vectors)}, {_field(e.lanes_taken)})", ATOM


@_show.register
def _var(e: ir.Var) -> tuple[str, int]:
    return e.name, ATOM


@_show.register
def _const(e: ir.Const) -> tuple[str, int]:
    if e.dtype.is_bool:
        return str(e.value), ATOM
    literal = _float(e) if e.dtype.is_float else str(e.value)
    if e.dtype.name not in ("i64", "f32") or literal.startswith('"'):
        return f"{e.dtype}({literal})", ATOM
    return literal, PREFIX if literal.startswith("-") else ATOM


def _float(e: ir.Const) -> str:
    """The shortest decimal that rounds to this value of this type."""
    value = float(e.value)
    if not math.isfinite(value):
        return f'"{value}"'
    if value.is_integer() and abs(value) < _WHOLE:
        return repr(value)
    for digits in range(*_DIGITS.get(e.dtype.name, (0, 0))):
        near = float(f"{value:.{digits}g}")
        if math.isfinite(near) and ir.Const(near, e.dtype) == e:
            return repr(near)
    return repr(value)


@_show.register
def _unary(e: ir.Unary) -> tuple[str, int]:
    if e.op == "abs":
        return f"abs({text(e.a)})", ATOM
    if e.op == "neg" and isinstance(e.a, ir.Const):
        return f"-{_typed(e.a)}", PREFIX
    return UNARY_SIGNS[e.op] + _wrap(_show(e.a), PREFIX), PREFIX


def _typed(e: ir.Const) -> str:
    """A constant with explicit type, so that a minus before it remains a negation."""
    return f"{e.dtype}({_float(e) if e.dtype.is_float else e.value})"


@_show.register
def _binary(e: ir.Binary) -> tuple[str, int]:
    if e.op in SIGNS:
        sign, precedence = SIGNS[e.op]
        left = _wrap(_show(e.a), precedence)
        right = _wrap(_show(e.b), precedence + 1)
        shown = f"{left} {sign} {right}", precedence
    else:
        shown = f"{e.op}({text(e.a)}, {text(e.b)})", ATOM
    return (f"contract({shown[0]})", ATOM) if e.contract else shown


@_show.register
def _compare(e: ir.Compare) -> tuple[str, int]:
    left, right = (_wrap(_show(side), COMPARISON + 1) for side in (e.a, e.b))
    return f"{left} {COMPARISON_SIGNS[e.op]} {right}", COMPARISON


@_show.register
def _load(e: ir.Load) -> tuple[str, int]:
    place = access(e.buffer, e.indices)
    if e.mask is None and not e.hints:
        return place, ATOM
    return f"load({place}{options(e.mask, e.hints)})", ATOM


@_show.register
def _call(e: ir.Call) -> tuple[str, int]:
    return f"{e.name}({texts(e.args)})", ATOM
