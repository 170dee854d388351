"""A small language model learns a poem by heart, and recites it from its first line.

    python examples/language_model.py [FOLDER]

It is trained on whole pieces of the text; to write, it reads one character at a time
and keeps keys and values of those that attention sees in a cache.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    AdamW,
    Cache,
    Dense,
    Embedding,
    Layer,
    Loader,
    Model,
    MultiHeadAttention,
    RMSNorm,
)
from tensorlang.ops import random
from tensorlang.ops.optim import schedules

POEM = """\
'Twas brillig, and the slithy toves
Did gyre and gimble in the wabe:
All mimsy were the borogoves,
And the mome raths outgrabe.

"Beware the Jabberwock, my son!
The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun
The frumious Bandersnatch!"

He took his vorpal sword in hand;
Long time the manxome foe he sought-
So rested he by the Tumtum tree
And stood awhile in thought.
"""  # Lewis Carroll, Through the Looking-Glass, 1871
LETTERS = "".join(sorted(set(POEM)))
LENGTH, WINDOW, WIDTH, HEADS, BLOCKS = 128, 48, 64, 4, 2


class Block(Layer):
    """Attention, then a dense network, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = RMSNorm(), RMSNorm()
        self.attention = MultiHeadAttention(
            WIDTH, HEADS, causal=True, window=WINDOW, rotary=10_000.0
        )
        self.wide, self.narrow = Dense(4 * WIDTH, "silu"), Dense(WIDTH)

    def apply(self, x: Any, cache: Cache | None = None) -> Any:
        """Map `[batch, time, width]` to the same shape, and a cache to the next one."""
        y = self.attention(self.before(x), None, cache)
        y, *after = y if cache else (y,)
        x = x + y
        return x + self.narrow(self.wide(self.between(x))), *after


class Writer(Layer):
    """Logits of the next character at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = Embedding(len(LETTERS), WIDTH), Dense(len(LETTERS))
        self.blocks = [Block() for _ in range(BLOCKS)]

    def apply(self, ids: Any, count: Any = None, *caches: Any) -> Any:
        """Map `[batch, time]` to `[batch, time, letters]`.

        With a number of earlier characters, also the keys and values of all blocks to
        the next ones.
        """
        x, after = self.table(ids), []
        for n, block in enumerate(self.blocks):
            cache = Cache(*caches[2 * n : 2 * n + 2], count) if caches else None
            x, *held = block(x, cache) if caches else block(x)
            after += held
        return (self.last(x), *after) if caches else self.last(x)


def trained(steps: int) -> tuple[Model, list[float]]:
    """A model, and its losses, after so many steps on pieces of the poem."""
    model = Model(Writer()).compile(
        TensorSpec(("batch", "time"), "int64"),
        loss="cross_entropy_last",
        optimizer=AdamW(lr=schedules.cosine(3e-3, steps), clip=1.0),
        key=random.key(1),
    )
    ids = np.array([LETTERS.index(each) for each in POEM])
    pieces = np.lib.stride_tricks.sliding_window_view(ids, LENGTH + 1)
    loader = Loader(pieces[:, :-1], pieces[:, 1:], batch=32, key=random.key(2))
    losses: list[float] = []
    while len(losses) < steps:
        losses += [model.train_one_batch(*batch) for batch in loader]
    return model, losses


def written(model: Model, start: str, count: int) -> str:
    """The most likely text of `count` characters after a beginning."""
    cache = TensorSpec(("batch", WINDOW, WIDTH))
    step = Model(model.layer).compile(
        TensorSpec(("batch", 1), "int64"),
        TensorSpec(("batch",), "int64"),
        *[cache] * (2 * BLOCKS),
        train=False,
        weights=model.get_params(),
    )
    caches = [np.zeros((1, WINDOW, WIDTH), np.float32)] * (2 * BLOCKS)
    text = start
    for n in range(len(start) + count - 1):
        ids = np.array([[LETTERS.index(text[n])]])
        logits, *caches = step(ids, np.array([n]), *caches)
        if n + 1 == len(text):
            text += LETTERS[int(np.argmax(logits))]
    return text


def main(folder: str | Path | None = None, steps: int = 300) -> float:
    """Train, write, and return the share of the characters that are the poem's."""
    start = POEM[: POEM.index("\n") + 1]
    begin = time.perf_counter()
    model, losses = trained(steps)
    middle = time.perf_counter()
    text = written(model, start, len(POEM) - len(start))
    end = time.perf_counter()
    share = float(np.mean([a == b for a, b in zip(text, POEM, strict=True)]))
    print(text)
    each = (end - middle) / (len(text) - 1) * 1e3
    print(
        f"loss {losses[0]:.2f} to {losses[-1]:.3f} in {middle - begin:.0f} s; ", end=""
    )
    print(f"{each:.1f} ms a character; {share:.1%} are those of the poem")
    if folder is not None:
        import plots  # noqa: PLC0415 - in this folder

        plots.losses(folder, losses, "step")
    return share


if __name__ == "__main__":
    main(*sys.argv[1:2])
