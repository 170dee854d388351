"""`tlang tune --model`: the workloads of a network, ranked by time, then tuned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorlang import onnx
from tensorlang.cli import console, document
from tensorlang.cli.quantities import Seconds, Times, Unlike
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.graph import Graph, workloads
from tensorlang.graph.execution.binding import laid_out
from tensorlang.graph.execution.constant_values import constants_of
from tensorlang.graph.networks.network import optimized, pure
from tensorlang.graph.passes.approximation import checked, tolerant
from tensorlang.graph.specs import TensorSpec, names_in
from tensorlang.graph.values import Value
from tensorlang.ops import Operator, find
from tensorlang.targets import Target
from tensorlang.tuner.model_tuning import Ranked, ranked, tune_model
from tensorlang.tuner.progress import Report
from tensorlang.workload import Workload


def tune_network(
    path: Path,
    batch: int | None,
    budget: float,
    how: Mapping[str, Any],
    tell: Callable[[list[Report], float], None],
    *,
    tolerance: float | None = None,
) -> None:
    """Rank and tune the workloads of an ONNX file; print both tables."""
    begun = time.monotonic()
    skipped: list[str] = []

    def skip(op: Operator, workload: Workload, problem: TensorlangError) -> None:
        skipped.append(op.id)
        console.paragraph(f"{op.described(workload)} was skipped: {problem}")

    counted = workloads(*program(path, batch, how["target"], tolerance))
    rows = ranked(counted, how["target"], skip)
    refused = len(skipped)
    console.say("share of the time, calls, workload:")
    for row in rows:
        part = {"workload": row.workload, "calls": row.count, "seconds": row.seconds}
        document.append("workloads", part | {"share": row.share})
        calls = f"{row.count} x {Seconds(row.seconds)}"
        console.paragraph(
            f"{row.share:4.0%}  {calls}  {row.op.described(row.workload)}", "  "
        )

    def announce(row: Ranked) -> None:
        console.say(f"tuning {row.op.described(row.workload)}")

    left = budget - (time.monotonic() - begun)
    reports = tune_model(rows, budget=left, begun=announce, skipped=skip, **how)
    tell(reports, time.monotonic() - begun)
    if reports:
        _summarise(rows, reports)
    if skipped:
        console.paragraph(f"skipped, see above: {', '.join(skipped)}")
    reached = len(reports) + len(skipped) - refused
    if reached < len(rows):
        console.say(
            f"reached {reached} of {len(rows)} workloads; later runs go on with "
            "the others"
        )


def _summarise(rows: Sequence[Ranked], reports: Sequence[Report]) -> None:
    """Print what tuning saves of a pass through the network."""
    counts = {row.op.described(row.workload): row.count for row in rows}
    table: list[tuple[object, ...]] = []
    before, after = 0.0, 0.0
    compared = any(report.compared for report in reports)
    for report in reports:
        count = counts[find(report.operator).described(report.workload)]
        if report.default_seconds is None:  # nor is it compared
            table.append((report.operator, count, *[Unlike("-", None)] * 3))
            continue
        gain = report.ratio.median if report.ratio else 1.0
        times = (report.default_seconds, report.default_seconds / gain)
        if report.compared or not compared:
            before, after = before + count * times[0], after + count * times[1]
        known = _gained(*times, measured=report.compared)
        table.append((report.operator, count, *known))
    whole = all(report.compared for report in reports)
    total = "in all that were compared" if compared and not whole else "in all"
    if before:  # else no default was timed
        table.append((total, None, *_gained(before, after, measured=compared)))
    head = ("tuned", "times", "default", "best", "gain")
    console.table(head, table, name="tuned")


def _gained(before: float, after: float, *, measured: bool) -> tuple[object, ...]:
    """Cells of the default's time, the best one's, and the gain; dashes if unknown."""
    if measured:
        return Seconds(before), Seconds(after), Times(before / after)
    return Seconds(before), Unlike("-", None), Unlike("-", None)


def program(
    path: Path,
    batch: int | None,
    target: Target | str | None = None,
    tolerance: float | None = None,
) -> tuple[Graph, dict[str, int], set[Value]]:
    """The inference graph of an ONNX file as a target runs it.

    External weights are not read.

    Returns:
        The graph, its sizes, and the values that are constant.

    Raises:
        ArgumentError: no such file, not ONNX, or a size remains symbolic.
        GraphError: names what the file uses that is not supported.
    """
    read = onnx.load(path, data=False)
    sizes = sizes_of(path, read.specs, batch)
    written = pure(read, read.specs, train=False).graph
    graph = optimized(tolerant(written, checked(tolerance)))
    made, again = laid_out(graph, sizes, {*graph.weights}, target)
    return made, sizes, constants_of(made, map(again, graph.weights))


def sizes_of(
    path: Path, specs: Sequence[TensorSpec], batch: int | None
) -> dict[str, int]:
    """The values of a file's named sizes; ArgumentError if a size remains symbolic."""
    if batch is not None and batch < 1:
        raise ArgumentError(f"--batch {batch}: at least one is needed")
    sizes = {} if batch is None else {"batch": batch}
    if still := names_in(tuple(spec.shape for spec in specs)) - sizes.keys():
        raise ArgumentError(
            f"--model {path}: {', '.join(sorted(still))} is symbolic; "
            + ("give --batch" if still == {"batch"} else "export it with fixed sizes")
        )
    return sizes
