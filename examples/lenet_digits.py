"""LeNet on scikit-learn's 1797 digits of 8x8 pixels; needs tensorlang[examples].

    python examples/lenet_digits.py [FOLDER]

Trains for some seconds and prints the accuracy on unseen digits. Writes the loss curve
and the confusion matrix to the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    Adam,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPool2D,
    Model,
    Sequential,
)
from tensorlang.ops import optim, random


def digits(held: int = 360) -> tuple[Any, Any, Any, Any]:
    """Images and labels for training, then for test; shuffled by a fixed key."""
    data = load_digits()
    images = (data.images[:, None] / 16.0 - 0.5).astype(np.float32)
    order = np.asarray(random.permutation(random.key(7), len(images)))
    x, t = images[order], data.target[order].astype(np.int64)
    return x[held:], t[held:], x[:held], t[:held]


def lenet(steps: int, seed: int = 1) -> Model:
    """Convolutions, pooling and dense layers; input sizes are inferred.

    The learning rate falls to zero in so many steps.
    """
    layers = Sequential(
        Conv2D(32, 3, "relu", padding="same"),
        Conv2D(32, 3, "relu", padding="same"),
        MaxPool2D(2),
        Flatten(),
        Dropout(0.4),
        Dense(128, "relu"),
        Dropout(0.4),
        Dense(10),
    )
    spec = TensorSpec(("batch", 1, 8, 8))
    optimizer = Adam(lr=optim.schedules.cosine(2e-3, steps))
    return Model(layers).compile(spec, optimizer=optimizer, key=random.key(seed))


def main(folder: str | Path | None = None, epochs: int = 30) -> float:
    """Train, evaluate and plot; returns the test accuracy."""
    x, t, unseen, truths = digits()
    x, t = x[: len(x) // 64 * 64], t[: len(t) // 64 * 64]  # whole batches
    model = lenet(len(x) // 64 * epochs)
    print(model.summary())
    history = model.fit(x, t, epochs=epochs, batch=64, progress=False)
    guesses = np.argmax(model(unseen), axis=1)
    share = float(np.mean(guesses == truths))
    print(f"{share:.1%} of {len(truths)} unseen digits are read right")
    if folder is not None:
        import plots  # noqa: PLC0415 - in this folder

        plots.losses(folder, [epoch.loss for epoch in history], "epoch")
        plots.confusion(folder, truths, guesses, 10)
    return share


if __name__ == "__main__":
    main(*sys.argv[1:2])
