"""Simplification that preserves semantics: `simplify` and `simplify_function`.

Index arithmetic (i64) becomes a sum of terms, with divisions and comparisons resolved
if ranges allow; implied conditions are dropped; constants are folded like in the
interpreter. Float results keep their bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from operator import is_

from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import assume, decide
from tensorlang.ir.integers.known import Known, Range, counted
from tensorlang.ir.integers.polynomials import Poly, poly, term
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.simplification.folding import constant_of
from tensorlang.ir.simplification.rules import Simplifier
from tensorlang.ir.visit import holds, rebuild, substitute, walk


def simplify(expr: ir.Expr, ranges: Mapping[ir.Var, Range] | None = None) -> ir.Expr:
    """Simplify an expression, preserving its value for variables within `ranges`.

    Args:
        expr: Any expression; loads stay, with simplified indices.
        ranges: Inclusive bounds of variables, as in `tensorlang.ir.integers.bounds`.
    """
    return Simplifier(Known(ranges)).visit(expr)


def known_size(extent: ir.Expr, sizes: Mapping[str, int], unknown: int) -> int:
    """The value of an extent for given symbolic sizes; `unknown` if data-dependent."""
    known = free_vars(extent)
    given: dict[ir.Var, ir.Expr] = {
        var: ir.Const(sizes[var.name], var.dtype) for var in known if var.name in sizes
    }
    found = simplify(substitute(extent, given))
    return int(found.value) if isinstance(found, ir.Const) else unknown


def entry(func: ir.Function) -> Place:
    """The facts at a function's entry: its sizes."""
    return Place(Known(size_ranges(func)))


def simplify_function(func: ir.Function, place: Place | None = None) -> ir.Function:
    """Simplify a function's expressions and eliminate dead statements.

    Ranges of loop variables, axes and sizes, and conditions, are used in their scopes.
    A loop that runs once is replaced by its body (unless bound to a thread index);
    loops that never run, branches never taken and guards that always hold are removed.

    Args:
        func: The function.
        place: Its `entry`, if simplified repeatedly: results are reused.
    """
    body = (place or entry(func)).settled(func.body)
    return ir.Function(func.name, func.params, func.scalars, body)


class Place:
    """A place in the program: the facts that hold there, and their simplifier."""

    def __init__(self, known: Known, simplifier: Simplifier | None = None) -> None:
        self.known = known
        self._simplifier = simplifier or Simplifier(known)
        self._below: dict[Hashable, Place] = {}
        self._settled: dict[int, ir.Stmt] = {}

    def settled(self, stmt: ir.Stmt) -> ir.Stmt:
        """The simplified statement; an earlier result is returned unchanged."""
        if self._settled.get(id(stmt)) is stmt:
            return stmt
        made = _visit(stmt, self)
        self._settled[id(made)] = made
        return made

    def part(self, node: ir.Node) -> ir.Node:
        """A child of a statement, simplified; buffers and reducers are unchanged."""
        if isinstance(node, ir.Expr):
            return self.simple(node)
        return self.settled(node) if isinstance(node, ir.Stmt) else node

    def simple(self, expr: ir.Expr) -> ir.Expr:
        """The expression, simplified with the facts of this place."""
        return self._simplifier.visit(expr)

    def holds(self, cond: ir.Expr) -> bool | None:
        """Whether a condition is decided here, and how."""
        return decide(cond, self.known)

    def where(self, cond: ir.Expr, holds: bool = True) -> Place:
        """The inner place where a condition is true (or false)."""
        return self.inside(facts=tuple(assume(cond, self.known, holds)))

    def inside(
        self, ranges: Mapping[ir.Var, Range] | None = None, facts: tuple[Poly, ...] = ()
    ) -> Place:
        """The inner place with additional facts."""
        if not ranges and not facts:
            return self
        given = ranges or {}
        key = tuple(given.items()), tuple(frozenset(fact.items()) for fact in facts)
        found = self._below.get(key)
        if found is None:
            known = self.known.inside(given, facts)
            new = _named_by(facts, frozenset(given))
            found = Place(known, Simplifier(known, self._simplifier, new))
            self._below[key] = found
        return found


def _named_by(
    facts: tuple[Poly, ...], new: frozenset[ir.Var]
) -> frozenset[ir.Var] | None:
    """The variables with new facts; None if facts are not only about variables."""
    for factor in {part for fact in facts for product in fact for part in product}:
        named = free_vars(factor)
        if not named:
            return None
        new |= named
    return new


@by_class
def _visit(stmt: ir.Stmt, place: Place) -> ir.Stmt:
    """The simplified statement; an empty `Seq` if nothing remains."""
    return rebuild(stmt, place.part)


