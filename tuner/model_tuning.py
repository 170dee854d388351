"""Tuning of a network: its workloads in proportion to their time, within one budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tensorlang import targets
from tensorlang.errors import ArgumentError, TuningError
from tensorlang.ops.examples import arguments
from tensorlang.tuner.rounds import interleaved
from tensorlang.tuner.tuning import tune

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.tuner.progress import Report
    from tensorlang.workload import Workload

_SAMPLE: Final = 0.05  # seconds of measurement per workload, for ranking
_LEAST: Final = 3.0  # minimum seconds for tuning a workload


@dataclass(frozen=True, slots=True)
class Ranked:
    """A workload of a network and its current cost.

    Attributes:
        op: The operator.
        workload: The workload.
        count: Its number of calls in the network.
        seconds: Time of one call of the best known kernel.
        share: Fraction of the time of all workloads.
    """

    op: Operator
    workload: Workload
    count: int
    seconds: float
    share: float


def ranked(
    counted: Mapping[tuple[Operator, Workload], int],
    target: str | Target | None = None,
) -> list[Ranked]:
    """The workloads of a network, most expensive first.

    Args:
        counted: Number of calls of each: `tensorlang.graph.workloads`.
        target: Where to measure.

    Raises:
        ArgumentError: there are none.
    """
    if not counted:
        raise ArgumentError("the network computes nothing: there is nothing to tune")
    chosen = targets.get(target)
    seconds = {called: _seconds(*called, chosen) for called in counted}
    whole = sum(seconds[called] * count for called, count in counted.items())
    rows = [
        Ranked(*called, count, seconds[called], seconds[called] * count / whole)
        for called, count in counted.items()
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
    skipped: Callable[[Ranked, TuningError], None] | None = None,
    **options: Any,
) -> list[Report]:
    """Tune a network's workloads, each with its share of the budget.

    The most expensive come first; those that would get too little time are left out.

    Args:
        rows: The result of `ranked`.
        budget: Seconds in total.
        begun: Called with each workload before it is tuned.
        skipped: Called with each workload that cannot be tuned, and why.
        options: Options of `tune`.
    """
    end = time.monotonic() + budget
    reports: list[Report] = []
    left = list(rows)
    while left and end - time.monotonic() >= _LEAST:
        row = left.pop(0)
        rest = row.share + sum(other.share for other in left)
        share = max((end - time.monotonic()) * row.share / rest, _LEAST)
        if begun is not None:
            begun(row)
        try:
            reports += tune(
                row.op,
                shapes=row.workload.shapes,
                dtypes=row.workload.dtypes,
                budget=min(share, end - time.monotonic()),
                **(row.workload.named | options),
            )
        except TuningError as problem:
            if skipped is None:
                raise
            skipped(row, problem)
            continue
        if reports[-1].interrupted:
            break
    return reports
