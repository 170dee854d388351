"""C forms of operations, and their parentheses.

C's integers differ from the IR's: narrow ones are promoted to `int`, signed ones must
not overflow, and division truncates. `form` selects how an operation is written:

    infix     `a + b`
    shift     division by a power of two, `a >> 3`
    mask      its remainder, `a & 7`
    wrapped   `(i32)((u32)a + (u32)b)`: signed, and it may wrap
    narrowed  `(u8)(a + b)`: C computes in `int`
    call      a function of the prelude, or of the language

Operations that are proven not to wrap are infix, as are shifts by less than the width.
So are sums of products, of loop variables and sizes of arrays, that are used in indices
only: they are over the integers, since an index outside of its array is an error. What
is also compared or stored may wrap, and so may what depends on data or on scalars that
are no array's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import ACCESSES
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.integers.bounds import Known, Range, ranges_in
from tensorlang.ir.integers.intervals import within
from tensorlang.ir.integers.node_intervals import node_interval
from tensorlang.ir.visit import children, walk

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
# C's precedence levels, loosest first
_LEVELS: Final = {"|": 6, "^": 7, "&": 8, "==": 9, "!=": 9, "<": 10, "<=": 10}
_LEVELS_: Final = {">": 10, ">=": 10, "<<": 11, ">>": 11, "+": 12, "-": 12}
LEVELS: Final = _LEVELS | _LEVELS_ | {"*": 13, "/": 13, "%": 13}
SELECTION: Final = 3
CAST: Final = 14
ATOM: Final = 16
_INT: Final = 32  # bits of C's `int`
_BITS: Final = ("and", "or", "xor", "shr")
_RING: Final = ("add", "sub", "mul")
# levels parenthesised next to another operator: compilers warn about some mixes
_CLOSED: Final = (6, 7, 8, 11)


class _Uses:
    """Where the expressions of a kernel are used.

    Attributes:
        terms: The i64 sums, products and names that make up indices.
        values: What is used otherwise: stored, in conditions, as extents, in quotients.
    """

    def __init__(self, body: ir.Node, sizes: Mapping[ir.Var, Range]) -> None:
        defined: dict[ir.Var, list[ir.Expr]] = {}
        for var, ends in sizes.items():
            if None not in ends:
                defined[var] = [end for end in ends if isinstance(end, ir.Expr)]
        self._defined = defined
        self._plain: dict[ir.Expr, bool] = {}
        indices: list[ir.Expr] = []
        values: list[ir.Node] = []
        for node in walk(body):
            if isinstance(node, (ir.Let, ir.For)):
                expr = node.value if isinstance(node, ir.Let) else node.extent
                bound = isinstance(node, ir.For) and node.kind == "bound"
                # indices of threads and blocks are small, whatever their number is
                defined.setdefault(node.var, []).extend(() if bound else (expr,))
                if isinstance(node, ir.For) or node.var.dtype != i64:
                    values.append(expr)
            elif isinstance(node, (ir.Stmt, ir.Load)):
                own = node.indices if isinstance(node, ACCESSES) else ()
                indices += own
                values += [e for e in children(node) if not any(e is i for i in own)]
        self.terms = self._terms(indices, values)
        self.values = self._values(values)

    def _terms(self, pending: list[ir.Expr], values: list[ir.Node]) -> list[ir.Expr]:
        """The terms of indices, inner ones last; other parts are added to `values`."""
        found: dict[ir.Expr, None] = {}
        while pending:
            expr = pending.pop()
            expr = expr.base if isinstance(expr, ir.Ramp) else expr
            if expr in found:
                continue
            if isinstance(expr, ir.Var) and expr.dtype == i64:
                found[expr] = None
                pending += self._defined.get(expr, ())
            elif isinstance(expr, ir.Binary) and expr.op in _RING and expr.dtype == i64:
                found[expr] = None
                pending += (expr.a, expr.b)
            else:
                values.append(expr)
        return [*found]

    def _values(self, pending: list[ir.Node]) -> set[ir.Node]:
        found: set[ir.Node] = set()
        while pending:
            node = pending.pop()
            if not isinstance(node, ir.Expr) or node in found:
                continue
            found.add(node)
            if isinstance(node, ir.Var):
                pending += self._defined.get(node, ())
            elif not isinstance(node, ir.Load):  # its parts are visited on their own
                pending += children(node)
        return found

    def plain(self, node: ir.Node, fits: Callable[[ir.Binary], bool]) -> bool:
        """Whether an expression is of loops and sizes, and only indices may overflow.

        Args:
            node: The expression.
            fits: Whether a sum or product is proven not to wrap.
        """
        if not isinstance(node, ir.Expr) or isinstance(node, (ir.Load, ir.Call)):
            return False
        found = self._plain.get(node)
        if found is None:
            parts: Iterable[ir.Node] = children(node)
            found = True
            if isinstance(node, ir.Var):  # a scalar argument is data
                found, parts = node in self._defined, self._defined.get(node, ())
            elif isinstance(node, ir.Binary) and node.op in _RING:
                found = node not in self.values or fits(node)
            found = found and all(self.plain(part, fits) for part in parts)
            self._plain[node] = found
        return found


class Facts:
    """Integer ranges in a kernel, and the forms that follow from them."""

    def __init__(self, body: ir.Node, sizes: Mapping[ir.Var, Range]) -> None:
        self.known = Known(ranges_in(body, sizes))
        uses = _Uses(body, sizes)
        self._indices = {e for e in uses.terms[::-1] if uses.plain(e, self._proven)}

    def fits(self, expr: ir.Binary | ir.Unary) -> bool:
        """Whether an integer operation does not wrap."""
        return expr in self._indices or self._proven(expr)

    def _proven(self, expr: ir.Binary | ir.Unary) -> bool:
        parts = [part for part in children(expr) if isinstance(part, ir.Expr)]
        if expr.dtype == i64 and all(map(self.known.exact, (expr, *parts))):
            return True
        exact = node_interval(expr, self.known.interval)
        return within(exact, expr.dtype.limits)

    def at_least_zero(self, expr: ir.Expr) -> bool:
        """Whether an integer is proven to be non-negative."""
        low = self.known.interval(expr)[0]
        return low is not None and low >= 0

    def shifts(self, expr: ir.Binary) -> bool:
        """Whether a shift is proven to be by less than the width."""
        return within(self.known.interval(expr.b), (0, expr.dtype.bits - 1))

    def form(self, expr: ir.Binary) -> str:
        """The form of an operation."""
        dtype, op = expr.dtype, expr.op
        if op in ("min", "max") or (op in ("shl", "shr") and not self.shifts(expr)):
            return "call"
        if op in ("floordiv", "floormod"):
            return (
                self._vector_division(expr) if dtype.lanes > 1 else self._division(expr)
            )
        if not dtype.is_integer or op in _BITS:
            return "infix"
        if dtype.bits < _INT and dtype.lanes == 1:  # of what C computes in `int`
            risky = {"mul": dtype.name == "u16", "shl": dtype.kind == "int"}
            return "wrapped" if risky.get(op, False) else "narrowed"
        if dtype.kind == "uint":
            return "infix"
        plain = op != "shl" or (dtype == i32 and self.at_least_zero(expr.a))
        return "infix" if plain and self.fits(expr) else "wrapped"

    def _vector_division(self, expr: ir.Binary) -> str:
        """Division of vectors: C has no floor division for them."""
        by = expr.b.value if isinstance(expr.b, ir.Splat) else expr.b
        divisor = int(by.value) if isinstance(by, ir.Const) else 0
        if divisor <= 0 or divisor & (divisor - 1):
            return "call"
        return "shift" if expr.op == "floordiv" else "mask"

    def _division(self, expr: ir.Binary) -> str:
        divisor = int(expr.b.value) if isinstance(expr.b, ir.Const) else 0
        shifts = divisor > 0 and divisor & (divisor - 1) == 0
        positive = (self.known.interval(expr.b)[0] or 0) > 0
        natural = positive and self.at_least_zero(expr.a)
        if shifts and not (natural and expr.dtype == i32):  # C may not know the sign
            return "shift" if expr.op == "floordiv" else "mask"
        return "infix" if natural else "call"

    def level(self, expr: ir.Expr) -> int:
        """Precedence of the written expression."""
        match expr:
            case ir.Const(value=value):
                negative = not expr.dtype.is_bool and value < 0
                return CAST if negative else ATOM
            case ir.Binary():
                return self._level(expr)
            case ir.Compare(op=op):
                return LEVELS[SYMBOLS[op]]
            case ir.Load() if expr.dtype.is_bool and expr.dtype.lanes == 1:
                return LEVELS["!="]
            case ir.Cast() if expr.dtype.is_bool:
                return LEVELS["!="]
            case ir.Cast() | ir.Unary():
                return CAST
            case ir.Select():
                return SELECTION
        return ATOM

    def _level(self, expr: ir.Binary) -> int:
        form = self.form(expr)
        if form in ("wrapped", "narrowed"):
            return CAST
        written = {"shift": ">>", "mask": "&", "infix": SYMBOLS.get(expr.op, "")}
        return LEVELS[written[form]] if form in written else ATOM

    def bare(self, expr: ir.Expr, around: int, *, right: bool = False) -> bool:
        """Whether an operand needs no parentheses next to an operator."""
        return binds(self.level(expr), around, right=right)


def binds(own: int, around: int, *, right: bool = False) -> bool:
    """Whether an operand of one level needs no parentheses in another."""
    if own == around and not right:
        return True
    mixed = own in _CLOSED or around in _CLOSED
    return own > around and (not mixed or own >= CAST)


def unpromoted(index: ir.Expr) -> ir.Expr:
    """An i32 index without its cast to i64, which C performs implicitly."""
    if isinstance(index, ir.Cast) and index.dtype == i64 and index.a.dtype == i32:
        return index.a
    return index


def promoted(a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Two operands, without a cast that C's usual conversions perform."""
    if a.dtype != i64 or b.dtype != i64:
        return a, b
    if unpromoted(a) is not a and not isinstance(b, ir.Const):
        return unpromoted(a), b
    if unpromoted(b) is not b and not isinstance(a, ir.Const):
        return a, unpromoted(b)
    return a, b
