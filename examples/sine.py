"""An MLP with two hidden layers learns sin(x) from random points.

python examples/sine.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tensorlang.graph import TensorSpec
from tensorlang.layers import Adam, Dense, Model, Sequential
from tensorlang.ops import random


def main(folder: str | Path | None = None, steps: int = 1500) -> float:
    """Train on batches of 32; returns the largest error between -pi and pi."""
    model = Model(Sequential(Dense(50, "tanh"), Dense(50, "tanh"), Dense(1)))
    spec = TensorSpec(("batch", 1))
    model.compile(spec, loss="mse", optimizer=Adam(lr=5e-3), key=random.key(2))
    losses = []
    for key in random.split(random.key(3), steps):
        x = random.uniform(key, (32, 1), minval=-np.pi, maxval=np.pi)
        losses.append(model.train_one_batch(x, np.sin(x)))
    grid = np.linspace(-np.pi, np.pi, 200, dtype=np.float32)[:, None]
    found = model(grid)
    error = float(np.abs(found - np.sin(grid)).max())
    print(f"after {steps} steps the loss is {np.mean(losses[-50:]):.1e}")
    print(f"largest error {error:.3f}")
    if folder is not None:
        import plots  # noqa: PLC0415 - in this folder

        plots.losses(folder, losses, "step")
        lines = {"sin(x)": np.sin(grid), "network": found}
        plots.figure(
            folder,
            "sine",
            lambda axes: [
                *(axes.plot(grid, y, label=name) for name, y in lines.items()),
                axes.legend(),
            ],
        )
    return error


if __name__ == "__main__":
    main(*sys.argv[1:2])
