"""Multi-head attention."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.values import OpResult, Tensor
from tensorlang.layers.basic import Dense
from tensorlang.layers.layer import Layer, checked_integer
from tensorlang.ops import nn


class MultiHeadAttention(Layer):
    """Attention of several heads, between dense layers.

    Attributes:
        heads: The number of heads.
        groups: The number of heads of keys and values, each shared by several heads of
            queries.
        depth: The size of a head: `width / heads`.
        causal: As for `nn.attention`.
        window: As for `nn.attention`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        causal: bool | Literal["lower_right"] = False,
        window: int | None = None,
    ) -> None:
        """Set the sizes; `groups` is by default the number of heads.

        Raises:
            ArgumentError: `width` is not a multiple of `heads`, or `heads` of `groups`;
                `causal` is unknown, or a window holds no keys.
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
        self.query, self.result = Dense(width), Dense(width)
        self.key, self.value = (Dense(shared * self.depth) for _ in range(2))

    def apply(self, x: Tensor, memory: Tensor | None = None) -> OpResult:
        """Map `[batch, m, in]` to `[batch, m, width]`.

        Keys and values are those of `memory`, `[batch, n, in]`, by default `x`.
        """
        source = x if memory is None else memory
        y = nn.attention(
            self._split(self.query(x), self.heads),
            self._split(self.key(source), self.groups),
            self._split(self.value(source), self.groups),
            self.causal,
            None,
            self.window,
        )
        rows = nn.transpose(y, (0, 2, 1, 3))
        return self.result(nn.reshape(rows, (*x.shape[:2], self.heads * self.depth)))

    def _split(self, x: Tensor, heads: int) -> OpResult:
        """`[batch, length, width]` as `[batch, heads, length, depth]`."""
        parts = nn.reshape(x, (*x.shape[:2], heads, self.depth))
        return nn.transpose(parts, (0, 2, 1, 3))

    def __repr__(self) -> str:
        return f"MultiHeadAttention({self.heads * self.depth}, {self.heads})"
