"""Domains of loaded integers for which a function accesses only its own memory.

Indices must be in bounds, checks must hold, divisors must be nonzero, and loops with a
loaded extent must end. Where a loaded integer decides this, its minimum and maximum are
derived, for given sizes. Code guarded by an `if` counts as executed: a domain may be
too small, never too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import bounds
from tensorlang.ir.integers.intervals import UNKNOWN, Interval, meet
from tensorlang.ir.integers.polynomials import Poly, Polys, factors
from tensorlang.ir.visit import children, holds, substitute, walk

_LONGEST_LOOP: Final = 64  # iterations of a loop whose extent no memory bounds
# the interval of a difference for which a comparison with 0 holds
_HOLDS: Final[Mapping[str, Interval]] = {
    "lt": (None, -1),
    "le": (None, 0),
    "gt": (1, None),
    "ge": (0, None),
}
_MOST_ROUNDS: Final = 8  # chained temporaries that indices pass through


@dataclass(slots=True)
class Domain:
    """The values that the elements of a buffer may have."""

    interval: Interval = UNKNOWN  # minimum and maximum, None if unbounded
    nonzero: bool = False  # whether 0 is excluded


@frozen
class Domains:
    """The domains of a function's operands.

    Attributes:
        named: The domains of the buffers whose elements determine what is accessed.
        complete: Whether nothing else determines it, such as a division by a
            difference.
    """

    named: Mapping[str, Domain]
    complete: bool


def domains(func: ir.Function, sizes: Mapping[str, int]) -> Domains:
    """The domains of the buffers whose elements determine what a function accesses.

    Args:
        func: A definition, not scheduled.
        sizes: The values of its symbolic sizes.
    """
    found = _Needs({ir.Var(name, i64): ir.Const(n, i64) for name, n in sizes.items()})
    found.visit(func.body)
    for _ in range(_MOST_ROUNDS):
        before = {name: domain.interval for name, domain in found.needs.items()}
        for name, value, loops in found.stores:
            if name in before:
                found.within(value, before[name], loops)
        if before == {name: d.interval for name, d in found.needs.items()}:
            break
    return Domains(found.needs, found.complete)


class _Sums(Polys):
    """Sums of integers of any type, none of which wraps."""

    def read(self, expr: ir.Expr) -> Poly:
        """The sum that an expression is; conversions do not change it."""
        if isinstance(expr, ir.Cast) and not expr.a.dtype.is_float:
            return self[expr.a]
        if isinstance(expr, ir.Binary | ir.Unary) and expr.dtype.is_integer:
            return self.arithmetic(expr)
        return super().read(expr)


def _sum(expr: ir.Expr) -> Poly:
    return _Sums()[expr]


@dataclass(slots=True)
class _Needs:
    """Visitor that collects requirements, given the values of variables."""

    values: dict[ir.Var, ir.Expr]
    loops: dict[ir.Var, ir.Expr] = field(default_factory=dict)
    needs: dict[str, Domain] = field(default_factory=dict)
    stores: list[tuple[str, ir.Expr, dict[ir.Var, ir.Expr]]] = field(
        default_factory=list
    )
    complete: bool = True

    def visit(self, stmt: ir.Stmt) -> None:
        """Collect the requirements of a statement and its children."""
        if isinstance(stmt, ir.Let):
            self._expression(stmt.value)
            self.values[stmt.var] = self._known(stmt.value)
            return
        if isinstance(stmt, ir.Block):
            for axis in stmt.axes:
                self.values[axis.var] = self._known(axis.value)
        elif isinstance(stmt, ir.For):
            self.loops[stmt.var] = extent = self._known(stmt.extent)
            if _loads(extent):  # a single trip count must not be negative, either
                low = 0 if len(_sum(extent)) == 1 else None
                self.within(extent, (low, _LONGEST_LOOP), self.loops)
        elif isinstance(stmt, ir.Store | ir.Reduce | ir.AtomicUpdate):
            self._stored(stmt)
        elif isinstance(stmt, ir.Evaluate):
            for difference, limit in _checked(stmt.expr):
                self.within(self._known(difference), limit, self.loops)
        elif isinstance(stmt, ir.While):
            self.complete = False
        for child in children(stmt):
            if isinstance(child, ir.Stmt):
                self.visit(child)
            elif isinstance(child, ir.Expr):
                self._expression(child)
        if isinstance(stmt, ir.For):
            del self.loops[stmt.var]

    def _stored(self, stmt: ir.Store | ir.Reduce | ir.AtomicUpdate) -> None:
        pairs = [(stmt.buffer, stmt.value)] if not isinstance(stmt, ir.Reduce) else []
        if isinstance(stmt, ir.Reduce):
            pairs = list(zip(stmt.buffers, stmt.values, strict=True))
        for buffer, value in pairs:
            self._access(buffer, stmt.indices)
            if buffer.dtype.is_integer:
                known = self._known(value), dict(self.loops)
                self.stores.append((buffer.name, *known))

    def _expression(self, expr: ir.Expr) -> None:
        for part in walk(expr):
            if isinstance(part, ir.Load):
                self._access(part.buffer, part.indices)
            elif isinstance(part, ir.Binary) and part.dtype.is_integer:
                self._operation(part)

    def _operation(self, part: ir.Binary) -> None:
        if part.op in ("floordiv", "floormod"):
            divisor = self._known(part.b)
            summands = _sum(divisor)
            for load in factors(summands):
                if isinstance(load, ir.Load) and len(summands) == 1:
                    self._of(load.buffer).nonzero = True
                elif _loads(divisor):
                    self.complete = False

    def _access(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> None:
        for index, extent in zip(indices, buffer.shape, strict=True):
            size = _sum(self._known(extent)).value
            if size is not None:
                limit = (0, size - 1)
                self.within(self._known(index), limit, self.loops)

    def _known(self, expr: ir.Expr) -> ir.Expr:
        return substitute(expr, self.values) if self.values else expr

    def _of(self, buffer: ir.Buffer) -> Domain:
        return self.needs.setdefault(buffer.name, Domain())

    def within(
        self, expr: ir.Expr, limit: Interval, loops: Mapping[ir.Var, ir.Expr]
    ) -> None:
        """Require an expression to be within an interval for all loop values."""
        if not any(map(_loads, (expr, *loops.values()))):
            return
        low, high = limit
        if high is not None:
            self._below(_extreme(_sum(expr), loops, 1), high, loops)
        if low is not None:
            self._below(-_extreme(_sum(expr), loops, -1), -low, loops)

    def _below(self, total: Poly, high: int, loops: Mapping[ir.Var, ir.Expr]) -> None:
        """Require a sum to be at most `high`, constraining each summand separately.

        Of several, as in `row[i] * width + column[i]`, each stays below the next larger
        coefficient, and negative values are not credited.
        """
        high -= total.constant
        parts = sorted((abs(c), c, n) for n, (_, c) in enumerate(total.terms))
        named = [e for e, _ in total.terms]
        for number, (size, coefficient, at) in enumerate(parts):
            most = high // size
            if number + 1 < len(parts):
                most = min(max(parts[number + 1][0] // size - 1, 0), most)
            high -= most * size
            limit = (None, most) if coefficient > 0 else (-most, None)
            self._need(named[at], limit, loops)

    def _need(
        self, expr: ir.Expr, limit: Interval, loops: Mapping[ir.Var, ir.Expr]
    ) -> None:
        """Require one summand to be within an interval."""
        if isinstance(expr, ir.Load) and expr.dtype.is_integer:
            held = self._of(expr.buffer)
            held.interval = meet(held.interval, limit)
            return
        limit = _unmet(bounds(expr), limit)
        if limit == UNKNOWN:
            return
        needed = tuple(_operands(expr, limit))
        for operand, interval in needed:
            self.within(operand, interval, loops)
        self.complete &= bool(needed) or not _loads(expr)


def _checked(expr: ir.Expr) -> Iterator[tuple[ir.Expr, Interval]]:
    """The requirements of a check: differences and their intervals."""
    if isinstance(expr, ir.Call) and expr.name == "check":
        yield from _checked(expr.args[0])
    elif isinstance(expr, ir.Binary) and expr.op in ("and", "or"):
        for side in (expr.a, expr.b) if expr.op == "and" else (expr.a,):
            yield from _checked(side)
    elif isinstance(expr, ir.Compare) and expr.op in _HOLDS and expr.a.dtype.is_integer:
        yield ir.Binary("sub", expr.a, expr.b), _HOLDS[expr.op]


def _loads(expr: ir.Expr) -> bool:
    return holds(expr, ir.Load)


def _extreme(total: Poly, loops: Mapping[ir.Var, ir.Expr], sign: int) -> Poly:
    """The maximum of a sum over the loops around it, or the minimum."""
    for var, extent in reversed(tuple(loops.items())):
        coefficient, total = total.at(var), total.without(var)
        if coefficient * sign > 0:
            total = total.plus(_sum(extent).shifted(-1), coefficient)
    return total


def _unmet(own: Interval, limit: Interval) -> Interval:
    """The ends of a limit that an interval does not guarantee."""
    (low, high), (least, most) = limit, own
    if low is not None and least is not None and least >= low:
        low = None
    if high is not None and most is not None and most <= high:
        high = None
    return low, high


def _operands(expr: ir.Expr, limit: Interval) -> Iterator[tuple[ir.Expr, Interval]]:
    """Intervals of an operation's operands that keep it within an interval."""
    low, high = limit
    if isinstance(expr, ir.Select):
        yield from ((expr.a, limit), (expr.b, limit))
    elif not isinstance(expr, ir.Binary):
        return
    elif expr.op in ("min", "max"):
        yield from ((expr.a, limit), (expr.b, limit))
    elif expr.op in ("floormod", "and"):
        yield expr.a, limit
    elif expr.op in ("floordiv", "shr") and isinstance(expr.b, ir.Const):
        step = int(expr.b.value)
        step = 1 << step if expr.op == "shr" else step
        first = None if low is None else low * step
        yield expr.a, (first, None if high is None else high * step + step - 1)
