"""Turn vectorized loops into vector expressions, and conditions on lanes into masks.

    for v in vectorized(16):          y[ramp(i * 16, 1, 16)] = x[ramp(i * 16, 1, 16)]
        y[i * 16 + v] = x[i * 16 + v]

Inner loops are kept, lets become vectors, and buffers allocated inside get the lane as
innermost dimension. Long loops are strip-mined to one vector register. A body that
cannot run in lockstep (atomic update, while loop, inner vector) stays serial.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tensorlang.codegen.folding import make, mul, sub
from tensorlang.codegen.multiples import multiple
from tensorlang.codegen.names import Names
from tensorlang.codegen.vectors.expressions import Lanes, NotVectorizable, both
from tensorlang.codegen.vectors.unroll import renamed
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.integers.bounds import Known, counted, ranges_in
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.visit import substitute, transform_statements, walk

MAX_LANES: Final = 64


def vectorize(function: ir.Function, names: Names, vector_bits: int) -> ir.Function:
    """The function with its vectorized loops replaced by vector code."""
    ranges = ranges_in(function.body, size_ranges(function))
    state = _Vectorizer(names, vector_bits, Known(ranges))
    return transform_statements(function, state.visit)


@dataclass
class _Vectorizer:
    names: Names
    vector_bits: int
    known: Known

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """Rewrite bottom-up: of two nested vectorized loops the inner one is kept."""
        if not isinstance(stmt, ir.For) or stmt.kind != "vectorized":
            return stmt
        try:
            return self.loop(stmt)
        except NotVectorizable:
            return replace(stmt, kind="serial")

    def loop(self, loop: ir.For) -> ir.Stmt:
        """Vectorize a loop, at once or in steps with a masked remainder."""
        extent = loop.extent
        if isinstance(extent, ir.Const) and 0 < int(extent.value) <= MAX_LANES:
            return self.lanes(
                loop, ir.Const(0, loop.var.dtype), int(extent.value), None
            )
        if isinstance(extent, ir.Const) and extent.value <= 0:
            return ir.Seq(())
        return self.steps(loop, self.width(loop))

    def width(self, loop: ir.For) -> int:
        """Lanes of a vector register, for the widest type that the loop stores."""
        sizes = [n.value.dtype.bits for n in walk(loop) if isinstance(n, ir.Store)]
        return max(self.vector_bits // max(sizes, default=32), 1)

    def steps(self, loop: ir.For, width: int) -> ir.Stmt:
        """`extent // width` full vectors, then a masked one for the remainder."""
        var, kind = loop.var, loop.var.dtype
        lanes = ir.Const(width, kind)
        whole = make("floordiv", loop.extent, lanes)
        outer = self.names.var(f"{var.name}_step", kind)
        self.known.learn(outer, counted(whole))
        main = self.lanes(loop, mul(outer, lanes), width, None)
        done = mul(whole, lanes)
        rest = sub(loop.extent, done)
        if isinstance(rest, ir.Const):
            tail = (
                []
                if rest.value == 0
                else [self.lanes(loop, done, int(rest.value), None)]
            )
        else:
            tail = [
                ir.If(rest > ir.Const(0, kind), self.lanes(loop, done, width, rest))
            ]
        copies = [renamed(stmt, self.names) for stmt in tail]
        return ir.seq(ir.For(outer, whole, "serial", main), *copies)

    def lanes(
        self, loop: ir.For, start: ir.Expr, count: int, rest: ir.Expr | None
    ) -> ir.Stmt:
        """The body for lanes `start .. start + count - 1`, `rest` of them active."""
        if count == 1:
            body = substitute(loop.body, {loop.var: start})
            return body if rest is None else ir.If(rest > ir.Const(0, rest.dtype), body)
        ramp = ir.ramp(start, count)
        state = Lanes(count, {loop.var: ramp}, known=self.known)
        if rest is not None:
            low = ir.ramp(ir.Const(0, start.dtype), count)
            state.mask = replace(state, values={loop.var: low}).over(loop.var < rest)
        return _Body(state, self.names).run(loop.body)


class _Body:
    """Rewrites the statements of a vectorized body, all lanes in lockstep."""

    def __init__(self, lanes: Lanes, names: Names) -> None:
        self.lanes = lanes
        self.names = names

    @method_by_class
    def run(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement for all lanes."""
        del stmt
        raise NotVectorizable

    @run.register
    def _seq(self, stmt: ir.Seq) -> ir.Stmt:
        return ir.seq(*(self.run(item) for item in stmt.stmts))

    @run.register
    def _alloc(self, stmt: ir.Alloc) -> ir.Stmt:
        buffer = stmt.buffer
        (extent,) = buffer.shape
        wide = replace(buffer, shape=(mul(extent, ir.as_expr(self.lanes.count)),))
        self.lanes.tiles[buffer] = wide
        return ir.Alloc(wide)

    @run.register
    def _let(self, stmt: ir.Let) -> ir.Stmt:
        value = self.lanes.over(stmt.value)
        if isinstance(value, ir.Ramp):
            base = self.names.var(f"{stmt.var.name}_base", stmt.var.dtype)
            self.lanes.values[stmt.var] = ir.Ramp(base, value.stride, value.lanes)
            self.lanes.multiples[base] = multiple(value.base, self.lanes.multiples)
            self.lanes.known.learn(base, (value.base, value.base))
            return ir.Let(base, value.base)
        made = ir.Var(stmt.var.name, value.dtype)
        self.lanes.values[stmt.var] = made
        return ir.Let(made, value)

    @run.register
    def _store(self, stmt: ir.Store) -> ir.Stmt:
        buffer, index = self.lanes.place(stmt.buffer, stmt.indices[0])
        value = self.lanes.over(stmt.value)
        own = None if stmt.mask is None else self.lanes.over(stmt.mask)
        mask = both(self.lanes.mask, own)
        if index.dtype.lanes == 1:
            if value.dtype.lanes > 1:
                raise NotVectorizable  # every lane writes the same element
            if mask is not None and mask.dtype.lanes > 1:
                mask = ir.LaneReduce("or", mask)
        else:
            value = ir.splat(value, index.dtype.lanes)
            mask = None if mask is None else ir.splat(mask, index.dtype.lanes)
        return ir.Store(buffer, (index,), value, mask, stmt.hints)

    @run.register
    def _for(self, stmt: ir.For) -> ir.Stmt:
        extent = self.lanes.over(stmt.extent)
        if extent.dtype.lanes > 1 or stmt.kind not in ("serial", "unrolled"):
            raise NotVectorizable
        return replace(stmt, extent=extent, body=self.run(stmt.body))

    @run.register
    def _if(self, stmt: ir.If) -> ir.Stmt:
        cond = self.lanes.over(stmt.cond)
        if cond.dtype.lanes == 1:
            orelse = None if stmt.orelse is None else self.run(stmt.orelse)
            return ir.If(cond, self.run(stmt.then), orelse)
        name = self.names.var("lanes", cond.dtype)
        if self._is_private(stmt):
            body = self._masked(stmt.then, name)
            return ir.seq(ir.Let(name, cond), ir.If(ir.LaneReduce("or", name), body))
        parts: list[ir.Stmt] = [ir.Let(name, cond), self._masked(stmt.then, name)]
        if stmt.orelse is not None:
            parts.append(self._masked(stmt.orelse, ir.Unary("not", name)))
        return ir.seq(*parts)

    def _is_private(self, stmt: ir.If) -> bool:
        """Whether a branch stores only to the lanes' own tiles: it may be skipped."""
        stores = (node for node in walk(stmt) if isinstance(node, ir.Store))
        return stmt.orelse is None and all(s.buffer in self.lanes.tiles for s in stores)

    def _masked(self, stmt: ir.Stmt, cond: ir.Expr) -> ir.Stmt:
        outer = self.lanes.mask
        self.lanes.mask = both(outer, cond)
        made = self.run(stmt)
        self.lanes.mask = outer
        return made

    @run.register
    def _evaluate(self, stmt: ir.Evaluate) -> ir.Stmt:
        call = stmt.expr
        if not isinstance(call, ir.Call):
            raise NotVectorizable
        if call.name == "prefetch":
            (target,) = call.args
            assert isinstance(target, ir.Load)
            index = self.lanes.over(target.indices[0])
            first = index.base if isinstance(index, ir.Ramp) else index
            if first.dtype.lanes > 1:
                return ir.Seq(())
            return ir.Evaluate(replace(call, args=(target.buffer[first],)))
        if call.name != "check":
            raise NotVectorizable
        return ir.Evaluate(
            replace(call, args=(self._checked(call.args[0]), call.args[1]))
        )

    def _checked(self, cond: ir.Expr) -> ir.Expr:
        """Whether the condition holds in every active lane."""
        over = self.lanes.over(cond)
        if self.lanes.mask is not None:
            idle = ir.Unary("not", self.lanes.mask)
            over = make("or", ir.splat(over, self.lanes.count), idle)
        return ir.LaneReduce("and", over) if over.dtype.lanes > 1 else over
