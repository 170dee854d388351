"""Tuning a whole network: its workloads by their share of time, within one budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tensorlang import targets
from tensorlang.errors import ArgumentError
from tensorlang.ops import find
from tensorlang.ops.examples import arguments
from tensorlang.tuner.onnx_model import Found, workloads
from tensorlang.tuner.rounds import interleaved
from tensorlang.tuner.tuning import tune

if TYPE_CHECKING:
    from tensorlang.targets import Target
    from tensorlang.tuner.progress import Report

_SAMPLE: Final = 0.05  # seconds of measuring a workload before it is ranked
_LEAST: Final = 3.0  # seconds that tuning a workload takes at least to be worth it


@dataclass(frozen=True, slots=True)
class Ranked:
    """A workload of a network and what it costs there now.

    Attributes:
        found: The workload.
        count: How often it stands in the network.
        seconds: Of one call, with the best kernel known now.
        share: Of the time of all workloads together.
    """

    found: Found
    count: int
    seconds: float
    share: float


def ranked(
    path: Path, batch: int | None = None, target: str | Target | None = None
) -> tuple[list[Ranked], dict[str, int]]:
    """The workloads of a network, the dearest first, and the nodes that we have not.

    Raises:
        ArgumentError, ShapeError: see `tensorlang.tuner.onnx_model.workloads`; or the
            network holds nothing that we compute.
    """
    counted, others = workloads(path, batch)
    if not counted:
        kinds = ", ".join(others) or "nothing"
        raise ArgumentError(f"--model {path} holds no operator of ours, only: {kinds}")
    chosen = targets.get(target)
    seconds = {found: _seconds(found, chosen) for found in counted}
    whole = sum(seconds[found] * count for found, count in counted.items())
    rows = [
        Ranked(found, count, seconds[found], seconds[found] * count / whole)
        for found, count in counted.items()
    ]
    return sorted(rows, key=lambda row: -row.share), dict(others)


def _seconds(found: Found, target: Target) -> float:
    """A call of the best kernel that is known now."""
    op = find(found.op)
    workload = op.workload(*found.shapes, dtypes=found.dtype, **dict(found.attributes))
    kernel = op.build(workload, target)
    arrays, scalars = arguments(op, workload)
    call = {"it": lambda: kernel.launch(*arrays, *scalars)}
    return interleaved(call, rounds=3, min_sample=_SAMPLE / 3, warm_up=0.0)["it"].median


def tune_model(
    rows: Sequence[Ranked],
    *,
    budget: float,
    begun: Callable[[Ranked], None] | None = None,
    **options: Any,
) -> list[Report]:
    """Tune a network's workloads, each with its share of the budget.

    The dearest come first; what would get too little time to be worth it is left out.

    Args:
        rows: From `ranked`.
        budget: Seconds for everything.
        begun: Told of each workload before it is tuned.
        options: As for `tune`.
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
        reports += tune(
            row.found.op,
            shapes=row.found.shapes,
            dtypes=row.found.dtype,
            budget=min(share, end - time.monotonic()),
            **dict(row.found.attributes),
            **options,
        )
        if reports[-1].interrupted:
            break
    return reports
