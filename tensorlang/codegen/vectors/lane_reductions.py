"""Lane-wise partial results for reductions over vectorized loops.

    for k in range(K // 16):                    part = alloc(f32[16], scope="register")
        for v in vectorized(16):                for v in vectorized(16): part[v] = 0.0
            reduce(sum, s[i], x[k * 16 + v])    for k in range(K // 16):
                                          ->        for v in vectorized(16):
                                                        reduce(sum, part[v], x[...])
                                                reduce(sum, s[i], lane_reduce(...))

Where `s[i]` was set to the identity just before, it is set to the result instead.
Loops and conditions that the result's index depends on are interchanged outward first.
Loops longer than a vector are strip-mined, with a mask for a partial last step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tensorlang.codegen.folding import add, make, mul
from tensorlang.codegen.names import Names
from tensorlang.codegen.vectors.expressions import Lanes
from tensorlang.codegen.vectors.unroll import specialise
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import binders, free_vars, reads, writes
from tensorlang.ir.simplification.conditions import conjunction, conjuncts
from tensorlang.ir.visit import (
    rebuild_statements,
    replace_buffers,
    transform_statements,
    walk,
    walk_statements,
)


def reduce_lanes(function: ir.Function, names: Names, vector_bits: int) -> ir.Function:
    """The function without any `Reduce` whose index is uniform across lanes."""
    if not any(isinstance(stmt, ir.Reduce) for stmt in walk_statements(function.body)):
        return function
    body = _LaneReductions(names, vector_bits).visit(function.body)
    return replace(function, body=body)


@dataclass
class Partial:
    """A loop that accumulates partial results, with its prologue and epilogue."""

    before: tuple[ir.Stmt, ...]
    loop: ir.Stmt
    after: tuple[ir.Reduce | ir.Let | ir.Store, ...]

    def whole(self) -> ir.Stmt:
        """All statements in order."""
        return ir.seq(*self.before, self.loop, *self.after)

    @property
    def parts(self) -> tuple[ir.Buffer, ...]:
        """The buffers of partial results."""
        return tuple(s.buffer for s in self.before if isinstance(s, ir.Alloc))

    def goes_on(self, last: Partial) -> bool:
        """Whether this continues the reduction of the preceding one.

        So does the tail of a split loop, with as many lanes or fewer.
        """
        own, others = _folds(self.after), _folds(last.after)
        return own == others and all(
            a.dtype == b.dtype and _lanes(a) <= _lanes(b)
            for a, b in zip(self.parts, last.parts, strict=True)
        )

    def behind(self, last: Partial) -> Partial:
        """Both loops, sharing partial results and one final lane reduction."""
        shared = dict(zip(self.parts, last.parts, strict=True))
        loops = ir.seq(last.loop, replace_buffers(self.loop, shared))
        return Partial(last.before, loops, last.after)


@dataclass
class _LaneReductions:
    names: Names
    vector_bits: int

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement with its vectorized reductions rewritten."""
        return _whole(self.partial(stmt))

    def partial(self, stmt: ir.Stmt) -> ir.Stmt | Partial:
        """The statement, or its parts if an outer loop may still move in."""
        match stmt:
            case ir.Seq():
                return ir.seq(*map(_whole, _begun(self.sequence(stmt))))
            case ir.For(kind="vectorized"):
                return self.vectorized(replace(stmt, body=self.visit(stmt.body)))
            case ir.For(kind="serial"):
                inner = self.partial(stmt.body)
                if not isinstance(inner, Partial):
                    return replace(stmt, body=inner)
                if stmt.var in _places(inner.after):
                    return replace(stmt, body=inner.whole())
                loop = replace(stmt, body=inner.loop)
                return Partial(inner.before, loop, inner.after)
            case _:
                return rebuild_statements(stmt, self.visit)

    def sequence(self, stmt: ir.Seq) -> Iterable[ir.Stmt | Partial]:
        """The statements; consecutive parts of one reduction are joined."""
        last: ir.Stmt | Partial | None = None
        for item in map(self.partial, stmt.stmts):
            match last, item:
                case Partial(), Partial() if item.goes_on(last):
                    last = item.behind(last)
                    continue
            if last is not None:
                yield last
            last = item
        if last is not None:
            yield last

    def vectorized(self, loop: ir.For) -> ir.Stmt | Partial:
        """Rewrite one vectorized loop."""
        shared = _shared(loop)
        if not shared:
            return loop
        places = _variables(index for node in shared for index in node.indices)
        match loop.body:
            case ir.For(var=var, kind="serial" | "unrolled") as inner if (
                var in places and loop.var not in free_vars(inner.extent)
            ):
                swapped = replace(loop, body=inner.body)
                return replace(inner, body=self.visit(swapped))
            case ir.If(orelse=None) as inner if uniform(inner.cond, loop.var):
                outside = uniform(inner.cond, loop.var)
                kept = [c for c in conjuncts(inner.cond) if c not in outside]
                body = inner.then if not kept else ir.If(_all(kept), inner.then)
                return ir.If(_all(outside), self.visit(replace(loop, body=body)))
        if not self.possible(loop, shared, places):
            return replace(loop, kind="serial")
        return self.fold(loop)

    def possible(
        self, loop: ir.For, shared: list[ir.Reduce], places: set[ir.Var]
    ) -> bool:
        """Whether the results' indices are loop-invariant, and only reduced into."""
        if places & set(binders(loop)):
            return False
        states = {buffer for node in shared for buffer in node.buffers}
        inside = [n for n in walk(loop) if isinstance(n, (ir.Load, ir.Store))]
        return not any(node.buffer in states for node in inside)

    def fold(self, loop: ir.For) -> Partial:
        """The loop on partial results, with the final reduction across lanes."""
        loop, lanes = self.steps(loop)
        width = 1 << (lanes - 1).bit_length()
        before: list[ir.Stmt] = []
        after: list[ir.Reduce | ir.Let] = []
        changed: dict[ir.Reduce, ir.Reduce] = {}
        vector = loop
        while vector.kind != "vectorized":
            assert isinstance(vector.body, ir.For)
            vector = vector.body
        for node in dict.fromkeys(_shared(vector)):
            parts = tuple(self.part(buffer, width) for buffer in node.buffers)
            before += [*map(ir.Alloc, parts), self.start(node.reducer, parts, width)]
            changed[node] = replace(node, buffers=parts, indices=(vector.var,))
            after += self.finish(node, parts, width)
        return Partial(tuple(before), _replaced(loop, changed), tuple(after))

    def steps(self, loop: ir.For) -> tuple[ir.For, int]:
        """Strip-mine the loop to vector length if it is longer."""
        sizes = [
            value.dtype.bits
            for node in walk(loop)
            if isinstance(node, ir.Reduce)
            for value in node.values
        ]
        width = max(self.vector_bits // max(sizes), 2)
        extent = loop.extent
        if isinstance(extent, ir.Const) and 0 < int(extent.value) <= 4 * width:
            return loop, int(extent.value)
        var, kind = loop.var, loop.var.dtype
        step = self.names.var(f"{var.name}_step", kind)
        lane = self.names.var(f"{var.name}_lane", kind)
        position = add(mul(step, ir.Const(width, kind)), lane)
        body = specialise(loop.body, {var: position}, {})
        exact = isinstance(extent, ir.Const) and int(extent.value) % width == 0
        if not exact:
            body = ir.If(position < extent, body)
        count = make(
            "floordiv", add(extent, ir.Const(width - 1, kind)), ir.Const(width, kind)
        )
        inner = ir.For(lane, ir.Const(width, kind), "vectorized", body)
        return ir.For(step, count, "serial", inner), width

    def part(self, buffer: ir.Buffer, width: int) -> ir.Buffer:
        """A buffer for one partial result per lane."""
        name = self.names.fresh(f"{buffer.name}_lanes")
        return ir.Buffer(name, buffer.dtype, (ir.as_expr(width),), "register")

    def start(
        self, reducer: ir.Reducer, parts: tuple[ir.Buffer, ...], width: int
    ) -> ir.Stmt:
        """Initialise every lane to the identity."""
        lane = self.names.var("lane", ir.as_expr(0).dtype)
        stores = [
            ir.Store(part, (lane,), identity)
            for part, identity in zip(parts, reducer.identity, strict=True)
        ]
        return ir.For(lane, ir.as_expr(width), "vectorized", ir.seq(*stores))

    def finish(
        self, node: ir.Reduce, parts: tuple[ir.Buffer, ...], width: int
    ) -> list[ir.Reduce | ir.Let]:
        """Reduce the lanes, as a tree, and the result into its place."""
        every = ir.ramp(ir.as_expr(0), width)
        states: list[ir.Expr] = [part[every] for part in parts]
        match node.reducer.combine:
            case (ir.Binary(op=op, a=ir.Var(), b=ir.Var()),) if (
                op in ir.LANE_REDUCTIONS
            ):
                value = ir.LaneReduce(op, states[0])
                return [replace(node, values=(value,))]
        lets: list[ir.Reduce | ir.Let] = []
        while width > 1:
            states = [self.let(state, lets) for state in states]
            width //= 2
            left = [ir.subvector(state, 0, width) for state in states]
            right = [ir.subvector(state, width, width) for state in states]
            states = self.combined(node.reducer, left, right, width, lets)
        return [*lets, replace(node, values=tuple(states))]

    def combined(
        self,
        reducer: ir.Reducer,
        left: list[ir.Expr],
        right: list[ir.Expr],
        width: int,
        lets: list[ir.Reduce | ir.Let],
    ) -> list[ir.Expr]:
        """Apply the reducer to vectors of states."""
        pairs = zip(reducer.left + reducer.right, left + right, strict=True)
        lanes = Lanes(width, {var: self.let(value, lets) for var, value in pairs})
        return [ir.splat(lanes.over(part), width) for part in reducer.combine]

    def let(self, value: ir.Expr, lets: list[ir.Reduce | ir.Let]) -> ir.Expr:
        """Bind `value` to a fresh variable."""
        var = self.names.var("folded", value.dtype)
        lets.append(ir.Let(var, value))
        return var


def _begun(items: Iterable[ir.Stmt | Partial]) -> list[ir.Stmt | Partial]:
    """Statements in order, without first values that only those of lanes would join."""
    kept: list[ir.Stmt | Partial] = []
    for item in items:
        kept.append(_stored(item, kept) if isinstance(item, Partial) else item)
    return kept


def _stored(part: Partial, before: list[ir.Stmt | Partial]) -> Partial:
    """The parts, which store what the statements before set to the identity.

    These stores are removed from `before`.
    """
    inside = ir.seq(*part.before, part.loop)
    used = reads(inside) | writes(inside)
    first: dict[tuple[ir.Buffer, tuple[ir.Expr, ...]], ir.Store] = {}
    while before:
        match before[-1]:
            case ir.Store(value=ir.Const(), mask=None) as stmt:
                first.setdefault((stmt.buffer, stmt.indices), stmt)
                before.pop()
            case _:
                break
    after: list[ir.Reduce | ir.Let | ir.Store] = []
    for node in part.after:
        if isinstance(node, ir.Reduce) and not used.intersection(node.buffers):
            places = [(buffer, node.indices) for buffer in node.buffers]
            starts = [first[place] for place in places if place in first]
            if tuple(start.value for start in starts) == node.reducer.identity:
                for place in places:
                    del first[place]
                pairs = zip(node.buffers, node.values, strict=True)
                after += [ir.Store(buffer, node.indices, v) for buffer, v in pairs]
                continue
        after.append(node)
    before.extend(reversed(first.values()))
    return replace(part, after=tuple(after))


def _whole(item: ir.Stmt | Partial) -> ir.Stmt:
    return item.whole() if isinstance(item, Partial) else item


def _folds(after: Iterable[ir.Stmt]) -> list[tuple[object, ...]]:
    """The reducers, and the elements they reduce into."""
    found = [node for node in after if isinstance(node, ir.Reduce)]
    return [(node.reducer, node.buffers, node.indices) for node in found]


def _lanes(part: ir.Buffer) -> int:
    (extent,) = part.shape
    assert isinstance(extent, ir.Const)
    return int(extent.value)


def _shared(loop: ir.For) -> list[ir.Reduce]:
    """The reductions below a loop whose index does not depend on its variable."""
    dependent = {loop.var}
    for node in walk_statements(loop.body):
        if isinstance(node, ir.Let) and free_vars(node.value) & dependent:
            dependent.add(node.var)
    return [
        node
        for node in walk_statements(loop.body)
        if isinstance(node, ir.Reduce) and not _variables(node.indices) & dependent
    ]


def _variables(indices: Iterable[ir.Expr]) -> set[ir.Var]:
    return {var for index in indices for var in free_vars(index)}


def _places(after: Iterable[ir.Stmt]) -> set[ir.Var]:
    return _variables(
        index for node in after if isinstance(node, ir.Reduce) for index in node.indices
    )


def uniform(cond: ir.Expr, var: ir.Var) -> list[ir.Expr]:
    """The tests of a condition that do not depend on a variable."""
    return [test for test in conjuncts(cond) if var not in free_vars(test)]


def _all(tests: list[ir.Expr]) -> ir.Expr:
    joined = conjunction(tests)
    assert joined is not None
    return joined


def _replaced(loop: ir.For, changed: dict[ir.Reduce, ir.Reduce]) -> ir.For:
    def visit(stmt: ir.Stmt) -> ir.Stmt:
        return changed.get(stmt, stmt) if isinstance(stmt, ir.Reduce) else stmt

    body = transform_statements(loop.body, visit)
    return replace(loop, body=body)
