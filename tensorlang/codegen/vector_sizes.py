"""Split vectors into the sizes that a language has: 16, 8, 4 and 2 lanes.

    v: f32x32 = x[ramp(i, 1, 32)]       v_0: f32x16 = x[ramp(i, 1, 16)]
    y[ramp(i, 1, 32)] = v * w      ->   v_1: f32x16 = x[ramp(i + 16, 1, 16)]
                                        y[ramp(i, 1, 16)] = v_0 * splat(w, 16)
                                        y[ramp(i + 16, 1, 16)] = v_1 * splat(w, 16)

Operands of extracts, inserts and shuffles become variables, as C requires.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tensorlang.codegen.folding import add, mul
from tensorlang.codegen.names import Names
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Extract,
    For,
    Function,
    Insert,
    LaneReduce,
    Let,
    Load,
    Node,
    Ramp,
    Seq,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
    While,
    seq,
)
from tensorlang.ir.visit import rebuild, rewriter

SIZES: Final = (16, 8, 4, 2, 1)


def split_vectors(function: Function, names: Names) -> Function:
    """The function with all vectors of a size in `SIZES`."""
    return replace(function, body=_Splitter(names).visit(function.body))


def pieces(lanes: int) -> list[tuple[int, int]]:
    """First lane and size of each part of a vector with `lanes` lanes."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < lanes:
        size = next(size for size in SIZES if size <= lanes - start)
        found.append((start, size))
        start += size
    return found


