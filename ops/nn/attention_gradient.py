"""The gradient of attention by blocks, from the logarithms of sums of exponentials.

    for z in range(...):                      # keys, with all heads that share them
        for h, g in range(...):               # a block of queries
            inner[i] = dy[i] . y[i]
            for t in range(...):              # the blocks of keys that they see
                weight[j, i] = exp(k[j] . q[i] - log[i])
                dscore[j, i] = weight[j, i] * (v[j] . dy[i] - inner[i]) * scale
                dv[j] += the sum of weight[j, i] * dy[i]
                dk[j] += the sum of dscore[j, i] * q[i]
                dq[i] += the sum of dscore[j, i] * k[j]

Dao, "FlashAttention-2", 2023, algorithm 2.
"""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.nn.attention_blocks import (
    FEW,
    LANES,
    QUERIES,
    ROWS,
    Loop,
    Place,
    over,
)
from tensorlang.ops.nn.attention_definitions import Problem, stored
from tensorlang.ops.nn.attention_online import with_logsumexp
from tensorlang.ops.nn.attention_steps import GROUPS, Steps, add, of_key, store


def attention_grad(dy: ir.Tensor, p: Problem) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    """The gradients of queries, keys and values."""
    return _Gradient(p, dy).program()


class _Gradient(Steps):
    """The steps from the gradient of the results to those of queries and keys."""

    def __init__(self, p: Problem, dy: ir.Tensor) -> None:
        super().__init__(p)
        self.dy = dy
        self.y, self.log = with_logsumexp(p)
        depth, width = p.q.buffer.shape[-1], p.v.buffer.shape[-1]
        self.query, self.pack = self.packed("packed_q", p.q, p.scale)
        self.seed, self.pack_seed = self.packed("packed_dy", dy)
        self.weight = self.block_of_scores("weight")
        self.dscore = self.block_of_scores("dscore")
        self.base, self.inner = (self.buffer(n, *GROUPS) for n in ("logs", "inner"))
        self.to_query = self.per_query("to_query", depth)
        self.to_key = self.buffer("to_key", *self.weight.buffer.shape[:2], depth)
        self.to_value = self.buffer("to_value", *self.weight.buffer.shape[:2], width)

    def program(self) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
        """The gradients of queries, keys and values."""
        p = self.p
        dq = ir.placeholder(p.q.buffer.shape, self.kind, "dq")
        dk, dv = (
            ir.compute(x.buffer.shape, lambda *_: ir.as_expr(0.0, self.kind), name)
            for name, x in (("dk", p.k), ("dv", p.v))
        )
        started = [self.pack, self.pack_seed, *self._started()]
        steps = over(self.nest.inner(), ir.seq(self._weighed(), self._summed(dk, dv)))
        body = ir.seq(self.allocated(), started, steps, self._finish(dq))
        inputs = (dk, dv, self.dy, self.y, self.log, *p.arrays)
        stage = ir.Stage(over(self.nest.outer, body), (dq.buffer,), inputs)
        to_q, to_k, to_v = (
            stored(ir.Tensor(made.buffer, stage), x, f"{made.buffer.name}_{x.dtype}")
            for made, x in ((dq, p.q), (dk, p.k), (dv, p.v))
        )
        return to_q, to_k, to_v

    def _started(self) -> list[ir.Stmt]:
        """The logarithms, and the products of the results with their gradients."""

        def log(at: Place, u: ir.Expr, i: ir.Expr) -> ir.Stmt:
            return store(self.base, (u, i), self.log[at.query(u * LANES + i)])

        def inner(at: Place, u: ir.Expr, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            place = (*at.query(u * LANES + i), e)
            return add(self.inner, (u, i), ir.wide(self.dy[place]) * self.y[place])

        width = Loop("e", self.y.buffer.shape[-1], "reduction")
        return [
            self.nest.block("logs", self.lanes, log),
            self.nest.block("inner", (*self.lanes, width), inner),
            self.cleared("zeros", self.to_query),
        ]

    def _weighed(self) -> list[ir.Stmt]:
        """The weights of a block, and the gradients of its scores."""

        def slope(at: Place, j: ir.Expr, u: ir.Expr, i: ir.Expr) -> ir.Stmt:
            del at
            place, weight = of_key(j, u, i), ir.Var("weight_of", self.kind)
            slope = weight * (self.dscore[place] - self.inner[u, i]) * self.p.scale
            return ir.seq(
                ir.Let(weight, ir.exp(self.weight[place] - self.base[u, i])),
                store(self.weight, place, weight),
                store(self.dscore, place, slope),
            )

        found = [self.product("again", self.weight, self.p.k, self.query)]
        if self.p.masked:
            mask = self.masked("hide", self.weight)
            found.append(ir.If(self.nest.here.crosses, mask))
        inner = (Loop("j", self.length), *self.lanes)
        return [
            *found,
            self.product("dweight", self.dscore, self.p.v, self.seed),
            self.nest.block("slopes", inner, slope, t="ordered"),
        ]

    def _summed(self, dk: ir.Tensor, dv: ir.Tensor) -> list[ir.Stmt]:
        """Add a block's share to the gradients."""
        return [
            self.over_keys("to_queries", self.to_query, self.dscore, self.p.k),
            self.over_queries("to_keys", self.to_key, self.dscore, self.p.q),
            self._added("dk_of", dk, self.to_key),
            self.over_queries("to_values", self.to_value, self.weight, self.dy),
            self._added("dv_of", dv, self.to_value),
        ]

    def _added(self, name: str, total: ir.Tensor, part: ir.Tensor) -> ir.Stmt:
        """Add to the rows of a block of keys."""

        def sums(at: Place, j: ir.Expr, e: ir.Expr) -> ir.Stmt:
            place = (at.head[0], at.first + j, e)
            value = total[place] + part[j // ROWS, j % ROWS, e]
            return store(total, place, value)

        inner = Loop("j", self.length), Loop("e", part.buffer.shape[-1])
        return self.nest.block(name, inner, sums, g="ordered", t="ordered")

    def _finish(self, dq: ir.Tensor) -> ir.Stmt:
        """Write the gradients of a block of queries."""

        def finish(at: Place, i: ir.Expr, c: ir.Expr) -> ir.Stmt:
            place = (*at.head, at.g * QUERIES + i, c)
            return store(dq, place, self.to_query[i // FEW, i % FEW, c])

        depth = Loop("c", self.to_query.buffer.shape[-1])
        return self.nest.block("dq_of", (Loop("i", self.count), depth), finish)
