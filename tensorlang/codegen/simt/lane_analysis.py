"""Analysis of a vectorized loop's lanes: uniformity and contiguity."""

from __future__ import annotations

from itertools import pairwise
from math import gcd

from tensorlang.codegen.folding import fold_node
from tensorlang.codegen.multiples import CHANGES, Multiples, multiple
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.bounds import Known
from tensorlang.ir.simplification.conditions import conjunction
from tensorlang.ir.simplification.rules import Simplifier
from tensorlang.ir.visit import rebuild, rewriter, substitute


class LaneAnalysis:
    """The lanes of a vectorized loop."""

    def __init__(self, loop: ir.For, multiples: Multiples, known: Known) -> None:
        self.lane = loop.var  # loop's variable, the lane number
        # number of lanes
        self.count = int(loop.extent.value) if isinstance(loop.extent, ir.Const) else 0
        self.multiples = multiples  # known divisors of sizes
        # simplifies expressions by the known ranges
        self.simple = Simplifier(known).visit
        self.varying: set[ir.Var] = {loop.var}  # variables that differ between lanes

    def varies(self, node: ir.Node) -> bool:
        """Whether a value differs between lanes."""
        return bool(free_vars(node) & self.varying)

    def at(self, expr: ir.Expr, lane: int) -> ir.Expr:
        """An expression in one lane."""
        number = ir.Const(lane, self.lane.dtype)

        @rewriter
        def visit(node: ir.Node) -> ir.Node:
            if node == self.lane:
                return number
            if isinstance(node, (ir.Const, ir.Buffer)):
                return node
            return fold_node(rebuild(node, visit))

        return self.simple(visit(expr))

    def neighbours(self, index: ir.Expr) -> list[bool]:
        """For each lane but the first, whether its index is the previous one plus 1."""
        every = [self.at(index, lane) for lane in range(self.count)]
        return [self.simple(b - a) == ir.as_expr(1) for a, b in pairwise(every)]

    def rises(self, index: ir.Expr) -> bool:
        """Whether an index is non-decreasing across lanes."""
        every = [self.at(index, lane) for lane in range(self.count)]
        steps = [self.simple(b - a) for a, b in pairwise(every)]
        return all(isinstance(step, ir.Const) and step.value >= 0 for step in steps)

    def is_same(self, cond: ir.Expr) -> bool:
        """Whether a condition is uniform across lanes, by divisibility.

        The first index and the bounds are multiples of the number of lanes.
        """
        match cond:
            case ir.Binary(op="and", a=a, b=b):
                return self.is_same(a) and self.is_same(b)
            case ir.Compare(op=op, a=a, b=ir.Const(value=last)) if self.varies(a):
                if op not in CHANGES or free_vars(a) & self.varying != {self.lane}:
                    return False
                bound = int(last) + CHANGES[op]
                step = gcd(multiple(self.at(a, 0), self.multiples), bound)
                return step >= self.count and all(self.neighbours(a))
            case ir.Compare():
                return not self.varies(cond)
        return False

    def in_all(self, cond: ir.Expr) -> ir.Expr:
        """The condition that `cond` is true in all lanes."""
        match cond:
            case ir.Binary(op="and", a=a, b=b):
                return ir.Binary("and", self.in_all(a), self.in_all(b))
            case ir.Compare(op="lt" | "le", a=a, b=b) if not self.varies(b):
                if self.rises(a):
                    return self.at(cond, self.count - 1)
        tests = dict.fromkeys(self.at(cond, lane) for lane in range(self.count))
        together = conjunction(list(tests))
        assert together is not None
        return together

    def in_some(self, cond: ir.Expr) -> ir.Expr | None:
        """The condition that `cond` holds in any lane; None if unknown from lane 0."""
        match cond:
            case ir.Binary(op="and", a=a, b=b):
                some, more = self.in_some(a), self.in_some(b)
                if some is None or more is None:
                    return None
                return ir.Binary("and", some, more)
            case ir.Compare(op="lt" | "le", a=a, b=b) if not self.varies(b):
                return self.at(cond, 0) if self.rises(a) else None
        return None if self.varies(cond) else cond

    def renumbered(self, expr: ir.Expr, lane: ir.Expr) -> ir.Expr:
        """An expression with the lane number replaced."""
        return substitute(expr, {self.lane: lane})
