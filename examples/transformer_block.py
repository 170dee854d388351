"""A transformer block with dropout learns which token came first.

    python examples/transformer_block.py [FOLDER]

Attention never stores a matrix of all scores; the layers infer their sizes and the
names of their weights.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    Adam,
    Dense,
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    Model,
    MultiHeadAttention,
)
from tensorlang.ops import math, random

TOKENS, LENGTH, WIDTH, HEADS = 12, 8, 32, 2


class Block(Layer):
    """Attention, then a dense network, each with a residual connection."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.before, self.attention = LayerNorm(), MultiHeadAttention(width, HEADS)
        self.between, self.wide = LayerNorm(), Dense(4 * width, "gelu")
        self.narrow = Dense(width)
        self.first, self.second = Dropout(rate), Dropout(rate)

    def apply(self, x: Any) -> Any:
        """Map `[batch, time, width]` to the same shape."""
        x = x + self.first(self.attention(self.before(x)))
        return x + self.second(self.narrow(self.wide(self.between(x))))


class Reader(Layer):
    """Embedding of tokens and positions, one block, and a dense layer on the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Embedding(TOKENS * LENGTH, WIDTH)
        self.block, self.last = Block(WIDTH, 0.1), Dense(TOKENS)

    def apply(self, ids: Any) -> Any:
        """Map `[batch, time]` to `[batch, tokens]`."""
        return self.last(math.mean(self.block(self.table(ids)), 1))


def batch(key: random.Key, count: int = 64) -> tuple[Any, Any]:
    """Rows of tokens combined with their positions; and the first token of each row."""
    ids = random.randint(key, (count, LENGTH), 0, TOKENS, dtype="int64")
    return ids + TOKENS * np.arange(LENGTH), ids[:, 0].copy()


def main(folder: str | Path | None = None, steps: int = 150) -> float:
    """Train, and print and return the accuracy on new rows."""
    model = Model(Reader()).compile(
        TensorSpec(("batch", LENGTH), "int64"),
        optimizer=Adam(lr=3e-3),
        key=random.key(4),
    )
    keys = random.split(random.key(5), steps + 1)
    losses = [model.train_one_batch(*batch(keys[n])) for n in range(steps)]
    ids, truths = batch(keys[steps], 256)
    share = float(np.mean(np.argmax(model(ids), axis=1) == truths))
    print(model.summary())
    print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}; right in {share:.1%} of new rows")
    if folder is not None:
        import plots  # noqa: PLC0415 - in this folder

        plots.losses(folder, losses, "step")
    return share


if __name__ == "__main__":
    main(*sys.argv[1:2])
