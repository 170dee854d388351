"""Divisions by an argument, as products with its reciprocal in two doubles.

                                         high + low = 1 / d
    for c in unrolled(4):        ->      for c in unrolled(4):
        y[c] = x[c] / d                      y[c] = f32(fma(x[c], high, x[c] * low))

A division of f32 is a dozen instructions and a branch to a slow path; this is two
conversions and two operations, before a condition that may discard the quotient.

The result has the same bits. `high + low` is `1 / d` to a hundred bits, so the sum is
the quotient rounded to 53 bits. Rounding that to 24 bits gives the same as rounding
once: the quotient of two numbers of 24 bits either has few bits, or differs from every
number of 25 bits by 2^-49 of itself (Figueroa, "When is double rounding innocuous?",
1995). `high` is smaller in magnitude than `1 / d`, so `low` has its sign: signed zeros
and infinities stay what they are. For divisors without a finite reciprocal, both are
`1 / d`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeGuard

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.host import is_private
from tensorlang.codegen.simt.threads import has_bound
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import f32, f64
from tensorlang.ir.natives import fma, isnan
from tensorlang.ir.visit import (
    children,
    holds,
    nodes_of,
    rebuild,
    rebuild_statements,
    rewriter,
    transform_statements,
)
from tensorlang.machine.gpus import gpu_of
from tensorlang.targets import Target

_REPEATED: Final = 4  # divisions of a thread that are worth a reciprocal
_BELOW: Final = 1.0 - 2.0**-50  # more than the rounding of a reciprocal in f64


def multiply_by_reciprocals(
    function: ir.Function, names: Names, target: Target
) -> ir.Function:
    """The function with repeated divisions by an argument, in f32, as products.

    It is unchanged for GPUs whose doubles are slower than half the rate of singles.
    """
    gpu = gpu_of(target)
    slow = gpu is None or 2 * gpu.doubles < gpu.singles
    if slow or all(scalar.dtype != f32 for scalar in function.scalars):
        return function

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.For) and stmt.kind == "bound":
            if has_bound(stmt.body):
                return replace(stmt, body=visit(stmt.body))
            return replace(stmt, body=_in_thread(stmt.body, function.scalars, names))
        return rebuild_statements(stmt, visit)

    return replace(function, body=visit(function.body))


def _in_thread(body: ir.Stmt, scalars: Sequence[ir.Var], names: Names) -> ir.Stmt:
    """A thread's body, preceded by the reciprocals of repeated divisors."""
    counts = Counter[ir.Expr]()
    for divisor, times in _divisors(body, 1):
        if free_vars(divisor) and free_vars(divisor) <= set(scalars):
            counts[divisor] += 0 if holds(divisor, ir.Load) else times
    chosen = [divisor for divisor, times in counts.items() if times >= _REPEATED]
    found = {divisor: _reciprocal(divisor, names) for divisor in chosen}

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if not isinstance(stmt, (ir.Let, ir.Store)):
            return stmt
        quotients: list[ir.Let] = []

        @rewriter
        def divided(node: ir.Node) -> ir.Node:
            if isinstance(node, ir.Buffer):
                return node
            if not _divides(node) or node.b not in found:
                return rebuild(node, divided)
            _, _, high, _, low = found[node.b]
            x = ir.Cast(f64, divided(node.a))
            made = ir.Cast(f32, fma(x, high.var, x * low.var))
            if not _is_held(node.a):
                return made
            quotients.append(ir.Let(names.var("quotient", f32), made))
            return quotients[-1].var

        changed = rebuild(stmt, divided)
        return ir.seq(*quotients, changed)

    lets = chain.from_iterable(found.values())
    return ir.seq(*lets, transform_statements(body, visit)) if found else body


def _is_held(dividend: ir.Expr) -> bool:
    """Whether an operand may be evaluated whatever a condition around it says."""
    return all(is_private(load.buffer) for load in nodes_of(dividend, ir.Load))


def _divisors(node: ir.Node, times: int) -> Iterator[tuple[ir.Expr, int]]:
    """The divisors of f32 values, and how often a thread divides by each."""
    if isinstance(node, ir.For):
        extent = node.extent
        times *= int(extent.value) if isinstance(extent, ir.Const) else _REPEATED
    elif _divides(node):
        yield node.b, times
    for child in children(node):
        yield from _divisors(child, times)


def _divides(node: ir.Node) -> TypeGuard[ir.Binary]:
    return isinstance(node, ir.Binary) and node.op == "div" and node.dtype == f32


def _reciprocal(divisor: ir.Expr, names: Names) -> list[ir.Let]:
    """The steps to a divisor's reciprocal: its third and last are `high` and `low`."""
    wide = ir.Let(names.var("divisor", f64), ir.Cast(f64, divisor))
    whole = ir.Let(names.var("reciprocal", f64), ir.Const(1.0, f64) / wide.var)
    high = ir.Let(names.var("high", f64), whole.var * ir.Const(_BELOW, f64))
    left = ir.Let(names.var("left", f64), fma(-wide.var, high.var, ir.Const(1.0, f64)))
    part = ir.select(isnan(left.var), whole.var, left.var * whole.var)
    return [wide, whole, high, left, ir.Let(names.var("low", f64), part)]
