"""Attention by its formula: scores, their softmax, and the weighted sum of values.

Heads that share keys are consecutive: `q` is viewed as `[z, heads, m, depth]`, where
`z` counts the heads of `k`, or as `[z, rows, depth]` if no key is hidden from a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen
from tensorlang.ops.nn.attention_masks import Mask

_WIDEST: Final = 1 << 62  # no array has as many keys


@frozen
class Problem:
    """The arrays and options of a call."""

    q: ir.Tensor  # queries `[z, heads, m, depth]` or `[z, rows, depth]`
    k: ir.Tensor  # keys `[z, n, depth]`
    v: ir.Tensor  # values `[z, n, width]`
    # shape of the queries as given: `[batch, heads, m, depth]`
    shape: tuple[ir.Size, ...]
    causal: bool  # whether keys after a query's position are hidden
    shift: ir.Expr  # position of query 0
    scale: float  # factor of the scores
    # number of keys that a query sees up to its position, at most 2^62, so that a
    # position plus a window fits i64; None for all
    window: int | None
    mask: Mask | None  # mask of the scores; None for none

    @classmethod
    def of(  # noqa: PLR0917 - the parameters of the operator
        cls,
        q: ir.Tensor,
        k: ir.Tensor,
        v: ir.Tensor,
        causal: bool | str,
        scale: float | None,
        window: int | None,
        mask: ir.Tensor | None = None,
    ) -> Problem:
        """The problem of these arguments.

        Raises:
            ShapeError: the shapes do not go together, or there are no keys.
            DTypeError: the mask has integers.
            ArgumentError: the window is empty, or the scale is infinite.
        """
        _check(q, k, v, window)
        _check_scale(q, scale)
        batch, heads, m, depth = q.shape
        _, groups, n, width = v.shape
        depth, width = int(depth), int(width)
        z, sharing = batch * groups, heads // groups
        if causal == "lower_right" and m == 1 and window is None:
            causal = False  # the only query sees all keys
        limited, held = causal or window is not None, None
        if mask is not None:
            scores = (batch, heads, m, n)
            held = Mask.of(mask, scores, groups, by_position=bool(limited))
        together = held.by_rows if held else not limited
        rows = (sharing * m,) if together else (sharing, m)
        return cls(
            ir.reshaped(q, (z, *rows, depth)),
            ir.reshaped(k, (z, n, depth)),
            ir.reshaped(v, (z, n, width)),
            q.shape,
            bool(causal),
            ir.as_expr(n - m if causal == "lower_right" else 0),
            1 / math.sqrt(depth or 1) if scale is None else scale,
            None if window is None else min(window, _WIDEST),
            held,
        )

    @property
    def limited(self) -> bool:
        """Whether the position of a query limits the keys that it sees."""
        return self.causal or self.window is not None

    @property
    def masked(self) -> bool:
        """Whether scores are not those of queries and keys alone."""
        return self.limited or self.mask is not None

    @property
    def arrays(self) -> tuple[ir.Tensor, ...]:
        """The arrays that are read."""
        given = (self.q, self.k, self.v)
        return given if self.mask is None else (*given, self.mask.tensor)

    def in_lanes(self) -> Problem:
        """The problem with its mask in an order for lanes along queries."""
        return self if self.mask is None else replace(self, mask=self.mask.in_lanes())

    def sees(self, query: ir.Expr, key: ir.Expr) -> ir.Expr:
        """Whether a query sees a key."""
        at = query + self.shift
        seen = key <= at if self.causal else ir.as_expr(True)
        if self.window is not None:
            seen = seen & (key > at - self.window)
            if not self.causal:
                seen = seen & (key < at + self.window)
        return seen

    def score(self, row: Sequence[ir.Expr], key: ir.Expr, value: ir.Expr) -> ir.Expr:
        """A score with its mask: minus infinity for a key that its query does not see.

        Args:
            row: The indices of the query.
            key: The index of the key.
            value: The product of both, scaled.
        """
        if self.mask is not None:
            value = self.mask.applied(self.k.buffer.shape[0], (*row, key), value)
        seen = self.sees(row[-1], key)
        return ir.select(seen, value, -math.inf) if self.limited else value

    def result(self, y: ir.Tensor) -> ir.Tensor:
        """A result of each query, in the shape for the caller."""
        return ir.reshaped(y, (*self.shape[:3], y.shape[-1]))

    def per_query(self, dy: ir.Tensor) -> ir.Tensor:
        """The gradient of the results, with the queries' dimensions.

        Raises:
            ShapeError: it has another shape than the results.
        """
        wanted = (*self.shape[:3], self.v.shape[2])
        ir.require(
            dy.shape == wanted,
            f"dy has shape {dy.shape}; it must be that of the result, {wanted}",
        )
        return ir.reshaped(dy, (*self.q.shape[:-1], self.v.shape[2]))


def _check(q: ir.Tensor, k: ir.Tensor, v: ir.Tensor, window: int | None) -> None:
    """Refuse shapes that do not go together, and empty windows."""
    ir.require(
        {q.ndim, k.ndim, v.ndim} == {4},
        f"q, k and v are [batch, heads, length, depth], not {q.shape}, {k.shape}, "
        f"{v.shape}",
    )
    ir.require(
        k.shape[:3] == v.shape[:3]
        and q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3],
        f"q of {q.shape}, k of {k.shape} and v of {v.shape} do not go together: "
        "batches are equal, q and k have one depth, k and v the same heads and length",
    )
    ir.require(
        k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0,
        f"{q.shape[1]} heads of q do not share {k.shape[1]} heads of k and v evenly",
    )
    ir.require(k.shape[2] > 0, f"k of {k.shape} has no keys to attend to")
    ir.require(
        window is None or window > 0,
        f"a window of {window} holds no keys",
        ArgumentError,
    )


def _check_scale(q: ir.Tensor, scale: float | None) -> None:
    """Refuse a scale that the type of the scores does not hold."""
    kind = ir.f32 if q.dtype.bits < 32 else q.dtype
    ir.require(
        scale is None or abs(scale) <= float(np.finfo(kind.numpy).max),
        f"a scale of {scale} is not a finite {kind.name}, which scores are computed in",
        ArgumentError,
    )


def attention(p: Problem) -> ir.Tensor:
    """The result, one for each query of `p.q`, with all scores stored."""
    *rows, _ = p.q.shape
    weight = _weights(p)
    t = ir.reduce_axis(p.k.shape[1], "t")

    def weighted(*i: ir.Expr) -> ir.Reduction:
        *row, column = i
        value = weight[(*row, t)] * ir.wide(p.v[row[0], t, column])
        seen = p.sees(row[-1], t.expression())
        return ir.sum(ir.select(seen, value, 0.0) if p.limited else value, t)

    shape = (*rows, p.v.shape[2])
    name = "weighted" if p.q.dtype.name in ir.NARROW else "y"
    y = ir.compute(shape, weighted, name)
    return stored(y, p.q, "y")


def _weights(p: Problem) -> ir.Tensor:
    """The softmax of the scores; zeros for a query from which all keys are hidden."""
    *rows, _ = p.q.shape
    n = p.k.shape[1]
    scores = _scores(p)
    t = ir.reduce_axis(n, "t")
    most = ir.rows.top_of(scores.dtype)
    top = ir.compute(rows, lambda *i: ir.reduction(most, scores[(*i, t)], t), "top")

    def exponential(*i: ir.Expr) -> ir.Expr:
        base = top[i[:-1]]
        return ir.exp(scores[i] - ir.select(base.equal(-math.inf), 0.0, base))

    e = ir.compute((*rows, n), exponential, "e")
    total = ir.compute(rows, lambda *i: ir.sum(e[(*i, t)], t), "total")

    def share(*i: ir.Expr) -> ir.Expr:
        whole: ir.Expr = total[i[:-1]]
        value: ir.Expr = e[i]
        return value / ir.select(whole.equal(0.0), 1.0, whole)

    return ir.compute((*rows, n), share, "weight")


def _scores(p: Problem) -> ir.Tensor:
    """The scores of all queries and keys; minus infinity for keys that are hidden."""
    *rows, depth = p.q.shape
    shape, c = (*rows, p.k.shape[1]), ir.reduce_axis(depth, "c")

    def dot(*i: ir.Expr) -> ir.Reduction:
        *row, key = i
        return ir.sum(ir.wide(p.q[(*row, c)]) * ir.wide(p.k[row[0], key, c]), c)

    dots = ir.compute(shape, dot, "dots")

    def score(*i: ir.Expr) -> ir.Expr:
        return p.score(i[:-1], i[-1], dots[i] * p.scale)

    return ir.compute(shape, score, "scores")


def stored(made: ir.Tensor, like: ir.Tensor, name: str) -> ir.Tensor:
    """A result in the type of an array."""
    if made.dtype == like.dtype:
        return made
    return ir.compute(
        made.buffer.shape, lambda *i: ir.stored(made[i], like.dtype), name
    )
