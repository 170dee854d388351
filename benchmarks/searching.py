"""Search from scratch: how soon it approaches the best known configuration.

The search uses no records or earlier trials. The best known is the fastest of the
default, the workload's records, the results of `defaults`, and this search's result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks.defaults import WORKS, call, from_nothing
from tensorlang import records, runtime, targets
from tensorlang.errors import TensorlangError
from tensorlang.ops import (
    Operator,
    find,
)
from tensorlang.ops.kernels import building
from tensorlang.ops.spec.examples import arguments
from tensorlang.scheduling import Knobs
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio
from tensorlang.tuner.progress import Progress
from tensorlang.tuner.tuning import tune
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.workload import Workload

WORK: Final = "dense 1024x1024x1024"
BUDGET: Final = 120.0
WANTED: Final = 0.95
HEAD: Final = f"""\
Tuning from nothing

A search that knows no record and no earlier trial; wanted: {100 * WANTED:.0f} % of the
best known within {BUDGET:.0f} s."""
_FOUND: Final = "found"


def rows(
    rounds: int, only: str, budget: float, earlier: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """One row: the search's best over time, and its result against the best known.

    Args:
        rounds: Timings of each side.
        only: Restrict to works whose title contains this.
        budget: Seconds of search.
        earlier: Rows of `defaults` by title.
    """
    if only not in WORK:
        return
    name, shapes, attributes = WORKS[WORK]
    op = find(name)
    workload = op.workload(*shapes, threads=targets.get(None).threads, **attributes)
    known = [
        Candidate(choice.record.algorithm, dict(choice.record.knobs))
        for choice in records.lookup(workload, targets.get(None))
        if choice.record.workload == workload
    ]
    if WORK in earlier:
        row = earlier[WORK]
        known.append(Candidate(row["algorithm"], dict(row["knobs"])))
    curve, best = _searched(op, budget)
    yield (
        {"work": WORK, "budget": budget, "curve": curve}
        | {"floating": 2 * 1024**3, "knobs": dict(best.knobs)}
        | _compared(op, workload, best, known, rounds)
    )


def _searched(
    op: Operator, budget: float
) -> tuple[list[tuple[float, float]], Candidate]:
    """Times and values of improvements, and the winner of the finals."""
    curve: list[tuple[float, float]] = []

    def listen(told: Progress) -> None:
        seconds = told.best_seconds
        if seconds is not None and (not curve or seconds < curve[-1][1]):
            curve.append((told.elapsed, seconds))
            print(f"{told.elapsed:6.1f} s: {seconds * 1e6:.0f} us", file=sys.stderr)

    _, shapes, attributes = WORKS[WORK]
    with from_nothing() as storage:
        report = tune(
            op,
            shapes=shapes,
            budget=budget,
            storage=storage,
            listen=listen,
            **attributes,
        )[0]
    return curve, report.best


def _compared(
    op: Operator,
    workload: Workload,
    best: Candidate,
    known: list[Candidate],
    rounds: int,
) -> dict[str, Any]:
    """The result against the fastest of all known configurations."""
    target = targets.get(None)
    arrays, scalars = arguments(op, workload)
    given = [*arrays, *scalars]
    default = building.default(op, workload, target, {})[0]
    calls = {"default": call(runtime.build(default, target), given)}
    for name, candidate in [(_FOUND, best), *((c.key, c) for c in known)]:
        knobs = Knobs.replay(dict(candidate.knobs))
        try:
            made = building.schedule(op, workload, target, candidate.algorithm, knobs)
        except TensorlangError as problem:
            print(f"{candidate}: {problem}", file=sys.stderr)
            continue
        calls[name] = call(runtime.build(made, target), given)
    timings = interleaved(calls, rounds=rounds, min_sample=0.01, warm_up=0.1)
    fastest = min(timings, key=lambda name: timings[name].median)
    ratio = paired_ratio(timings[fastest].samples, timings[_FOUND].samples)
    return {
        "seconds": {
            "found": timings[_FOUND].median,
            "default": timings["default"].median,
            "best known": timings[fastest].median,
        },
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
    }


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurements of one thread count as Markdown."""
    for row in found["rows"]:
        yield f"{row['work']}, {row['budget']:.0f} s:"
        yield ""
        yield "| after, s | best so far, ms | GFLOP/s |"
        yield "| --- | --- | --- |"
        for elapsed, seconds in row["curve"]:
            rate = row["floating"] / seconds / 1e9
            yield f"| {elapsed:.1f} | {seconds * 1e3:.3f} | {rate:.0f} |"
        ratio, seconds = row["ratio"], row["seconds"]
        yield ""
        yield (
            f"In turn: found {seconds['found'] * 1e3:.3f} ms, default "
            f"{seconds['default'] * 1e3:.3f} ms, best known "
            f"{seconds['best known'] * 1e3:.3f} ms: {100 * ratio['median']:.0f} % "
            f"[{100 * ratio['low']:.0f}, {100 * ratio['high']:.0f}] of the best known, "
            f"wanted {100 * WANTED:.0f} %."
        )
