"""`tlang tune --model`: what a network computes, ranked by time, then tuned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorlang.cli import console
from tensorlang.errors import ArgumentError
from tensorlang.tuner.model_tuning import Ranked, ranked, tune_model

if TYPE_CHECKING:
    from tensorlang.tuner.progress import Report


def tune_network(
    path: Path,
    batch: int | None,
    budget: float,
    how: Mapping[str, Any],
    tell: Callable[[list[Report], float], None],
) -> None:
    """Rank and tune the workloads of an ONNX file; print both."""
    if batch is not None and batch < 1:
        raise ArgumentError(f"--batch {batch}: at least one is needed")
    begun = time.monotonic()
    rows, others = ranked(path, batch, how["target"])
    console.table(
        ("workload", "times", "a call", "share"),
        [
            (
                str(row.found),
                str(row.count),
                console.duration(row.seconds),
                f"{row.share:.0%}",
            )
            for row in rows
        ],
    )
    if others:
        listed = ", ".join(f"{count} x {kind}" for kind, count in others.items())
        console.say(f"not ours, and left alone: {listed}")

    def announce(row: Ranked) -> None:
        console.say(f"tuning {row.found}")

    left = budget - (time.monotonic() - begun)
    reports = tune_model(rows, budget=left, begun=announce, **how)
    tell(reports, time.monotonic() - begun)
    if len(reports) < len(rows):
        console.say(
            f"the budget reached {len(reports)} of {len(rows)} workloads; a larger one "
            "reaches the others"
        )
