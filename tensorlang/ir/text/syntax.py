"""The spelling of the IR: tables shared by the printer and the parser.

The text is Python's syntax with a small vocabulary:

    text    = reducer* def NAME(param, ..., *, scalar, ...): body
    reducer = @reducer(commutative=BOOL) def NAME(left, ..., right, ...):
                  identity(expr, ...)
                  return expr, ...
    param   = NAME: memory | NAME: Out[memory] | NAME: InOut[memory]
    memory  = f32[n, 4] | buffer(f32[n, 4], scope="shared", layout=map)
    map     = lambda i, j: (j, i)
    stmt    = NAME: f32 = expr                      let
            | NAME = alloc(f32[4], scope=, layout=)
            | for NAME in range(e) | parallel(e) | vectorized(e) | unrolled(e)
                          | bound(e, "block.x"):
            | while expr: | if expr: ... elif ... else: | pass
            | with block("name", vi=spatial(extent, value), ..., where=, scope=):
                  with init(): ...                  first, if present
            | x[i] = expr | store(x[i], expr, mask=, hints=("aligned",))
            | reduce(sum, x[i], expr) | reduce(argmax, (x[i], at[i]), (expr, expr))
            | atomic("add", x[i], expr) | barrier("team") | evaluate(expr)
            | with role(cond, registers=24): | NAME = barrier_object(count, size)
            | arrive(NAME[i]) | with arrive(NAME[i]): | wait(NAME[i], phase)

Literals are i64 (`3`), f32 (`1.5`) and bool (`True`); others name their type: `u32(3)`,
`f64(1.5)`, `f32("nan")`. `-3` is a literal, `-i64(3)` a negation. The element of a
buffer without dimensions is `x[()]`.
"""

from __future__ import annotations

import keyword
import re
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import NAMES

GRAMMAR: Final = 1
"""Version of the text format; part of every digest."""

# operation -> (sign, precedence); a higher precedence binds tighter, as in Python
SIGNS: Final[dict[str, tuple[str, int]]] = {
    "or": ("|", 2),
    "xor": ("^", 3),
    "and": ("&", 4),
    "shl": ("<<", 5),
    "shr": (">>", 5),
    "add": ("+", 6),
    "sub": ("-", 6),
    "mul": ("*", 7),
    "div": ("/", 7),
    "floordiv": ("//", 7),
    "floormod": ("%", 7),
}
COMPARISON_SIGNS: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
UNARY_SIGNS: Final = {"neg": "-", "not": "~"}
COMPARISON: Final = 1
PREFIX: Final = 8
ATOM: Final = 9

WRITTEN: Final[dict[str, type]] = {
    "select": ir.Select,
    "cast": ir.Cast,
    "bitcast": ir.Bitcast,
    "ramp": ir.Ramp,
    "splat": ir.Splat,
    "shuffle": ir.Shuffle,
    "extract": ir.Extract,
    "insert": ir.Insert,
    "lane_reduce": ir.LaneReduce,
}
"""The expressions that are written as a call, with their fields as arguments."""

LOOP_WORDS: Final = {
    "serial": "range",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unrolled": "unrolled",
    "bound": "bound",
}
ROLE_WORDS: Final = {"in": "", "out": "Out", "inout": "InOut"}

AXIS_WORDS: Final = ("where", "scope")
"""Keyword arguments of `block(...)` that are no axes."""

MAX_NAME: Final = 128
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DTYPE: Final = re.compile(rf"({'|'.join(NAMES)})(?:x([1-9][0-9]{{0,5}}))?", re.ASCII)


def name_fault(name: str) -> str | None:
    """Why `name` is no valid identifier, or None if it is one.

    Names reach generated source, so only plain ASCII identifiers of at most `MAX_NAME`
    characters are allowed, except Python's keywords.
    """
    if len(name) > MAX_NAME:
        return f"a name has at most {MAX_NAME} characters, this one has {len(name)}"
    if not _IDENTIFIER.fullmatch(name):
        return f"{name!r} is not made of ASCII letters, digits and underscores"
    if keyword.iskeyword(name):
        return f"{name!r} is a word of Python; choose another name"
    if name.startswith("__"):
        return f"{name!r} starts with two underscores; choose another name"
    return None


def split_dtype(word: str) -> tuple[str, int] | None:
    """Element type and lanes of `f32` or `f32x16`; None for any other word."""
    match = _DTYPE.fullmatch(word)
    return (match[1], int(match[2] or 1)) if match else None
