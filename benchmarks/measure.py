"""Measure the works of one thread count in this process, and say so as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.limits import nontemporal_fill
from benchmarks.works import Work, works
from tensorlang.tuner.ceilings import Ceilings, ceilings
from tensorlang.tuner.rounds import Timing, interleaved, paired_ratio

FILL: Final = "fill"
_REST: Final = 0.02  # seconds: the threads of the call before have gone to sleep


def measure(threads: int, rounds: int, only: str = "") -> dict[str, Any]:
    """Every work with this many threads, and the machine's limits around it."""
    limits = ceilings(threads)
    rows = [_row(work, limits, rounds) for work in works(threads) if only in work.name]
    return {"threads": threads, "limits": _plain(limits), "rows": rows}


def _plain(limits: Ceilings) -> dict[str, float]:
    return {name: getattr(limits, name) for name in Ceilings.__slots__}


def _row(work: Work, limits: Ceilings, rounds: int) -> dict[str, Any]:
    calls: dict[str, Callable[[], object]] = {"ours, fresh": work.fresh}
    if work.into is not None:
        calls["ours, into existing"] = work.into
    missing = {}
    for peer in work.peers:
        try:
            calls[peer.name] = peer.make()
        except ImportError as problem:
            missing[peer.name] = str(problem)
    calls[FILL] = nontemporal_fill(work.written // 4)
    timings = interleaved(
        calls, rounds=rounds, min_sample=0.01, warm_up=0.3, rest=_REST
    )
    filled = timings.pop(FILL)
    ours = timings.get("ours, into existing", timings["ours, fresh"])
    reached = {"fill": paired_ratio(filled.samples, ours.samples).median}
    if work.integer_operations:
        limit = limits.integer_mix
        reached["integer limit"] = work.integer_operations / ours.median / limit
    return {
        "work": work.name,
        "threads": work.threads,
        "seconds": {name: timing.median for name, timing in timings.items()},
        "spread": {name: timing.spread for name, timing in timings.items()},
        "ratios": _ratios(work, timings),
        "reached": reached,
        "missing": missing,
    }


def _ratios(work: Work, timings: dict[str, Timing]) -> dict[str, Any]:
    found = {}
    for peer in work.peers:
        if peer.name not in timings:
            continue
        like = "ours, fresh" if peer.fresh else "ours, into existing"
        ours = timings.get(like, timings["ours, fresh"])
        ratio = paired_ratio(timings[peer.name].samples, ours.samples)
        found[peer.name] = {
            "median": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            "against": like,
            "floor": peer.floor,
        }
    return found
