"""Split vectors into the sizes that a language has: 16, 8, 4 and 2 lanes.

    v: f32x32 = x[ramp(i, 1, 32)]       v_0: f32x16 = x[ramp(i, 1, 16)]
    y[ramp(i, 1, 32)] = v * w      ->   v_1: f32x16 = x[ramp(i + 16, 1, 16)]
                                        y[ramp(i, 1, 16)] = v_0 * splat(w, 16)
                                        y[ramp(i + 16, 1, 16)] = v_1 * splat(w, 16)

Operands of extracts, inserts and shuffles become variables, as C requires.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from tensorlang.codegen.folding import add, mul
from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.visit import rebuild, rewriter

SIZES: Final = (16, 8, 4, 2, 1)


def split_vectors(function: ir.Function, names: Names) -> ir.Function:
    """The function with all vectors of a size in `SIZES`."""
    return replace(function, body=_Splitter(names).visit(function.body))


@cache
def pieces(lanes: int) -> tuple[tuple[int, int], ...]:
    """First lane and size of each part of a vector with `lanes` lanes."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < lanes:
        size = next(size for size in SIZES if size <= lanes - start)
        found.append((start, size))
        start += size
    return tuple(found)


@dataclass
class _Splitter:
    """Rewrites statements; `parts` maps split variables to their parts."""

    names: Names
    parts: dict[ir.Var, list[ir.Var]] = field(default_factory=dict)
    before: list[ir.Stmt] = field(default_factory=list)

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement, preceded by the lets that its vectors need."""
        if isinstance(stmt, ir.Seq):
            return ir.seq(*(self.visit(item) for item in stmt.stmts))
        outer, self.before = self.before, []
        made = self.statement(stmt)
        lets, self.before = self.before, outer
        return ir.seq(*lets, *made)

    def statement(self, stmt: ir.Stmt) -> list[ir.Stmt]:
        """The statements that replace one."""
        match stmt:
            case ir.Let() if stmt.var.dtype.lanes > 1:
                return self.let(stmt)
            case ir.Store() if stmt.value.dtype.lanes > 1:
                return self.store(stmt)
            case ir.For() | ir.While():
                return [replace(stmt, body=self.visit(stmt.body))]
        return [rebuild(stmt, self.below)]

    @rewriter
    def below(self, node: ir.Node) -> ir.Node:
        """Rewrite a child of a statement: a statement or a scalar."""
        if isinstance(node, ir.Stmt):
            return self.visit(node)
        return self.scalar(node)

    def let(self, stmt: ir.Let) -> list[ir.Stmt]:
        """A variable for each part that is not a variable already."""
        lanes = stmt.var.dtype.lanes
        made: list[ir.Stmt] = []
        own: list[ir.Var] = []
        for number, (start, size) in enumerate(pieces(lanes)):
            value = self.take(stmt.value, start, size)
            if isinstance(value, ir.Var):
                own.append(value)
                continue
            var = stmt.var
            if size < lanes:
                var = self.names.var(f"{var.name}_v{number}", value.dtype)
            own.append(var)
            made.append(ir.Let(var, value))
        if own != [stmt.var]:
            self.parts[stmt.var] = own
        return made

    def store(self, stmt: ir.Store) -> list[ir.Stmt]:
        (index,) = stmt.indices
        return [
            replace(
                stmt,
                indices=(self.take(index, start, size),),
                value=self.take(stmt.value, start, size),
                mask=self.masked(stmt.mask, start, size),
            )
            for start, size in pieces(stmt.value.dtype.lanes)
        ]

    @rewriter
    def scalar(self, node: ir.Node) -> ir.Node:
        """Rewrite the vectors in a scalar expression."""
        match node:
            case ir.Extract():
                return self.lane(node.vector, node.lane)
            case ir.LaneReduce():
                return self.reduced(node)
            case ir.Node() if not isinstance(node, ir.Buffer):
                return rebuild(node, self.scalar)
        return node

    def reduced(self, node: ir.LaneReduce) -> ir.Expr:
        """Combine halves while parts are equal, then fold the rest in order."""
        lanes = node.vector.dtype.lanes
        found = [self.take(node.vector, *piece) for piece in pieces(lanes)]
        while len(found) % 2 == 0 and len({part.dtype for part in found}) == 1:
            half = len(found) // 2
            pairs = zip(found[:half], found[half:], strict=True)
            found = [ir.Binary(node.op, a, b) for a, b in pairs]
        folded = [
            ir.LaneReduce(node.op, self.named(part)) if part.dtype.lanes > 1 else part
            for part in found
        ]
        whole = folded[0]
        for part in folded[1:]:
            whole = ir.Binary(node.op, whole, part)
        return whole

    def named(self, vector: ir.Expr) -> ir.Expr:
        """Bind a vector, of any size, to a variable."""
        if isinstance(vector, ir.Var):
            return vector
        var = self.names.var("lanes", vector.dtype)
        self.before.extend(self.let(ir.Let(var, vector)))
        return var

    def lane(self, vector: ir.Expr, lane: int) -> ir.Expr:
        """One lane of a vector of any size."""
        if vector.dtype.lanes == 1:
            return self.scalar(vector)
        start, size = next(p for p in pieces(vector.dtype.lanes) if lane < sum(p))
        part = self.take(self.named(vector), start, size)
        return ir.Extract(part, lane - start) if size > 1 else part

    @method_by_class
    def take(self, expr: ir.Expr, start: int, size: int) -> ir.Expr:
        """Part of a vector: `size` lanes from lane `start`, as `pieces` splits it."""

        @rewriter
        def visit(child: ir.Node) -> ir.Node:
            if isinstance(child, ir.Expr) and child.dtype.lanes > 1:
                return self.take(child, start, size)
            return self.scalar(child)

        return rebuild(expr, visit)

    @take.register
    def _converted(self, expr: ir.Cast | ir.Bitcast, start: int, size: int) -> ir.Expr:
        a = self.take(expr.a, start, size)
        return replace(expr, a=a, dtype=expr.dtype.vector(size))

    @take.register
    def _call(self, expr: ir.Call, start: int, size: int) -> ir.Expr:
        args = tuple(self.take(arg, start, size) for arg in expr.args)
        return replace(expr, args=args, dtype=expr.dtype.vector(size))

    @take.register
    def _var(self, expr: ir.Var, start: int, size: int) -> ir.Expr:
        if expr not in self.parts:
            return expr
        places = pieces(expr.dtype.lanes)
        return self.parts[expr][places.index((start, size))]

    @take.register
    def _splat(self, expr: ir.Splat, _start: int, size: int) -> ir.Expr:
        value = self.scalar(expr.value)
        return value if size == 1 else ir.Splat(value, size)

    @take.register
    def _ramp(self, expr: ir.Ramp, start: int, size: int) -> ir.Expr:
        base, stride = self.scalar(expr.base), self.scalar(expr.stride)
        first = add(base, mul(stride, ir.Const(start, stride.dtype)))
        return first if size == 1 else ir.Ramp(first, stride, size)

    @take.register
    def _load(self, expr: ir.Load, start: int, size: int) -> ir.Expr:
        (index,) = expr.indices
        mask = self.masked(expr.mask, start, size)
        return ir.Load(expr.buffer, (self.take(index, start, size),), mask, expr.hints)

    def masked(self, mask: ir.Expr | None, start: int, size: int) -> ir.Expr | None:
        """A part of a mask, if there is one."""
        return None if mask is None else self.take(mask, start, size)

    @take.register
    def _insert(self, expr: ir.Insert, start: int, size: int) -> ir.Expr:
        vector = self.take(expr.vector, start, size)
        if not start <= expr.lane < start + size:
            return vector
        value = self.scalar(expr.value)
        if size == 1:
            return value
        return ir.Insert(self.named(vector), expr.lane - start, value)

    @take.register
    def _shuffle(self, expr: ir.Shuffle, start: int, size: int) -> ir.Expr:
        known = tuple(
            self.named(vector) if vector.dtype.lanes > 1 else vector
            for vector in expr.vectors
        )
        found: list[tuple[ir.Expr, int]] = []
        for lane in expr.lanes_taken[start : start + size]:
            picked = self.picked(known, lane)
            found.append(
                (picked.vector, picked.lane)
                if isinstance(picked, ir.Extract)
                else (picked, 0)
            )
        if size == 1:
            ((vector, lane),) = found
            return ir.Extract(vector, lane) if vector.dtype.lanes > 1 else vector
        sources = list(dict.fromkeys(vector for vector, _ in found))
        in_order = [lane for _, lane in found] == list(range(size))
        if len(sources) == 1 and in_order and sources[0].dtype.lanes == size:
            return sources[0]
        firsts: dict[ir.Expr, int] = {}
        total = 0
        for source in sources:
            firsts[source] = total
            total += source.dtype.lanes
        taken = tuple(firsts[vector] + lane for vector, lane in found)
        return ir.Shuffle(tuple(sources), taken)

    def picked(self, vectors: tuple[ir.Expr, ...], lane: int) -> ir.Expr:
        """One lane of concatenated vectors."""
        for vector in vectors:
            if lane < vector.dtype.lanes:
                return self.lane(vector, lane)
            lane -= vector.dtype.lanes
        raise AssertionError(f"no lane {lane}")