@dataclass
class _Splitter:
    """Rewrites statements; `parts` maps split variables to their parts."""

    names: Names
    parts: dict[Var, list[Var]] = field(default_factory=dict)
    before: list[Stmt] = field(default_factory=list)

    def visit(self, stmt: Stmt) -> Stmt:
        """A statement, preceded by the lets that its vectors need."""
        if isinstance(stmt, Seq):
            return seq(*(self.visit(item) for item in stmt.stmts))
        outer, self.before = self.before, []
        made = self.statement(stmt)
        lets, self.before = self.before, outer
        return seq(*lets, *made)

    def statement(self, stmt: Stmt) -> list[Stmt]:
        """The statements that replace one."""
        match stmt:
            case Let() if stmt.var.dtype.lanes > 1:
                return self.let(stmt)
            case Store() if stmt.value.dtype.lanes > 1:
                return self.store(stmt)
            case For() | While():
                return [replace(stmt, body=self.visit(stmt.body))]
        return [rebuild(stmt, self.below)]

    @rewriter
    def below(self, node: Node) -> Node:
        """Rewrite a child of a statement: a statement or a scalar."""
        if isinstance(node, Stmt):
            return self.visit(node)
        return self.scalar(node)

    def let(self, stmt: Let) -> list[Stmt]:
        """A variable for each part that is not a variable already."""
        lanes = stmt.var.dtype.lanes
        made: list[Stmt] = []
        own: list[Var] = []
        for number, (start, size) in enumerate(pieces(lanes)):
            value = self.take(stmt.value, start, size)
            if isinstance(value, Var):
                own.append(value)
                continue
            var = stmt.var
            if size < lanes:
                var = self.names.var(f"{var.name}_{number}", value.dtype)
            own.append(var)
            made.append(Let(var, value))
        if own != [stmt.var]:
            self.parts[stmt.var] = own
        return made

    def store(self, stmt: Store) -> list[Stmt]:
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
    def scalar(self, node: Node) -> Node:
        """Rewrite the vectors in a scalar expression."""
        match node:
            case Extract():
                return self.lane(node.vector, node.lane)
            case LaneReduce():
                return self.reduced(node)
            case Node() if not isinstance(node, Buffer):
                return rebuild(node, self.scalar)
        return node

    def reduced(self, node: LaneReduce) -> Expr:
        """Combine halves while parts are equal, then fold the rest in order."""
        lanes = node.vector.dtype.lanes
        found = [self.take(node.vector, *piece) for piece in pieces(lanes)]
        while len(found) % 2 == 0 and len({part.dtype for part in found}) == 1:
            half = len(found) // 2
            pairs = zip(found[:half], found[half:], strict=True)
            found = [Binary(node.op, a, b) for a, b in pairs]
        folded = [
            LaneReduce(node.op, self.named(part)) if part.dtype.lanes > 1 else part
            for part in found
        ]
        whole = folded[0]
        for part in folded[1:]:
            whole = Binary(node.op, whole, part)
        return whole

    def named(self, vector: Expr) -> Expr:
        """Bind a vector, of any size, to a variable."""
        if isinstance(vector, Var):
            return vector
        var = self.names.var("lanes", vector.dtype)
        self.before.extend(self.let(Let(var, vector)))
        return var

    def lane(self, vector: Expr, lane: int) -> Expr:
        """One lane of a vector of any size."""
        if vector.dtype.lanes == 1:
            return self.scalar(vector)
        start, size = next(p for p in pieces(vector.dtype.lanes) if lane < sum(p))
        part = self.take(self.named(vector), start, size)
        return Extract(part, lane - start) if size > 1 else part

    @method_by_class
    def take(self, expr: Expr, start: int, size: int) -> Expr:
        """Part of a vector: `size` lanes from lane `start`, as `pieces` splits it."""

        @rewriter
        def visit(child: Node) -> Node:
            if isinstance(child, Expr) and child.dtype.lanes > 1:
                return self.take(child, start, size)
            return self.scalar(child)

        return rebuild(expr, visit)

    @take.register
    def _converted(self, expr: Cast | Bitcast, start: int, size: int) -> Expr:
        a = self.take(expr.a, start, size)
        return replace(expr, a=a, dtype=expr.dtype.vector(size))

    @take.register
    def _call(self, expr: Call, start: int, size: int) -> Expr:
        args = tuple(self.take(arg, start, size) for arg in expr.args)
        return replace(expr, args=args, dtype=expr.dtype.vector(size))

    @take.register
    def _var(self, expr: Var, start: int, size: int) -> Expr:
        if expr not in self.parts:
            return expr
        places = pieces(expr.dtype.lanes)
        return self.parts[expr][places.index((start, size))]

    @take.register
    def _splat(self, expr: Splat, start: int, size: int) -> Expr:
        del start
        value = self.scalar(expr.value)
        return value if size == 1 else Splat(value, size)

    @take.register
    def _ramp(self, expr: Ramp, start: int, size: int) -> Expr:
        base, stride = self.scalar(expr.base), self.scalar(expr.stride)
        first = add(base, mul(stride, Const(start, stride.dtype)))
        return first if size == 1 else Ramp(first, stride, size)

    @take.register
    def _load(self, expr: Load, start: int, size: int) -> Expr:
        (index,) = expr.indices
        mask = self.masked(expr.mask, start, size)
        return Load(expr.buffer, (self.take(index, start, size),), mask, expr.hints)

    def masked(self, mask: Expr | None, start: int, size: int) -> Expr | None:
        """A part of a mask, if there is one."""
        return None if mask is None else self.take(mask, start, size)

    @take.register
    def _insert(self, expr: Insert, start: int, size: int) -> Expr:
        vector = self.take(expr.vector, start, size)
        if not start <= expr.lane < start + size:
            return vector
        value = self.scalar(expr.value)
        if size == 1:
            return value
        return Insert(self.named(vector), expr.lane - start, value)

    @take.register
    def _shuffle(self, expr: Shuffle, start: int, size: int) -> Expr:
        known = tuple(
            self.named(vector) if vector.dtype.lanes > 1 else vector
            for vector in expr.vectors
        )
        found: list[tuple[Expr, int]] = []
        for lane in expr.lanes_taken[start : start + size]:
            picked = self.picked(known, lane)
            found.append(
                (picked.vector, picked.lane)
                if isinstance(picked, Extract)
                else (picked, 0)
            )
        if size == 1:
            ((vector, lane),) = found
            return Extract(vector, lane) if vector.dtype.lanes > 1 else vector
        sources = list(dict.fromkeys(vector for vector, _ in found))
        in_order = [lane for _, lane in found] == list(range(size))
        if len(sources) == 1 and in_order and sources[0].dtype.lanes == size:
            return sources[0]
        firsts: dict[Expr, int] = {}
        total = 0
        for source in sources:
            firsts[source] = total
            total += source.dtype.lanes
        taken = tuple(firsts[vector] + lane for vector, lane in found)
        return Shuffle(tuple(sources), taken)

    def picked(self, vectors: tuple[Expr, ...], lane: int) -> Expr:
        """One lane of concatenated vectors."""
        for vector in vectors:
            if lane < vector.dtype.lanes:
                return self.lane(vector, lane)
            lane -= vector.dtype.lanes
        raise AssertionError(f"no lane {lane}")
