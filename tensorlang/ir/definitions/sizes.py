"""Sizes while a definition is traced: concrete values that are also symbolic.

A `Size` knows its value in the call being traced, and is a symbolic expression, too.
Arithmetic on sizes gives sizes. A comparison is decided by the values and recorded as a
*guard*: a condition under which the traced function is valid for other sizes as well.
Uses of the number itself, such as `int(size)` or `range(size)`, specialize to it.

    h, w = x.shape              # 28, 28 in this call
    if h >= 5: ...              # True; guard: h >= 5
    w == h                      # True; guard: w == h, and w is h from here on
    table[int(h)]               # guard: h == 28
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import IRError, ShapeError, TensorlangError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.polynomials import poly
from tensorlang.ir.operations import COMPARISONS, INTEGERS
from tensorlang.ir.text.syntax import COMPARISON_SIGNS, SIGNS
from tensorlang.ir.visit import substitute

if TYPE_CHECKING:
    from tensorlang.ir.definitions.frontend import Tensor

_OPERATIONS: Final = INTEGERS | COMPARISONS
_PAIRS: Final = {"eq": "ne", "lt": "ge", "gt": "le"}
_OPPOSITE: Final = _PAIRS | {b: a for a, b in _PAIRS.items()}


@dataclass(slots=True)
class Facts:
    """The facts about the sizes of a trace.

    Attributes:
        values: The symbols, with their values in the call being traced.
        guards: The conditions that other calls must meet.
        same: Symbols that equal another expression wherever the guards hold.
        checks: Conditions on scalars that each call must meet, with message and error.
        views: Inputs viewed with another shape, by the name of their buffer.
        outer: Symbols that are sizes of no array of the kernel.
        batches: Symbols that may be 1.
    """

    values: dict[ir.Var, int] = field(default_factory=dict)
    guards: dict[ir.Compare, None] = field(default_factory=dict)
    same: dict[ir.Var, ir.Expr] = field(default_factory=dict)
    checks: list[tuple[ir.Expr, str, type[TensorlangError]]] = field(
        default_factory=list
    )
    views: dict[str, Tensor] = field(default_factory=dict)
    outer: set[ir.Var] = field(default_factory=set)
    batches: set[ir.Var] = field(default_factory=set)

    def symbol(self, name: str, value: int, *, batch: bool = False) -> Size:
        """A new size; never for 1, along which arrays are broadcast, except a batch."""
        var = ir.Var(name, i64)
        self.values[var] = value
        if batch:
            self.batches.add(var)
        return Size(self, var)

    def resolved(self, expr: ir.Expr) -> ir.Expr:
        """The expression in the remaining symbols, as a sum of terms."""
        return poly(self.renamed(expr)).expr()

    def renamed(self, expr: ir.Expr) -> ir.Expr:
        """The expression in the remaining symbols."""
        before = None
        while self.same and before != expr:
            before, expr = expr, substitute(expr, self.same)
        return expr

    def holds(self, op: str, a: ir.Expr, b: ir.Expr) -> bool:
        """Whether a comparison holds; adds a guard, unless that is so for all sizes."""
        a, b = self.resolved(a), self.resolved(b)
        known = (poly(a) - poly(b)).value
        if known is not None:
            return bool(COMPARISONS[op](known, 0))
        found = bool(evaluate(ir.Compare(op, a, b), self.values))
        if op == ("eq" if found else "ne"):
            self._equate(a, b)
        elif op not in ("eq", "ne") or b != ir.as_expr(1) or not self._never_one(a):
            self.guards[ir.Compare(op if found else _OPPOSITE[op], a, b)] = None
        return found

    def fix_unsaid(self, extents: Iterable[ir.Expr], said: Iterable[ir.Expr]) -> None:
        """Fix the sizes in extents that do not follow from those of given arrays."""
        known = {*map(self.resolved, said)}
        for extent in map(self.resolved, extents):
            if extent not in known:
                for var in free_vars(self.resolved(extent)) - known:
                    self.holds("eq", var, ir.as_expr(self.values[var]))

    def _never_one(self, expr: ir.Expr) -> bool:
        return isinstance(expr, ir.Var) and expr not in self.batches

    def _equate(self, a: ir.Expr, b: ir.Expr) -> None:
        self.guards[ir.Compare("eq", a, b)] = None
        total = poly(a) - poly(b)
        outer = self.outer & (free_vars(a) | free_vars(b))
        for var in sorted(outer, key=lambda var: var.name):
            by = total.at(var)
            other = (poly(var) - total.scaled(by)).expr()
            if abs(by) == 1 and var not in free_vars(other):
                self.same[var] = other
                return
        for this, other in ((a, b), (b, a)):
            if isinstance(this, ir.Var) and this not in free_vars(other):
                self.same[this] = other
                return


def evaluate(expr: ir.Expr, values: Mapping[ir.Var, int]) -> float:
    """The value of an expression of sizes, or of a comparison of them."""
    match expr:
        case ir.Const(value=value):
            return value
        case ir.Var():
            return values[expr]
        case ir.Unary(op="neg", a=a):
            return -evaluate(a, values)
        case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b) if (
            op in _OPERATIONS
        ):
            made: float = _OPERATIONS[op](evaluate(a, values), evaluate(b, values))
            return made
    raise IRError(f"{expr} is no expression of sizes")


_SIGNS: Final = COMPARISON_SIGNS | {op: sign for op, (sign, _) in SIGNS.items()}
_TEXTS: Final = {
    op: f"({{}} {_SIGNS[op]} {{}})" if op in _SIGNS else f"{op}({{}}, {{}})"
    for op in _OPERATIONS
}


def compiled(variables: Iterable[ir.Var], expr: ir.Expr) -> Callable[..., int]:
    """Compile an expression that `evaluate` accepts, to a function of its variables."""
    names = {var: f"v{n}" for n, var in enumerate(variables)}

    def text(node: ir.Expr) -> str:
        match node:
            case ir.Const(value=value):
                return repr(value)
            case ir.Var():
                return names[node]
            case ir.Unary(op="neg", a=a):
                return f"-({text(a)})"
            case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b) if (
                op in _TEXTS
            ):
                return _TEXTS[op].format(text(a), text(b))
        raise IRError(f"{expr} is no expression of sizes")

    made: Callable[..., int] = eval(f"lambda {', '.join(names.values())}: {text(expr)}")  # noqa: S307
    return made


def _arithmetic(
    op: str, *, swapped: bool = False
) -> Callable[[Size, ir.ExprLike], Any]:
    def method(self: Size, other: ir.ExprLike) -> object:
        expr = _extent(other)
        if expr is None:  # combined with an expression, it becomes one
            pair = (other, self) if swapped else (self, other)
            return ir.binary(op, pair[0], pair[1])
        a, b = (expr, self.expr) if swapped else (self.expr, expr)
        return Size(self.facts, poly(ir.Binary(op, a, b)).expr())

    return method


def _comparison(op: str) -> Callable[[Size, object], Any]:
    def method(self: Size, other: object) -> object:
        expr = _extent(other)
        if expr is None:
            return NotImplemented
        return self.facts.holds(op, self.expr, expr)

    return method


class Size(ir.Operand):
    """A size of an array; see the module docstring."""

    __slots__ = ("expr", "facts")

    def __init__(self, facts: Facts, expr: ir.Expr) -> None:
        self.facts = facts
        self.expr = expr

    def expression(self) -> ir.Expr:
        """The symbolic size, for all calls that the trace is valid for."""
        return self.facts.resolved(self.expr)

    @property
    def value(self) -> int:
        """The value; using it specializes the trace to it."""
        return int(self)

    def __index__(self) -> int:
        found = int(evaluate(self.expr, self.facts.values))
        self.facts.holds("eq", self.expr, ir.as_expr(found))
        return found

    def __bool__(self) -> bool:
        return self.facts.holds("ne", self.expr, ir.as_expr(0))

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        return str(evaluate(self.expr, self.facts.values))

    def __neg__(self) -> Any:
        return 0 - self

    __int__ = __index__
    __add__ = _arithmetic("add")
    __radd__ = _arithmetic("add", swapped=True)
    __sub__ = _arithmetic("sub")
    __rsub__ = _arithmetic("sub", swapped=True)
    __mul__ = _arithmetic("mul")
    __rmul__ = _arithmetic("mul", swapped=True)
    __floordiv__ = _arithmetic("floordiv")
    __rfloordiv__ = _arithmetic("floordiv", swapped=True)
    __mod__ = _arithmetic("floormod")
    __rmod__ = _arithmetic("floormod", swapped=True)
    __eq__ = _comparison("eq")
    __ne__ = _comparison("ne")
    __lt__ = _comparison("lt")
    __le__ = _comparison("le")
    __gt__ = _comparison("gt")
    __ge__ = _comparison("ge")


def _extent(value: object) -> ir.Expr | None:
    """A number or size as an expression; None for anything else."""
    if isinstance(value, Size):
        return value.expr
    return ir.as_expr(value) if type(value) is int else None


# the facts of the trace in progress, if any
TRACED: Final[ContextVar[Facts | None]] = ContextVar("traced", default=None)


def sizes_of(shape: Iterable[ir.ExprLike]) -> tuple[Size, ...] | None:
    """A shape of numbers, expressions and sizes as sizes; None outside of a trace."""
    facts = TRACED.get()
    if facts is None:
        return None
    return tuple(
        extent if isinstance(extent, Size) else Size(facts, ir.as_expr(extent))
        for extent in shape
    )


def require(
    condition: object, message: str, error: type[TensorlangError] = ShapeError
) -> None:
    """Refuse calls whose sizes or scalars do not meet a condition.

    Args:
        condition: A comparison of sizes, or of scalars, that each call must meet.
        message: What is wrong, and what to do; sizes in it do not specialize the trace.
        error: The type of the error.

    Raises:
        TensorlangError: the condition does not hold; of the type `error`.
    """
    if isinstance(condition, ir.Expr):
        facts = TRACED.get()
        if facts is not None:
            facts.checks.append((condition, message, error))
    elif not condition:
        raise error(message)
