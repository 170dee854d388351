"""The mask of attention: what is added to scores, or which keys a query sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tensorlang import ir
from tensorlang.errors import DTypeError
from tensorlang.frozen import frozen
from tensorlang.ops.nn.attention_blocks import LANES

_BY_ROWS: Final = 3


@frozen
class Mask:
    """A mask in the dimensions of scores `[z, heads, m, n]` or `[z, rows, n]`.

    `z` counts the heads of the keys of all batches, `heads` those that share keys, and
    `rows` the queries of all of these. Any dimension may be 1: the mask is then the
    same for all.
    """

    # Truth values, or floats. Its first dimension is that of the scores, or counts
    # batches, or the heads of the keys of a batch.
    tensor: ir.Tensor
    batches: bool  # whether batches differ
    heads: bool  # whether heads differ
    transposed: bool = False  # whether keys come before queries

    @classmethod
    def of(
        cls,
        mask: ir.Tensor,
        scores: Sequence[ir.Size],
        groups: ir.Size,
        *,
        by_position: bool,
    ) -> Mask:
        """The mask for scores `[batch, heads, m, n]`.

        Args:
            scores: Their sizes.
            groups: The number of heads of keys.
            by_position: Whether keys are hidden by position, too.

        Raises:
            ShapeError: it does not fit.
            DTypeError: it has integers.
        """
        ir.require(
            mask.dtype.is_float or mask.dtype.is_bool,
            f"mask is of {mask.dtype}; it has truth values, or floats that are added",
            DTypeError,
        )
        shape = (*(1,) * (len(scores) - mask.ndim), *mask.shape)
        ir.require(
            len(shape) == len(scores)
            and all(size in (1, of) for size, of in zip(shape, scores, strict=True)),
            f"a mask of {mask.shape} does not fit scores of {tuple(scores)}",
        )
        batch, heads, m, n = (
            1 if size == 1 else of for size, of in zip(shape, scores, strict=True)
        )
        sharing = scores[1] // groups
        of, shared = (1, 1) if heads == 1 else (groups, sharing)
        # not `shared == m`: a definition would be for sizes that are equal by chance
        same = (shared == 1 and m == 1) or (shared == sharing and m == scores[2])
        rows = (shared * m,) if same and not by_position else (shared, m)
        laid = ir.reshaped(mask, (batch * of, *rows, n))
        return cls(laid, batch != 1, heads != 1)

    def in_lanes(self) -> Mask:
        """The mask in an order in which lanes along queries are contiguous.

        The last query stands for those beyond, up to whole lanes.
        """
        *lead, queries, keys = self.tensor.shape
        if queries == 1:
            return self

        def element(*at: ir.Expr) -> ir.Expr:
            *first, key, query = at
            place = (*first, ir.binary("min", query, ir.as_expr(queries - 1)), key)
            return self.tensor[place]

        padded = (queries + (LANES - 1)) // LANES * LANES
        made = ir.compute((*lead, keys, padded), element, "mask_in_lanes")
        return replace(self, tensor=made, transposed=True)

    @property
    def by_rows(self) -> bool:
        """Whether queries of heads that share keys may be taken together."""
        return self.tensor.ndim == _BY_ROWS

    def applied(self, count: ir.Expr, at: Sequence[ir.Expr], value: ir.Expr) -> ir.Expr:
        """A score with the mask; minus infinity for a key that is not seen.

        Args:
            count: The first size of the scores.
            at: The place of the score.
            value: The score.
        """
        first = self.tensor.buffer.shape[0]
        z, *inner = at
        if self.batches and not self.heads:
            z //= count // first
        elif self.heads and not self.batches:
            z %= first
        if self.transposed:
            inner[-2:] = inner[:-3:-1]
        sizes = self.tensor.shape
        place = (
            0 if size == 1 else n for size, n in zip(sizes, (z, *inner), strict=True)
        )
        held: ir.Expr = self.tensor[tuple(place)]
        if held.dtype.is_bool:
            return ir.select(held, value, -math.inf)
        return value + ir.cast(value.dtype, held)
