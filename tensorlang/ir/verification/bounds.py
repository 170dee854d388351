"""Refuse accesses that are certainly out of bounds.

That is, only what no call can do correctly: an index, linear in the enclosing loops,
that leaves its dimension in some iteration certain to run. Accesses guarded by an `if`,
a `while`, a `where`, a mask or a `select` are left to the interpreter, as is all that
depends on data. Loops of symbolic extent are assumed to run, so `x[i + 1]` with i up to
the length of x is refused, although valid for an empty x.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from tensorlang.errors import IRError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.known import Known, Range
from tensorlang.ir.integers.polynomials import Poly, factors, number, poly, term
from tensorlang.ir.verification.expressions import evaluated
from tensorlang.ir.visit import children, holds


def check_bounds(func: ir.Function) -> None:
    """Refuse an access that is out of bounds in an iteration that runs.

    Raises:
        IRError: the access, how far it reaches, and the dimension that it leaves.
    """
    needed = _Needed()
    needed.of(func.body)
    _Bounds(func.name, needed.lets).visit(func.body, _Around())


@frozen
class _Around:
    """The enclosing loops and the values of variables, as polynomials.

    A value is None if unknown: it reads memory, or is not linear.
    """

    loops: Mapping[ir.Var, Poly] = field(default_factory=dict)
    values: Mapping[ir.Var, Poly | None] = field(default_factory=dict)

    def with_value(self, var: ir.Var, value: Poly | None) -> _Around:
        return replace(self, values={**self.values, var: value})

    def with_loop(self, var: ir.Var, extent: Poly) -> _Around:
        inner = self.with_value(var, term(var))
        return replace(inner, loops={**self.loops, var: extent})

    def poly(self, expr: ir.Expr) -> Poly | None:
        """The value in terms of loops and scalars, if it is a polynomial of them."""
        if expr.dtype != i64:
            return None
        total = Poly()
        for monomial, coefficient in poly(expr).items():
            part = number(coefficient)
            for factor in monomial:
                value = self._value(factor)
                if value is None or not part.multiplies(value):
                    return None
                part = part.product(value)
            total += part
        return total

    def _value(self, factor: ir.Expr) -> Poly | None:
        if isinstance(factor, ir.Var):
            return self.values.get(factor, term(factor))
        moves = any(var in self.values for var in free_vars(factor))
        if moves or holds(factor, ir.Load):
            return None
        return term(factor)

    def reached(self, total: Poly) -> Poly | None:
        """The maximum over the loops, if provably nonnegative."""
        known = self._known()
        for var, extent in reversed(tuple(self.loops.items())):
            slope = _slope(total, var)
            if any(factor in self.loops for factor in factors(slope)):
                return None
            total -= slope.product(term(var))
            if known.at_least_zero(slope):
                total += slope.product(extent.shifted(-1))
            elif not known.at_least_zero(-slope):
                return None
        return total if known.at_least_zero(total) else None

    def _known(self) -> Known:
        """The facts that follow from all enclosing loops running."""
        ranges: dict[ir.Var, Range] = {}
        facts = []
        for extent in self.loops.values():
            scalar = next(iter(factors(extent)), None)
            if isinstance(scalar, ir.Var) and extent == term(scalar):
                ranges[scalar] = (1, None)
            elif extent.value is None:
                facts.append(extent.shifted(-1))
        return Known(ranges, tuple(facts))


def _slope(total: Poly, var: ir.Var) -> Poly:
    """The cofactor of a variable; for its square, the variable again."""
    slope = Poly()
    for monomial, coefficient in total.items():
        if var in monomial:
            at = monomial.index(var)
            slope[monomial[:at] + monomial[at + 1 :]] = coefficient
    return slope


def _grows(extent: Poly, around: _Around) -> bool:
    """Whether a loop runs once all sizes are large enough."""
    return all(
        coefficient > 0 and all(_factor_grows(factor, around) for factor in monomial)
        for monomial, coefficient in extent.items()
        if monomial
    )


def _factor_grows(factor: ir.Expr, around: _Around) -> bool:
    if isinstance(factor, ir.Var):
        return factor not in around.values
    if isinstance(factor, ir.Binary) and factor.op == "floordiv":
        divisor = poly(factor.b).value
        return divisor is not None and divisor > 0 and _grows(poly(factor.a), around)
    return False


class _Needed:
    """The `Let`s whose value is used unguarded, by identity.

    Subexpressions used twice under one `select` are in a `Let` before it.
    """

    def __init__(self) -> None:
        self.lets: set[int] = set()

    def of(self, stmt: ir.Stmt) -> set[ir.Var]:
        """The variables that a statement certainly uses."""
        if isinstance(stmt, ir.Seq):
            return self._in_order(stmt.stmts)
        used = _variables(evaluated(stmt))
        for inner in _run(stmt):
            used |= self.of(inner)
        return used

    def _in_order(self, stmts: Iterable[ir.Stmt]) -> set[ir.Var]:
        used: set[ir.Var] = set()
        for stmt in reversed(tuple(stmts)):
            if not isinstance(stmt, ir.Let):
                used |= self.of(stmt)
            elif stmt.var in used:
                self.lets.add(id(stmt))
                used |= _variables((stmt.value,))
        return used


def _variables(exprs: Iterable[ir.Expr]) -> set[ir.Var]:
    return {part for e in exprs for part in _certain(e) if isinstance(part, ir.Var)}


def _run(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    """The child statements that run whenever this one does, if its loop runs."""
    if isinstance(stmt, ir.If | ir.While | ir.Role):
        return
    if isinstance(stmt, ir.Block) and stmt.where is not None:
        return
    yield from (child for child in children(stmt) if isinstance(child, ir.Stmt))


def _certain(expr: ir.Expr) -> Iterator[ir.Expr]:
    """An expression and its subexpressions that are evaluated unconditionally."""
    yield expr
    if isinstance(expr, ir.Select):
        yield from _certain(expr.cond)
        return
    chosen = isinstance(expr, ir.Binary) and expr.dtype.is_bool
    if chosen or (isinstance(expr, ir.Call) and expr.name == "prefetch"):
        return
    for child in children(expr):
        if isinstance(child, ir.Expr):
            yield from _certain(child)


class _Bounds:
    """Visits what certainly runs, and checks each access there."""

    def __init__(self, name: str, lets: set[int]) -> None:
        self._name = name
        self._lets = lets

    @method_by_class
    def visit(self, stmt: ir.Stmt, around: _Around) -> None:
        """Check what a statement evaluates, and its child statements that run."""
        self._expressions(stmt, around)
        for inner in _run(stmt):
            self.visit(inner, around)

    @visit.register
    def _(self, stmt: ir.Seq, around: _Around) -> None:
        for inner in stmt.stmts:
            if isinstance(inner, ir.Let):
                if id(inner) in self._lets:
                    self._expressions(inner, around)
                around = around.with_value(inner.var, around.poly(inner.value))
            else:
                self.visit(inner, around)

    @visit.register
    def _(self, stmt: ir.For, around: _Around) -> None:
        self._expressions(stmt, around)
        extent = around.poly(stmt.extent)
        if extent is None:
            return
        count = extent.value
        if _grows(extent, around) if count is None else count > 0:
            self.visit(stmt.body, around.with_loop(stmt.var, extent))

    @visit.register
    def _(self, stmt: ir.Block, around: _Around) -> None:
        self._expressions(stmt, around)
        for axis in stmt.axes:
            around = around.with_value(axis.var, around.poly(axis.value))
        for inner in _run(stmt):
            self.visit(inner, around)

    @visit.register
    def _(self, stmt: ir.Store | ir.AtomicUpdate, around: _Around) -> None:
        self._expressions(stmt, around)
        if not isinstance(stmt, ir.Store) or stmt.mask is None:
            self._access(stmt.buffer, stmt.indices, around)

    @visit.register
    def _(self, stmt: ir.Reduce, around: _Around) -> None:
        self._expressions(stmt, around)
        for buffer in stmt.buffers:
            self._access(buffer, stmt.indices, around)

    def _expressions(self, stmt: ir.Stmt, around: _Around) -> None:
        for expr in evaluated(stmt):
            for part in _certain(expr):
                if isinstance(part, ir.Load) and part.mask is None:
                    self._access(part.buffer, part.indices, around)

    def _access(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], around: _Around
    ) -> None:
        for index, extent in zip(indices, buffer.shape, strict=True):
            at, size = around.poly(index), around.poly(extent)
            if at is None or size is None:
                continue
            above = around.reached(at - size)
            if above is not None:
                raise self._fault(buffer, indices, above + size, size)
            below = around.reached(-at.shifted(1))
            if below is not None:
                raise self._fault(buffer, indices, -below.shifted(1), size)

    def _fault(
        self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...], at: Poly, size: Poly
    ) -> IRError:
        place = ", ".join(map(repr, indices))
        return IRError(
            f"function {self._name!r}: {buffer.name}[{place}] comes to "
            f"{at.expr()!r}, outside of its dimension of {size.expr()!r}; "
            "end the loop earlier, or run the block only where the index is inside"
        )
