"""`tlang tune --model`: the workloads of a network, ranked by time, then tuned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorlang import onnx
from tensorlang.cli import console
from tensorlang.errors import ArgumentError, TuningError
from tensorlang.graph import Graph, workloads
from tensorlang.graph.network import optimized, pure
from tensorlang.graph.specs import names_in
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
    """Rank and tune the workloads of an ONNX file; print both tables."""
    begun = time.monotonic()
    rows = ranked(workloads(*program(path, batch)), how["target"])
    console.table(
        ("workload", "times", "a call", "share"),
        [
            (
                row.op.described(row.workload),
                str(row.count),
                console.duration(row.seconds),
                f"{row.share:.0%}",
            )
            for row in rows
        ],
    )

    def announce(row: Ranked) -> None:
        console.say(f"tuning {row.op.described(row.workload)}")

    failed: list[Ranked] = []

    def skip(row: Ranked, problem: TuningError) -> None:
        failed.append(row)
        console.paragraph(f"{row.op.id} was skipped: {problem}")

    left = budget - (time.monotonic() - begun)
    reports = tune_model(rows, budget=left, begun=announce, skipped=skip, **how)
    tell(reports, time.monotonic() - begun)
    reached = len(reports) + len(failed)
    if reached < len(rows):
        console.say(
            f"the budget reached {reached} of {len(rows)} workloads; a larger one "
            "reaches the others"
        )


def program(path: Path, batch: int | None) -> tuple[Graph, dict[str, int]]:
    """The inference graph of an ONNX file and its sizes; external weights are not read.

    Raises:
        ArgumentError: no such file, not ONNX, or a size remains symbolic.
        GraphError: names what the file uses that is not supported.
    """
    if batch is not None and batch < 1:
        raise ArgumentError(f"--batch {batch}: at least one is needed")
    read = onnx.load(path, data=False)
    sizes = {} if batch is None else {"batch": batch}
    if still := names_in(tuple(spec.shape for spec in read.specs)) - sizes.keys():
        raise ArgumentError(
            f"--model {path}: {', '.join(sorted(still))} is symbolic; "
            + ("give --batch" if still == {"batch"} else "export it with fixed sizes")
        )
    return optimized(pure(read, read.specs, train=False).graph), sizes
