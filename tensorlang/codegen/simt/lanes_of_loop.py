"""Lanes of one loop: what they have in common, and where they are neighbours."""

from __future__ import annotations

from itertools import pairwise
from math import gcd

from tensorlang.codegen.blocks import conjunction
from tensorlang.codegen.folding import fold_node
from tensorlang.codegen.multiples import CHANGES, Multiples, multiple
from tensorlang.ir.bounds import Known
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    For,
    Node,
    Var,
    as_expr,
)
from tensorlang.ir.rules import Simplifier
from tensorlang.ir.visit import rebuild, rewriter, substitute


class LanesOfLoop:
    """The lanes of a vectorized loop.

    Attributes:
        lane: The loop's variable: a lane's number.
        count: How many lanes there are.
        multiples: Numbers that sizes are known to be multiples of.
        simple: Expressions, simplified by what is known of the program's integers.
        varying: The variables that differ between lanes.
    """

    def __init__(self, loop: For, multiples: Multiples, known: Known) -> None:
        self.lane = loop.var
        self.count = int(loop.extent.value) if isinstance(loop.extent, Const) else 0
        self.multiples = multiples
        self.simple = Simplifier(known).visit
        self.varying: set[Var] = {loop.var}

    def varies(self, node: Node) -> bool:
        """Whether a value differs between lanes."""
        return bool(free_vars(node) & self.varying)

    def at(self, expr: Expr, lane: int) -> Expr:
        """An expression as one lane sees it."""
        number = Const(lane, self.lane.dtype)

        @rewriter
        def visit(node: Node) -> Node:
            if node == self.lane:
                return number
            if isinstance(node, (Const, Buffer)):
                return node
            return fold_node(rebuild(node, visit))

        return self.simple(visit(expr))

    def neighbours(self, index: Expr) -> list[bool]:
        """Whether each lane but the first is one place further than that before it."""
        every = [self.at(index, lane) for lane in range(self.count)]
        return [self.simple(b - a) == as_expr(1) for a, b in pairwise(every)]

    def rises(self, index: Expr) -> bool:
        """Whether an index never falls from lane to lane."""
        every = [self.at(index, lane) for lane in range(self.count)]
        steps = [self.simple(b - a) for a, b in pairwise(every)]
        return all(isinstance(step, Const) and step.value >= 0 for step in steps)

    def is_same(self, cond: Expr) -> bool:
        """Whether lanes meet a condition all at once, for their places say so.

        They begin at a multiple of their number, and the bounds are such multiples.
        """
        match cond:
            case Binary(op="and", a=a, b=b):
                return self.is_same(a) and self.is_same(b)
            case Compare(op=op, a=a, b=Const(value=last)) if self.varies(a):
                if op not in CHANGES or free_vars(a) & self.varying != {self.lane}:
                    return False
                bound = int(last) + CHANGES[op]
                step = gcd(multiple(self.at(a, 0), self.multiples), bound)
                return step >= self.count and all(self.neighbours(a))
            case Compare():
                return not self.varies(cond)
        return False

    def in_all(self, cond: Expr) -> Expr:
        """A condition that holds where it does in every lane."""
        match cond:
            case Binary(op="and", a=a, b=b):
                return Binary("and", self.in_all(a), self.in_all(b))
            case Compare(op="lt" | "le", a=a, b=b) if not self.varies(b):
                if self.rises(a):
                    return self.at(cond, self.count - 1)
        tests = dict.fromkeys(self.at(cond, lane) for lane in range(self.count))
        together = conjunction(list(tests))
        assert together is not None
        return together

    def in_some(self, cond: Expr) -> Expr | None:
        """The first lane's condition, where it holds if it does in any lane."""
        match cond:
            case Binary(op="and", a=a, b=b):
                some, more = self.in_some(a), self.in_some(b)
                if some is None or more is None:
                    return None
                return Binary("and", some, more)
            case Compare(op="lt" | "le", a=a, b=b) if not self.varies(b):
                return self.at(cond, 0) if self.rises(a) else None
        return None if self.varies(cond) else cond

    def renumbered(self, expr: Expr, lane: Expr) -> Expr:
        """An expression of a lane, for a lane that has another number."""
        made: Expr = substitute(expr, {self.lane: lane})
        return made
