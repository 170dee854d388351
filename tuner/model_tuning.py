"""Tuning of a network: its workloads in proportion to their time, within one budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from tensorlang import targets
from tensorlang.errors import ArgumentError, RecordError, TensorlangError, TuningError
from tensorlang.frozen import frozen
from tensorlang.ops.operator import Operator
from tensorlang.ops.spec.examples import arguments
from tensorlang.targets import Target
from tensorlang.tuner.measurement.rounds import interleaved
from tensorlang.tuner.progress import Report
from tensorlang.tuner.storage.databases import default_url
from tensorlang.tuner.storage.studies import by_name, of_name, turn
from tensorlang.tuner.tuning import LEAST, tune
from tensorlang.tuner.tuning_run import Run
from tensorlang.workload import Workload

_SAMPLE: Final = 0.05  # seconds of measurement per workload, for ranking
Refused: TypeAlias = "Callable[[Operator, Workload, TensorlangError], None]"


@frozen
class Ranked:
    """A workload of a network and its current cost."""

    op: Operator
    workload: Workload
    count: int  # its number of calls in the network
    seconds: float  # time of one call of the best known kernel
    share: float  # fraction of the time of all workloads


def ranked(
    counted: Mapping[tuple[Operator, Workload], int],
    target: str | Target | None = None,
    refused: Refused | None = None,
) -> list[Ranked]:
    """The workloads of a network, most expensive first.

    Args:
        counted: Number of calls of each: `tensorlang.graph.execution.workloads`.
        target: Where to measure.
        refused: Called with each workload that does not build or run, and why; it is
            left out. By default the error is raised.

    Raises:
        ArgumentError: there are none.
        TuningError: none of them runs.
    """
    if not counted:
        raise ArgumentError("the network computes nothing: there is nothing to tune")
    chosen = targets.get(target)
    seconds: dict[tuple[Operator, Workload], float] = {}
    for called in counted:
        try:
            seconds[called] = _seconds(*called, chosen)
        except TensorlangError as problem:
            if refused is None:
                raise
            refused(*called, problem)
    if not seconds:
        raise TuningError("no workload of the network runs: there is nothing to tune")
    whole = sum(spent * counted[called] for called, spent in seconds.items())
    rows = [
        Ranked(*called, counted[called], spent, spent * counted[called] / whole)
        for called, spent in seconds.items()
    ]
    return sorted(rows, key=lambda row: -row.share)


def _seconds(op: Operator, workload: Workload, target: Target) -> float:
    """Time of a call of the best known kernel."""
    kernel = op.build(workload, target)
    arrays, scalars = arguments(op, workload)
    call = {"it": lambda: kernel.launch(*arrays, *scalars)}
    return interleaved(call, rounds=3, min_sample=_SAMPLE / 3, warm_up=0.0)["it"].median


def tune_model(
    rows: Sequence[Ranked],
    *,
    budget: float,
    begun: Callable[[Ranked], None] | None = None,
    skipped: Refused | None = None,
    **options: Any,
) -> list[Report]:
    """Tune a network's workloads, each with its share of the budget.

    The most expensive come first, and those whose search is done last
    (`studies.turn`); those that would get too little time are left to later runs.
    Ctrl-C ends with the reports of those that were tuned before.

    Args:
        rows: The result of `ranked`.
        budget: Seconds in total.
        begun: Called with each workload before it is tuned.
        skipped: Called with each workload that cannot be tuned, and why; by default the
            error is raised.
        options: Options of `tune`.
    """
    end = time.monotonic() + budget
    reports: list[Report] = []
    left = _in_turn(rows, **options)
    while left and (len(left) == len(rows) or end - time.monotonic() >= LEAST):
        row = left.pop(0)
        rest = row.share + sum(other.share for other in left)
        share = max((end - time.monotonic()) * row.share / rest, LEAST)
        if begun is not None:
            begun(row)
        try:
            reports += tune(
                row.op,
                workload=row.workload,
                budget=max(min(share, end - time.monotonic()), _SAMPLE),
                **options,
            )
        except KeyboardInterrupt:
            if not reports:
                raise
            break
        except RecordError:
            raise
        except TensorlangError as problem:
            if skipped is None:
                raise
            skipped(row.op, row.workload, problem)
            continue
        if reports[-1].interrupted:
            break
    return reports


def _in_turn(
    rows: Sequence[Ranked],
    *,
    target: str | Target | None = None,
    storage: str | None = None,
    resume: bool = True,
    **_: object,
) -> list[Ranked]:
    """The rows in order of tuning."""
    studies = by_name(storage or default_url()) if resume else {}
    chosen = targets.get(target)

    def key(row: Ranked) -> tuple[int, int, float]:
        workload = replace(row.workload, threads=chosen.threads)
        name = Run(row.op, workload, chosen).study
        return turn(of_name(studies, name), row.share)

    return sorted(rows, key=key)
