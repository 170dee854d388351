"""Plots that the examples write to a given folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def figure(folder: str | Path, name: str, draw: Any) -> Path:
    """Draw with `draw(axes)` and write `folder/name.png`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415 - needs the examples extra

    made = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(made)
    draw(made.add_subplot())
    place = Path(folder) / f"{name}.png"
    place.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(place, dpi=120)
    return place


def losses(folder: str | Path, values: Sequence[float], unit: str) -> Path:
    """The loss over steps or epochs, on a logarithmic scale."""

    def draw(axes: Any) -> None:
        axes.plot(np.arange(1, len(values) + 1), values)
        axes.set(xlabel=unit, ylabel="loss", yscale="log", title="loss in training")

    return figure(folder, "loss", draw)


def confusion(folder: str | Path, truths: Any, guesses: Any, classes: int) -> Path:
    """The confusion matrix."""
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (truths, guesses), 1)

    def draw(axes: Any) -> None:
        axes.imshow(np.log1p(counts), cmap="Blues")
        for (row, column), count in np.ndenumerate(counts):
            if count:
                axes.text(column, row, count, ha="center", va="center", fontsize=7)
        axes.set(xlabel="guess", ylabel="truth", title="examples of the test")
        axes.set(xticks=range(classes), yticks=range(classes))

    return figure(folder, "confusion", draw)
