"""Multi-head attention, with rotary positions and a cache of earlier ones.

block = MultiHeadAttention(256, 8, causal=True, rotary=10_000.0)
y = block(x)                                        # whole sequences
y, keys, values = block(x, None, Cache(keys, values, lengths))  # the next positions
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.scopes import call_site, path
from tensorlang.graph.specs import Extent, TensorSpec
from tensorlang.graph.values import OpResult, Tensor, zeros
from tensorlang.layers.basic import Dense
from tensorlang.layers.layer import Layer, checked_integer
from tensorlang.ops import math, nn


class Cache(NamedTuple):
    """Keys and values of the positions before those of a call, the latest ones last.

    Attributes:
        keys: Floats `[batch, capacity, groups * depth]`, at first of any finite values.
        values: Floats of the same shape.
        lengths: The number of positions so far of each sequence, int64 `[batch]`; of
            more than the capacity, only the latest are seen.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor


class MultiHeadAttention(Layer):
    """Attention of several heads, between dense layers.

    Attributes:
        heads: The number of heads.
        groups: The number of heads of keys and values, each shared by several heads of
            queries.
        depth: The size of a head: `width / heads`.
        causal: As for `nn.attention`.
        window: As for `nn.attention`.
        rotary: The base of the angles of rotary position embedding (`nn.rotary`) of
            queries and keys; None for none.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        causal: bool | Literal["lower_right"] = False,
        window: int | None = None,
        rotary: float | None = None,
    ) -> None:
        """Set the sizes; `groups` is by default the number of heads.

        Raises:
            ArgumentError: `width` is not a multiple of `heads`, or `heads` of `groups`;
                `causal` is unknown, a window holds no keys, or heads of an odd size
                are to be rotated.
        """
        super().__init__()
        checked_integer("width of MultiHeadAttention", width, 1)
        self.heads = checked_integer("heads of MultiHeadAttention", heads, 1)
        shared = heads if groups is None else groups
        self.groups = checked_integer("groups of MultiHeadAttention", shared, 1)
        if width % heads or heads % shared:
            raise ArgumentError(
                f"MultiHeadAttention: a width of {width}, {heads} heads and {shared} "
                "groups: each must be a multiple of the next"
            )
        if not isinstance(causal, (bool, np.bool_)) and causal != "lower_right":
            raise ArgumentError(
                "causal of MultiHeadAttention is True, False or 'lower_right', not "
                f"{causal!r}"
            )
        if window is not None:
            checked_integer("window of MultiHeadAttention", window, 1)
        self.depth, self.causal, self.window = width // heads, causal, window
        self.rotary = rotary
        if rotary is not None and (self.depth % 2 or not rotary > 0):
            raise ArgumentError(
                f"MultiHeadAttention: rotary={rotary} with heads of {self.depth}: the "
                "base is positive, and heads have an even size"
            )
        self.query, self.result = Dense(width), Dense(width)
        self.key, self.value = (Dense(shared * self.depth) for _ in range(2))

    def apply(
        self, x: Tensor, memory: Tensor | None = None, cache: Cache | None = None
    ) -> OpResult:
        """Map `[batch, m, in]` to `[batch, m, width]`.

        Args:
            x: The inputs.
            memory: What keys and values are computed from, `[batch, n, in]`; by default
                `x`.
            cache: Earlier positions of the sequences that `x` continues. The results
                are the output, and the keys and values of the next call's cache.

        Raises:
            ShapeError: with a cache, its capacity or `m` is symbolic, or `m` exceeds
                it.
        """
        source = x if memory is None else memory
        q, k, v = self.query(x), self.key(source), self.value(source)
        if self.rotary is not None:
            first = None if cache is None else cache.lengths
            q = self._rotated(q, self.heads, first)
            k = self._rotated(k, self.groups, first)
        if cache is not None:
            return self._cached(q, k, v, cache)
        y = nn.attention(
            self._split(q, self.heads),
            self._split(k, self.groups),
            self._split(v, self.groups),
            self.causal,
            None,
            self.window,
        )
        return self.result(self._joined(y, x.shape[:2]))

    def _cached(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> OpResult:
        """Attention to a cache that moves on by the new positions, its last ones."""
        capacity, new = cache.keys.shape[1], q.shape[1]
        if not isinstance(capacity, int) or not isinstance(new, int) or new > capacity:
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): {self!r} takes a known number of "
                f"positions, and a cache of no fewer, not {new} and {capacity}"
            )
        k = nn.concatenate([cache.keys, k], 1)[:, new:]
        v = nn.concatenate([cache.values, v], 1)[:, new:]
        heads = self._split(q, self.heads)
        shared = self.heads // self.groups * new  # queries of each group
        rows = nn.reshape(heads, (q.shape[0], self.groups, shared, self.depth))
        scores = math.matmul(
            rows, nn.transpose(self._split(k, self.groups), (0, 1, 3, 2))
        )
        seen = self._seen(capacity, new, cache.lengths)
        scores = nn.reshape(scores, (*heads.shape[:3], capacity)) * self.depth**-0.5
        shares = nn.softmax(math.where(seen, scores, -np.inf))
        shares = nn.reshape(shares, (q.shape[0], self.groups, shared, capacity))
        y = math.matmul(shares, self._split(v, self.groups))
        return self.result(self._joined(nn.reshape(y, heads.shape), q.shape[:2])), k, v

    def _seen(self, capacity: int, new: int, lengths: Tensor) -> OpResult:
        """Whether a query sees a slot of the cache, `[batch, 1, new, capacity]`."""
        ahead = np.arange(capacity) - np.arange(capacity - new, capacity)[:, None]
        apart = ahead <= 0 if self.causal else np.full(ahead.shape, True)
        if self.window is not None:
            apart &= abs(ahead) < self.window
        empty = capacity - new - np.arange(capacity, dtype=np.int64)
        filled = math.greater_equal(nn.reshape(lengths, (-1, 1, 1, 1)), empty)
        return math.logical_and(filled, apart)

    def _rotated(self, x: Tensor, heads: int, first: Tensor | None) -> OpResult:
        """Keys or queries, rotated by their positions from `first` on, by default 0."""
        assert self.rotary is not None
        steps = -np.arange(0, self.depth, 2) / self.depth
        frequencies = (self.rotary**steps).astype(np.float32)
        angles = _positions(x.shape[1], first)[..., None] * frequencies
        turned = nn.rotary(
            self._split(x, heads),
            math.cast(math.cos(angles), x.spec.dtype),
            math.cast(math.sin(angles), x.spec.dtype),
        )
        return self._joined(turned, x.shape[:2])

    def _split(self, x: Tensor, heads: int) -> OpResult:
        """`[batch, length, width]` as `[batch, heads, length, depth]`."""
        parts = nn.reshape(x, (*x.shape[:2], heads, self.depth))
        return nn.transpose(parts, (0, 2, 1, 3))

    def _joined(self, y: Tensor, rows: tuple[Extent, ...]) -> OpResult:
        """The inverse of `_split`."""
        heads = y.shape[1]
        assert isinstance(heads, int)
        parts = nn.transpose(y, (0, 2, 1, 3))
        return nn.reshape(parts, (*rows, heads * self.depth))

    def __repr__(self) -> str:
        return f"MultiHeadAttention({self.heads * self.depth}, {self.heads})"


def _positions(length: Extent, first: Tensor | None) -> Tensor:
    """Positions as f32, `[length]`, or `[batch, length]` from those of `first`."""
    ones = zeros(TensorSpec((length,), "float32")) + 1.0
    along: Tensor = math.cumsum(ones, 0) - 1.0
    if first is None:
        return along
    begin: Tensor = nn.reshape(math.cast(first, "float32"), (-1, 1))
    return begin + along
