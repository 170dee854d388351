"""Attention by blocks: no more than a block of scores is stored.

    for z, h, g in range(...):                # a block of queries
        for t in range(...):                  # the blocks of keys that they see
            scores[j, i] = k[j] . q[i]
            top[i], total[i]                  # rescaled where the maximum grows
            result[i] = result[i] * fade[i] + the sum of weight[j, i] * v[j]
        y[i] = result[i] / total[i]

Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao,
"FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensorlang import ir
from tensorlang.ops.nn.attention_blocks import FEW, LANES, QUERIES, Loop, Place, over
from tensorlang.ops.nn.attention_steps import GROUPS, Steps, add, lane_of, of_key, store

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem


def attention(p: Problem) -> ir.Tensor:
    """The result, one for each query of `p.q`."""
    return _Online(p).program()[0]


def with_logsumexp(p: Problem) -> tuple[ir.Tensor, ir.Tensor]:
    """The result, and the logarithm of the sum of each query's exponentials.

    Both are in the type that is computed in. Where all keys are hidden, the logarithm
    is infinity, so that `exp(score - logarithm)` is 0.
    """
    y, log = _Online(p).program(saved=True)
    assert log is not None
    return y, log


class _Online(Steps):
    """The steps from queries to results."""

    def __init__(self, p: Problem) -> None:
        super().__init__(p)
        self.query, self.pack = self.packed("query", p.q, p.scale)
        self.scores = self.block_of_scores("scores")
        self.result = self.per_query("result", p.v.buffer.shape[-1])
        self.top, self.peak, self.base, self.fade, self.total = (
            self.buffer(name, *GROUPS)
            for name in ("top", "peak", "base", "fade", "total")
        )

    def program(self, *, saved: bool = False) -> tuple[ir.Tensor, ir.Tensor | None]:
        """The result and, if `saved`, the logarithms of sums."""
        p = self.p
        *rows, _ = p.q.buffer.shape
        dtype = self.kind if saved else p.q.dtype
        y = ir.placeholder((*rows, p.v.buffer.shape[-1]), dtype, "y").buffer
        log = ir.placeholder(rows, self.kind, "log").buffer
        steps = over(self.nest.inner(), ir.seq(self._scored(), self._summed()))
        started = [self.pack, self._start(), self.cleared("clear", self.result)]
        ended = [self._finish(y), *([self._logarithm(log)] if saved else [])]
        body = ir.seq(self.allocated(), started, steps, ended)
        outputs = (y, log) if saved else (y,)
        nest = over(self.nest.outer, body)
        stage = ir.Stage(nest, outputs, p.arrays)
        return ir.Tensor(y, stage), ir.Tensor(log, stage) if saved else None

    def _start(self) -> ir.Stmt:
        """Initialise maxima and sums."""

        def start(at: Place, u: ir.Expr, i: ir.Expr) -> ir.Stmt:
            del at
            none, zero = ir.as_expr(-math.inf, self.kind), ir.as_expr(0.0, self.kind)
            return ir.seq(
                store(self.top, (u, i), none), store(self.total, (u, i), zero)
            )

        return self.nest.block("start", self.lanes, start)

    def _finish(self, y: ir.Buffer) -> ir.Stmt:
        """Divide the sums of values by the sums of weights; zeros if there are none."""

        def finish(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            total: ir.Expr = self.total[i // LANES, i % LANES]
            total = ir.select(total.equal(0.0), 1.0, total)
            value = self.result[i // FEW, i % FEW, e] / total
            place = (*at.head, at.g * QUERIES + i, e)
            return ir.Store(y, place, ir.stored(value, y.dtype))

        width = Loop("e", self.result.buffer.shape[-1])
        return self.nest.block("y", (Loop("i", self.count), width), finish)

    def _logarithm(self, log: ir.Buffer) -> ir.Stmt:
        """The logarithm of each sum; infinity if there are no weights."""

        def finish(at: Place, i: ir.Expr) -> ir.Stmt:
            total = self.total[i // LANES, i % LANES]
            value = self.top[i // LANES, i % LANES] + ir.log(total)
            value = ir.select(total.equal(0.0), math.inf, value)
            return ir.Store(log, (*at.head, at.g * QUERIES + i), value)

        return self.nest.block("log", (Loop("i", self.count),), finish)

    def _scored(self) -> list[ir.Stmt]:
        """Scores of a block; minus infinity for keys that are hidden."""
        products = self.product("scores", self.scores, self.p.k, self.query)
        found: list[ir.Stmt] = [ir.If(self.count <= FEW, self._dots(), products)]
        if self.p.masked:
            mask = self.masked("mask", self.scores)
            found.append(ir.If(self.nest.here.crosses, mask))
        return found

    def _dots(self) -> ir.Stmt:
        """Scores of few queries: lanes along the depth."""

        def dot(at: Place, i: ir.Expr, j: ir.Expr, c: ir.Expr) -> ir.Stmt:
            query = ir.wide(self.p.q[(*at.query(i), c)]) * self.p.scale
            value = query * ir.wide(self.p.k[(*at.key(j), c)])
            return add(self.scores, of_key(j, ir.as_expr(0), i), value)

        depth = Loop("c", self.p.q.buffer.shape[-1], "reduction")
        inner = Loop("i", self.count), Loop("j", self.length), depth
        return self.nest.block("dots", inner, dot, t="spatial")

    def _summed(self) -> list[ir.Stmt]:
        """Weights of a block, their sums, and the sums of values."""
        block, (u, lane) = self.nest.block, self.lanes
        keys = Loop("j", self.length, "reduction")
        ordered = Loop("j", self.length, "ordered")
        most, width = ir.rows.top_of(self.kind), self.result.buffer.shape[-1]

        def peak(at: Place, u: ir.Expr, j: ir.Expr, i: ir.Expr) -> ir.Stmt:
            del at
            value = self.scores[of_key(j, u, i)]
            return ir.Reduce(most, (self.peak.buffer,), (u, i), (value,))

        def weigh(at: Place, u: ir.Expr, j: ir.Expr, i: ir.Expr) -> ir.Stmt:
            del at
            place = of_key(j, u, i)
            weight = ir.exp(self.scores[place] - self.base[u, i])
            total = self.total[u, i] + self.scores[place]
            return ir.seq(
                store(self.scores, place, weight), store(self.total, (u, i), total)
            )

        def fade(at: Place, f: ir.Expr, r: ir.Expr, e: ir.Expr) -> ir.Stmt:
            del at
            value = self.result[f, r, e] * self.fade[lane_of(f, r)]
            return store(self.result, (f, r, e), value)

        return [
            block("peak", (u, keys, lane), peak, t="spatial"),
            block("grow", self.lanes, self._grow, t="ordered"),
            block("weights", (u, ordered, lane), weigh, t="ordered"),
            block("fades", (*self.few, Loop("e", width)), fade, t="ordered"),
            self.over_keys("sums", self.result, self.scores, self.p.v),
        ]

    def _grow(self, at: Place, u: ir.Expr, i: ir.Expr) -> ir.Stmt:
        """The maximum with this block, and sums relative to it."""
        del at
        place = (u, i)
        before, most = self.top[place], ir.Var("most", self.kind)
        base = ir.select(most.equal(-math.inf), 0.0, most)
        fade = ir.exp(before - self.base[place])
        return ir.seq(
            ir.Let(
                most, ir.select(before > self.peak[place], before, self.peak[place])
            ),
            store(self.base, place, base),
            store(self.fade, place, fade),
            store(self.total, place, self.total[place] * self.fade[place]),
            store(self.top, place, most),
        )