@_visit.register
def _(stmt: ir.Seq, place: Place) -> ir.Stmt:
    done: list[ir.Stmt] = []
    for inner in stmt.stmts:
        new = place.settled(inner)
        done.append(new)
        if isinstance(new, ir.Let) and new.var.dtype == i64:
            place = place.inside({new.var: (new.value, new.value)})
    return stmt if all(map(is_, done, stmt.stmts)) else ir.seq(done)


@_visit.register
def _(stmt: ir.For, place: Place) -> ir.Stmt:
    extent = place.simple(stmt.extent)
    low, high = place.known.interval(extent)
    if high is not None and high <= 0:
        return ir.Seq(())
    if low == high == 1 and stmt.kind != "bound":
        body = substitute(stmt.body, {stmt.var: ir.Const(0, stmt.var.dtype)})
        return place.settled(body)
    below = _below(stmt.var, extent, place)
    body = below.settled(stmt.body)
    if body == ir.Seq(()) and not _acts(extent, place):
        return body
    if extent is stmt.extent and body is stmt.body:
        return stmt
    return ir.For(stmt.var, extent, stmt.kind, body, stmt.thread)


def _below(var: ir.Var, extent: ir.Expr, place: Place) -> Place:
    """Inside a loop: its variable has its range, and the extent is at least 1.

    So are the factors of an extent that is a product of sizes.
    """
    reads = holds(extent, ir.Load)
    exact = var.dtype == i64 and not reads and place.known.exact(extent)
    last = poly(extent).shifted(-1)
    least = (
        () if not exact or last.value is not None else (last, *_factors(last, place))
    )
    return place.inside({var: counted(extent)}, least)


def _factors(last: Poly, place: Place) -> Iterator[Poly]:
    """The factors of a product less 1, less 1 each, if none can be negative."""
    rest = last.shifted(1)
    if len(rest) != 1:
        return
    ((product, times),) = rest.items()
    lows = [place.known.interval(factor)[0] for factor in product]
    if (
        times > 0
        and len(product) > 1
        and all(low is not None and low >= 0 for low in lows)
    ):
        yield from (term(factor).shifted(-1) for factor in dict.fromkeys(product))


@_visit.register
def _(stmt: ir.While, place: Place) -> ir.Stmt:
    cond = place.simple(stmt.cond)
    if place.holds(cond) is False:
        return ir.Seq(())
    body = place.where(cond).settled(stmt.body)
    return ir.While(cond, body)


@_visit.register
def _(stmt: ir.If, place: Place) -> ir.Stmt:
    cond = place.simple(stmt.cond)
    settled = place.holds(cond)
    if settled is not None:
        taken = stmt.then if settled else stmt.orelse
        return ir.Seq(()) if taken is None else place.settled(taken)
    then = place.where(cond).settled(stmt.then)
    orelse = stmt.orelse
    if orelse is not None:
        orelse = place.where(cond, holds=False).settled(orelse)
    if orelse == ir.Seq(()):
        orelse = None
    if then == ir.Seq(()) and orelse is None and not _acts(cond, place):
        return then
    return ir.If(cond, then, orelse)


def _acts(cond: ir.Expr, place: Place) -> bool:
    """Whether evaluating it may fault, which must be preserved."""
    risky = ("floordiv", "floormod")
    return any(
        isinstance(part, (ir.Load, ir.Call))
        or (
            isinstance(part, ir.Binary)
            and part.op in risky
            and not place.holds(part.b > 0)
        )
        for part in walk(cond)
    )


@_visit.register
def _(stmt: ir.Block, place: Place) -> ir.Stmt:
    where = None if stmt.where is None else place.simple(stmt.where)
    settled = None if where is None else place.holds(where)
    if settled is False:
        return ir.Seq(())
    axes = tuple(
        ir.Axis(
            axis.var, axis.kind, place.simple(axis.extent), place.simple(axis.value)
        )
        for axis in stmt.axes
    )
    below = place
    for axis in axes:
        below = _below(axis.var, axis.extent, below)
    init = None if stmt.init is None else below.settled(stmt.init)
    body = below.settled(stmt.body)
    where = None if settled else where
    return replace(stmt, axes=axes, body=body, where=where, init=init)


@_visit.register
def _(stmt: ir.Store, place: Place) -> ir.Stmt:
    made: ir.Store = rebuild(stmt, place.part)
    if made.mask is not None and place.holds(made.mask):
        return replace(made, mask=None)
    return made


@_visit.register
def _(stmt: ir.Evaluate, place: Place) -> ir.Stmt:
    expr = place.simple(stmt.expr)
    if isinstance(expr, ir.Call) and expr.name == "check":
        passed = constant_of(expr.args[0])
        if passed is not None and passed.value:
            return ir.Seq(())
    return ir.Evaluate(expr)
