"""Attention by tiles of queries and keys, for products of fragments in registers.

    for z, h, g in range(...):                # a tile of queries
        for t in range(...):                  # the tiles of keys that they see
            scores[i, j] = query[i] . keys[j]
            top[i, l], total[i, l]            # rescaled where the maximum grows
            weights[i, j] = exp(scores[i, j] - top[i, l])     # as a power of 2
            result[i] = result[i] * fade[i, l] + the sum of weights[i, j] * values[j]
        y[i] = result[i] / total[i, l]

`online` has lanes along queries; here they are along rows, too, and weights are rounded
before they are multiplied.

Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.ops.nn.attention_blocks import KEYS, QUERIES, Nest, Place
from tensorlang.ops.nn.attention_steps import add, store
from tensorlang.ops.nn.attention_tile_steps import PAIR, TileSteps, lane_of, of_lane

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem

_NARROW: Final = 64  # columns of results of which a thread holds those of more rows


def attention(p: Problem, *, groups: bool = False) -> ir.Tensor:
    """The result, one for each query of `p.q`, by products of warps or warpgroups."""
    tiles = Tiles(p, groups=groups)
    *rows, _ = p.q.buffer.shape
    y = ir.placeholder((*rows, p.v.buffer.shape[-1]), p.q.dtype, "y").buffer
    return ir.Tensor(y, tiles.stage(tiles.finished(y), (y,), p.arrays))


class Tiles(TileSteps):
    """The steps from queries to results, on tiles."""

    def __init__(self, p: Problem, *, groups: bool = False) -> None:
        """`groups`: whether warpgroups multiply, which have room for larger tiles."""
        # twice the queries halve what warps load of keys and values for each product;
        # masks and windows need the registers
        plain = p.mask is None and p.window is None
        twice = groups or (plain and int(p.v.shape[-1]) <= _NARROW)
        columns = KEYS if p.masked or not groups else 2 * KEYS
        nest = Nest(p, 2 * QUERIES if twice else QUERIES, columns)
        super().__init__(p, nest, groups=groups)
        self.query = self.of_row("query", p.q)
        self.result = self.sums("result", p.v.buffer.shape[-1])
        self.top, self.total, self.whole, self.highest, self.peak, self.base = map(
            self.shared, ("top", "sums", "whole", "highest", "peak", "base")
        )
        self.fade = self.shared("fade")
        self.scores = self.of_pairs("scores")
        self.weights = self.of_pairs("weights", p.q.dtype)
        self.started.append(self.block("start", self.lanes, self._start))
        self._step()

    def _start(self, at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
        """The first maximum and sum."""
        del at
        lowest, zero = ir.as_expr(-math.inf, ir.f32), ir.as_expr(0.0, ir.f32)
        return ir.seq(
            store(self.top, (i, lane), lowest), store(self.total, (i, lane), zero)
        )

    def _step(self) -> None:
        """The scores of a tile, their weights and sums, and the sums of values."""
        most = ir.rows.greatest_number() if self.groups else ir.rows.top_of(ir.f32)
        block = self.block
        keys = self.of_column("keys", self.p.k)
        values = self.of_column("values", self.p.v)

        def highest(
            at: Place, i: ir.Expr, lane: ir.Expr, u: ir.Expr, *e: ir.Expr
        ) -> ir.Stmt:
            del at
            value = reduce(ir.greater_number, self.folded(i, lane, u, *e))
            return ir.Reduce(most, (self.highest.buffer,), (i, lane), (value,))

        def peak(at: Place, i: ir.Expr, lane: ir.Expr, k: ir.Expr) -> ir.Stmt:
            del at
            value = self.highest[i, k]
            return ir.Reduce(most, (self.peak.buffer,), (i, lane), (value,))

        def exponential(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = self.power(self.scores[i, j] - self.base[i, lane_of(j)])
            return store(self.scores, (i, j), value)

        def total(
            at: Place, i: ir.Expr, lane: ir.Expr, u: ir.Expr, *e: ir.Expr
        ) -> ir.Stmt:
            del at
            value = reduce(operator.add, self.folded(i, lane, u, *e))
            return add(self.total, (i, lane), value)

        def weight(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = ir.stored(self.scores[i, j], self.weights.dtype)
            return store(self.weights, (i, j), value)

        def fade(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            del at
            value = self.result[i, e] * self.fade[i, lane_of(e)]
            return store(self.result, (i, e), value)

        own, kept = self.own(self.nest.columns), ir.seq()
        if self.groups:  # pairs are folded first
            own = own[:-1]
        columns = self.columns_of(self.result)
        self.steps += [
            self.product("scores", self.scores, self.query, keys),
            *self.scaled(self.scores),
            block("highest", own, highest, t="spatial"),
            block("peak", self.quad, peak, t="spatial"),
            block("grow", self.lanes, self._grow, t="ordered"),
            block("exponentials", self.each, exponential, t="ordered"),
            block("totals", own, total, t="reduction", init=kept),
            block("weights", self.each, weight, t="spatial"),
            block("fades", columns, fade, t="ordered"),
            self.summed("weighted", self.result, self.weights, values),
        ]

    def folded(
        self, i: ir.Expr, lane: ir.Expr, u: ir.Expr, *e: ir.Expr
    ) -> list[ir.Expr]:
        """The score of an element that a lane has; without `e`, of both of a pair."""
        each = e or tuple(map(ir.as_expr, range(PAIR)))
        return [self.scores[i, of_lane(lane, u, at)] for at in each]

    def _grow(self, at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
        """The maximum with this tile, and sums relative to it."""
        del at
        place = i, lane
        before, most = self.top[place], ir.Var("most", ir.f32)
        peak = self.peak[place]
        base = ir.select(most.equal(-math.inf), 0.0, most)
        fade = self.power(before - self.base[place])
        highest: ir.Expr = ir.select(before > peak, before, peak)
        if self.groups:
            highest = ir.greater_number(before, peak)
        return ir.seq(
            ir.Let(most, highest),
            store(self.base, place, base),
            store(self.fade, place, fade),
            store(self.total, place, self.total[place] * self.fade[place]),
            store(self.top, place, most),
        )

    def summed_up(self) -> ir.Stmt:
        """The sum of each row's weights."""

        def whole(at: Place, i: ir.Expr, lane: ir.Expr, k: ir.Expr) -> ir.Stmt:
            del at
            return add(self.whole, (i, lane), self.total[i, k])

        return self.block("whole", self.quad, whole)

    def shares(self) -> ir.Stmt:
        """The reciprocal of each sum in its place; 1 if there are no weights."""

        def share(at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
            del at
            whole: ir.Expr = self.whole[i, lane]
            value = 1.0 / ir.select(whole.equal(0.0), 1.0, whole)
            return store(self.total, (i, lane), value)

        return self.block("share", self.lanes, share)

    def finished(self, y: ir.Buffer) -> list[ir.Stmt]:
        """Divide the sums of values by the sums of weights; zeros if there are none."""
        result = self.written(
            "y", y, self.result, lambda i, e: self.total[i, lane_of(e)]
        )
        return [self.summed_up(), self.shares(), result]
