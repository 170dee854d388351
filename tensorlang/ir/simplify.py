"""Fewer operations, the same meaning: `simplify` and `simplify_function`.

Index arithmetic (i64) becomes a sum of terms, its divisions and comparisons are solved
where ranges allow; conditions lose what follows from the rest; constants are folded as
the interpreter computes them. Floats keep their bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import singledispatch

from tensorlang.ir.affine import Poly, add, constant, poly, value_of
from tensorlang.ir.bounds import assume, decide
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.folding import constant_of
from tensorlang.ir.known import Known, Range, counted
from tensorlang.ir.nodes import (
    Axis,
    Binary,
    Block,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Node,
    Reducer,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    seq,
)
from tensorlang.ir.rules import Simplifier
from tensorlang.ir.size_bounds import size_ranges
from tensorlang.ir.visit import rebuild, substitute, walk


def simplify(expr: Expr, ranges: Mapping[Var, Range] | None = None) -> Expr:
    """`expr` with the same value for all variables within `ranges`.

    Args:
        expr: any expression; loads stay, their indices are simplified.
        ranges: inclusive ends of variables, as in `tensorlang.ir.bounds`.
    """
    return Simplifier(Known(ranges)).visit(expr)


def known_size(extent: Expr, sizes: Mapping[str, int], unknown: int) -> int:
    """The value of an extent for given symbolic sizes; `unknown` where it is data."""
    known = free_vars(extent)
    given: dict[Var, Expr] = {
        var: Const(sizes[var.name], var.dtype) for var in known if var.name in sizes
    }
    found = simplify(substitute(extent, given))
    return int(found.value) if isinstance(found, Const) else unknown


def entry(func: Function) -> Place:
    """What is known where a function begins: its sizes."""
    return Place(Known(size_ranges(func)))


def simplify_function(func: Function, place: Place | None = None) -> Function:
    """`func` with its expressions simplified and its dead statements gone.

    What is known of loop variables, axes, sizes and conditions is used below them. A
    loop that runs once is its body (unless it is bound to a thread index); one that
    never runs, a branch never taken and a guard always true are gone.

    Args:
        func: The function.
        place: Its `entry`, where it is simplified more than once: what was found out
            is used again.
    """
    body = _visit(func.body, place or entry(func))
    return Function(func.name, func.params, func.scalars, body)


class Place:
    """A place in the program: what is known there, and a simplifier that knows it."""

    def __init__(self, known: Known, simplifier: Simplifier | None = None) -> None:
        self.known = known
        self._simplifier = simplifier or Simplifier(known)
        self._below: dict[Hashable, Place] = {}

    def simple(self, expr: Expr) -> Expr:
        """The expression, simplified here."""
        return self._simplifier.visit(expr)

    def holds(self, cond: Expr) -> bool | None:
        """Whether a condition is settled here."""
        return decide(cond, self.known)

    def where(self, cond: Expr, holds: bool = True) -> Place:
        """The place below, where a condition is true (or false)."""
        return self.inside(facts=tuple(assume(cond, self.known, holds)))

    def inside(
        self, ranges: Mapping[Var, Range] | None = None, facts: tuple[Poly, ...] = ()
    ) -> Place:
        """The place below, where more is known."""
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


def _named_by(facts: tuple[Poly, ...], new: frozenset[Var]) -> frozenset[Var] | None:
    """The variables of which more is known; None where it is not of variables alone."""
    for factor in {factor for fact in facts for term in fact for factor in term}:
        named = free_vars(factor)
        if not named:
            return None
        new |= named
    return new


@singledispatch
def _visit(stmt: Stmt, place: Place) -> Stmt:
    """The statement, simplified; an empty `Seq` where nothing is left to do."""

    def change(part: Node) -> Node:
        if isinstance(part, Expr):
            return place.simple(part)
        if isinstance(part, (Buffer, Reducer)):
            return part
        return _visit(part, place) if isinstance(part, Stmt) else part

    return rebuild(stmt, change)


@_visit.register
def _(stmt: Seq, place: Place) -> Stmt:
    done: list[Stmt] = []
    for inner in stmt.stmts:
        new = _visit(inner, place)
        done.append(new)
        if isinstance(new, Let) and new.var.dtype == i64:
            place = place.inside({new.var: (new.value, new.value)})
    return seq(done)


@_visit.register
def _(stmt: For, place: Place) -> Stmt:
    extent = place.simple(stmt.extent)
    low, high = place.known.interval(extent)
    if high is not None and high <= 0:
        return Seq(())
    if low == high == 1 and stmt.kind != "bound":
        body = substitute(stmt.body, {stmt.var: Const(0, stmt.var.dtype)})
        return _visit(body, place)
    below = _below(stmt.var, extent, place)
    body = _visit(stmt.body, below)
    if body == Seq(()) and not _acts(extent):
        return body
    return For(stmt.var, extent, stmt.kind, body, stmt.thread)


def _below(var: Var, extent: Expr, place: Place) -> Place:
    """Inside a loop: its variable has its range, and the extent is at least 1."""
    reads = any(isinstance(part, Load) for part in walk(extent))
    exact = var.dtype == i64 and not reads and place.known.exact(extent)
    last = add(poly(extent), constant(1), -1)
    least = () if not exact or value_of(last) is not None else (last,)
    return place.inside({var: counted(extent)}, least)


@_visit.register
def _(stmt: While, place: Place) -> Stmt:
    cond = place.simple(stmt.cond)
    if place.holds(cond) is False:
        return Seq(())
    body = _visit(stmt.body, place.where(cond))
    return While(cond, body)


@_visit.register
def _(stmt: If, place: Place) -> Stmt:
    cond = place.simple(stmt.cond)
    settled = place.holds(cond)
    if settled is not None:
        taken = stmt.then if settled else stmt.orelse
        return Seq(()) if taken is None else _visit(taken, place)
    then = _visit(stmt.then, place.where(cond))
    orelse = stmt.orelse
    if orelse is not None:
        orelse = _visit(orelse, place.where(cond, holds=False))
    if orelse == Seq(()):
        orelse = None
    if then == Seq(()) and orelse is None and not _acts(cond):
        return then
    return If(cond, then, orelse)


def _acts(cond: Expr) -> bool:
    """Whether evaluating it may be a fault, which has to stay."""
    risky = ("floordiv", "floormod")
    return any(
        isinstance(part, (Load, Call))
        or (isinstance(part, Binary) and part.op in risky)
        for part in walk(cond)
    )


@_visit.register
def _(stmt: Block, place: Place) -> Stmt:
    where = None if stmt.where is None else place.simple(stmt.where)
    settled = None if where is None else place.holds(where)
    if settled is False:
        return Seq(())
    axes = tuple(
        Axis(axis.var, axis.kind, place.simple(axis.extent), place.simple(axis.value))
        for axis in stmt.axes
    )
    below = place
    for axis in axes:
        below = _below(axis.var, axis.extent, below)
    init = None if stmt.init is None else _visit(stmt.init, below)
    body = _visit(stmt.body, below)
    where = None if settled else where
    return replace(stmt, axes=axes, body=body, where=where, init=init)


@_visit.register
def _(stmt: Store, place: Place) -> Stmt:
    indices = tuple(place.simple(index) for index in stmt.indices)
    mask = None if stmt.mask is None else place.simple(stmt.mask)
    if mask is not None and place.holds(mask):
        mask = None
    return Store(stmt.buffer, indices, place.simple(stmt.value), mask, stmt.hints)


@_visit.register
def _(stmt: Evaluate, place: Place) -> Stmt:
    expr = place.simple(stmt.expr)
    if isinstance(expr, Call) and expr.name == "check":
        passed = constant_of(expr.args[0])
        if passed is not None and passed.value:
            return Seq(())
    return Evaluate(expr)
