"""Attention by blocks: no more than a block of scores is stored.

    for z, h, g in range(...):                # a block of queries
        for t in range(...):                  # the blocks of keys that they see
            scores[j, i] = k[j] . q[i]
            top[i], total[i]                  # rescaled where the maximum grows
            result[i] = result[i] * fade[i] + the sum of weight[j, i] * v[j]
        y[i] = result[i] / total[i]

Scores are transposed, so that queries lie along vectors: maxima and sums over keys are
taken lane by lane, and neither product needs a transposed copy of keys or values. Only
the queries are transposed, once per block.

Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao,
"FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.ir import as_expr, f32
from tensorlang.ir.frontend import Stage, Tensor, placeholder
from tensorlang.ir.nodes import Alloc, If, Let, Reduce, Store, Var, seq
from tensorlang.ir.reducers import builtin
from tensorlang.ops.nn.attention_blocks import (
    FEW,
    KEYS,
    LANES,
    QUERIES,
    ROWS,
    Loop,
    Nest,
    Place,
    over,
)

if TYPE_CHECKING:
    from tensorlang.ir import Expr
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Buffer, Stmt
    from tensorlang.ops.nn.attention_definitions import Problem

_LANES: Final = (QUERIES // LANES, LANES)


class Online:
    """The temporaries of a block of queries, and the steps on them."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.kind: DType = f32 if p.q.dtype.bits < 32 else p.q.dtype
        self.nest = Nest(p)
        here = self.nest.here
        self.depth, self.width = p.q.buffer.shape[-1], p.v.buffer.shape[-1]
        groups = (here.count + (LANES - 1)) // LANES
        self.lanes = Loop("u", groups), Loop("lane", as_expr(LANES))
        self.few = Loop("f", (here.count + (FEW - 1)) // FEW), Loop("r", as_expr(FEW))
        self.query = self.buffer("query", self.depth, *_LANES)
        self.scores = self.buffer("scores", KEYS // ROWS, ROWS, *_LANES)
        self.result = self.buffer("result", QUERIES // FEW, FEW, self.width)
        self.top, self.peak, self.base, self.fade, self.total = (
            self.buffer(name, *_LANES)
            for name in ("top", "peak", "base", "fade", "total")
        )

    def buffer(self, name: str, *shape: Expr | int) -> Tensor:
        """A temporary."""
        return placeholder(shape, self.kind, name)

    def program(self) -> Tensor:
        """The result, one for each query of `p.q`."""
        p = self.p
        *rows, _ = p.q.buffer.shape
        y = placeholder((*rows, self.width), p.q.dtype, "y").buffer
        held = [self.query, self.scores, self.result, self.top, self.peak]
        held += [self.base, self.fade, self.total]
        steps = over([self.nest.keys()], seq(self._scored(), self._summed()))
        allocated = [Alloc(tensor.buffer) for tensor in held]
        body = seq(allocated, self._started(), steps, self._finished(y))
        made = over(self.nest.outer, body)
        return Tensor(y, Stage(made, (y,), (p.q, p.k, p.v)))

    # ------------------------------------------------------------ before and after

    def _started(self) -> list[Stmt]:
        """Transpose and scale the queries; initialise maxima and sums."""
        zero, none = as_expr(0.0, self.kind), as_expr(-math.inf, self.kind)

        def query(at: Place, u: Expr, i: Expr, c: Expr) -> Stmt:
            value = ir.wide(self.p.q[(*at.query(u * LANES + i), c)])
            return _store(self.query, (c, u, i), value * self.p.scale)

        def start(at: Place, u: Expr, i: Expr) -> Stmt:
            del at
            tops = _store(self.top, (u, i), none)
            return seq(tops, _store(self.total, (u, i), zero))

        def clear(at: Place, f: Expr, r: Expr, e: Expr) -> Stmt:
            del at
            return _store(self.result, (f, r, e), zero)

        block = self.nest.block
        return [
            block("query", (*self.lanes, Loop("c", self.depth)), query),
            block("start", self.lanes, start),
            block("clear", (*self.few, Loop("e", self.width)), clear),
        ]

    def _finished(self, y: Buffer) -> Stmt:
        """Divide the sums of values by the sums of weights; zeros if there are none."""

        def finish(at: Place, i: Expr, e: Expr) -> Stmt:
            total: Expr = self.total[i // LANES, i % LANES]
            total = ir.select(total.equal(0.0), 1.0, total)
            value = self.result[i // FEW, i % FEW, e] / total
            return Store(
                y, (*at.head, at.g * QUERIES + i, e), ir.stored(value, y.dtype)
            )

        loops = Loop("i", self.nest.here.count), Loop("e", self.width)
        return self.nest.block("y", loops, finish)

    # -------------------------------------------------------------- scores of a block

    def _scored(self) -> list[Stmt]:
        """Scores of a block; minus infinity for keys that are hidden."""
        here = self.nest.here
        found: list[Stmt] = [If(here.count <= FEW, self._dots(), self._products())]
        if self.p.masked:
            found.append(If(here.crosses, self._mask()))
        return found

    def _products(self) -> Stmt:
        """Scores of many queries: lanes along them."""

        def dot(at: Place, *axes: Expr) -> Stmt:
            u, s, r, i, c = axes
            key = ir.wide(self.p.k[(*at.key(s * ROWS + r), c)])
            return _add(self.scores, (s, r, u, i), key * self.query[c, u, i])

        u, lane = self.lanes
        several = Loop("s", (self.nest.here.length + (ROWS - 1)) // ROWS)
        inner = (u, several, Loop("r", as_expr(ROWS)), lane, self._folded("c"))
        return self.nest.block("scores", inner, dot, t="spatial")

    def _dots(self) -> Stmt:
        """Scores of few queries: lanes along the depth."""

        def dot(at: Place, i: Expr, j: Expr, c: Expr) -> Stmt:
            query = ir.wide(self.p.q[(*at.query(i), c)]) * self.p.scale
            value = query * ir.wide(self.p.k[(*at.key(j), c)])
            return _add(self.scores, _at(j, as_expr(0), i), value)

        here = self.nest.here
        inner = Loop("i", here.count), Loop("j", here.length), self._folded("c")
        return self.nest.block("dots", inner, dot, t="spatial")

    def _folded(self, name: str) -> Loop:
        """A loop along the depth, or along the keys of a block."""
        extent = self.depth if name == "c" else self.nest.here.length
        return Loop(name, extent, "reduction")

    def _mask(self) -> Stmt:
        """Hide keys."""
        none = as_expr(-math.inf, self.kind)

        def hide(at: Place, j: Expr, u: Expr, i: Expr) -> Stmt:
            seen, place = at.sees(u * LANES + i, j), _at(j, u, i)
            return _store(self.scores, place, ir.select(seen, self.scores[place], none))

        keys = Loop("j", self.nest.here.length)
        return self.nest.block("mask", (keys, *self.lanes), hide, t="spatial")

    # ------------------------------------------------------------- softmax and values

    def _summed(self) -> list[Stmt]:
        """Weights of a block, their sums, and the sums of values."""
        block, (u, lane) = self.nest.block, self.lanes
        keys, width = self._folded("j"), Loop("e", self.width)
        ordered = Loop("j", keys.extent, "ordered")
        most = ir.rows.top_of(self.kind)

        def peak(at: Place, u: Expr, j: Expr, i: Expr) -> Stmt:
            del at
            value = self.scores[_at(j, u, i)]
            return Reduce(most, (self.peak.buffer,), (u, i), (value,))

        def weigh(at: Place, u: Expr, j: Expr, i: Expr) -> Stmt:
            del at
            place = _at(j, u, i)
            weight = ir.exp(self.scores[place] - self.base[u, i])
            total = self.total[u, i] + self.scores[place]
            return seq(
                _store(self.scores, place, weight), _store(self.total, (u, i), total)
            )

        def fade(at: Place, f: Expr, r: Expr, e: Expr) -> Stmt:
            del at
            value = self.result[f, r, e] * self.fade[_lane(f, r)]
            return _store(self.result, (f, r, e), value)

        def add(at: Place, f: Expr, r: Expr, e: Expr, j: Expr) -> Stmt:
            value = self.scores[_at(j, *_lane(f, r))] * ir.wide(
                self.p.v[(*at.key(j), e)]
            )
            return _add(self.result, (f, r, e), value)

        return [
            block("peak", (u, keys, lane), peak, t="spatial"),
            block("grow", self.lanes, self._grow, t="ordered"),
            block("weights", (u, ordered, lane), weigh, t="ordered"),
            block("fades", (*self.few, width), fade, t="ordered"),
            block("sums", (*self.few, width, keys), add, t="reduction", init=seq()),
        ]

    def _grow(self, at: Place, u: Expr, i: Expr) -> Stmt:
        """The maximum with this block, and sums relative to it."""
        del at
        place = (u, i)
        before, most = self.top[place], Var("most", self.kind)
        base = ir.select(most.equal(-math.inf), 0.0, most)
        fade = ir.exp(before - self.base[place])
        return seq(
            Let(most, ir.select(before > self.peak[place], before, self.peak[place])),
            _store(self.base, place, base),
            _store(self.fade, place, fade),
            _store(self.total, place, self.total[place] * self.fade[place]),
            _store(self.top, place, most),
        )


def _at(j: Expr, u: Expr, i: Expr) -> tuple[Expr, ...]:
    """The place of a score."""
    return j // ROWS, j % ROWS, u, i


def _lane(f: Expr, r: Expr) -> tuple[Expr, Expr]:
    """The lane of a query that is counted in fours."""
    of_lanes = LANES // FEW
    return f // of_lanes, f % of_lanes * FEW + r


def _store(tensor: Tensor, place: tuple[Expr, ...], value: Expr) -> Stmt:
    return Store(tensor.buffer, place, value)


def _add(tensor: Tensor, place: tuple[Expr, ...], value: Expr) -> Stmt:
    """Add to a sum."""
    reducer = builtin("sum", (value.dtype,))
    assert reducer is not None
    return Reduce(reducer, (tensor.buffer,), place, (value,))
