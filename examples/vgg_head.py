"""The head of a VGG network, with explicit dropout keys.

    python examples/vgg_head.py [FOLDER]

Keys are single-use. Splitting gives each dropout its own; using a key twice is an error
when the graph is built, and names both lines. With a folder, the outputs for one image
and many keys are plotted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang import graph
from tensorlang.errors import KeyReuseError
from tensorlang.graph import KeySpec, TensorSpec
from tensorlang.layers import Dense, Flatten, Layer
from tensorlang.ops import nn, random


class Head(Layer):
    """flatten, dense + relu + dropout(left), dense + relu + dropout(right), dense."""

    def __init__(self, width: int = 4096, classes: int = 1000) -> None:
        super().__init__()
        self.flatten = Flatten()
        self.first = Dense(width, "relu")
        self.second = Dense(width, "relu")
        self.last = Dense(classes)

    def apply(self, x: Any, key: Any) -> Any:
        """Map images and a key to the class scores."""
        left, right = random.split(key)
        h = nn.dropout(self.first(self.flatten(x)), 0.5, key=left)
        h = nn.dropout(self.second(h), 0.5, key=right)
        return self.last(h)


class Careless(Head):
    """The same with a single key, which is an error."""

    def apply(self, x: Any, key: Any) -> Any:
        """Map images and a key to the class scores."""
        h = nn.dropout(self.first(self.flatten(x)), 0.5, key=key)
        h = nn.dropout(self.second(h), 0.5, key=key)
        return self.last(h)


def main(folder: str | Path | None = None, width: int = 256, classes: int = 10) -> None:
    """Build it, print it, run it with two keys; then build the careless one."""
    images = TensorSpec(("batch", 32, 7, 7))
    net = graph.Network(Head(width, classes), images, KeySpec())
    print(net)
    x = np.random.default_rng(0).normal(size=(4, 32, 7, 7)).astype(np.float32)
    first, again, other = (net.transform(x, random.key(seed)) for seed in (0, 0, 1))
    print("one key, one result:", np.array_equal(first, again))
    print("another key, another:", not np.array_equal(first, other))
    try:
        graph.Network(Careless(width, classes), images, KeySpec())
    except KeyReuseError as error:
        print(error)
    if folder is not None:
        draw(folder, net, x[:1])


def draw(folder: str | Path, net: graph.Network, image: Any, keys: int = 200) -> None:
    """Plot the outputs for one image: for two keys, and the spread over many."""
    import plots  # noqa: PLC0415 - in this folder

    drawn = random.split(random.key(2), keys)
    found = np.concatenate([net.transform(image, key) for key in drawn])

    def on(axes: Any) -> None:
        axes.violinplot(found, range(found.shape[1]), showmeans=True)
        for n in range(2):
            axes.plot(found[n], "o", ms=4, label=f"key {n}")
        axes.set(xlabel="class", ylabel="output", title=f"one image, {keys} keys")
        axes.legend()

    plots.figure(folder, "keys", on)


if __name__ == "__main__":
    main(*sys.argv[1:2])
