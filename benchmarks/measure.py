"""Measure the works of one thread count in this process; print JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from benchmarks import (
    attention_works,
    conv_works,
    layer_works,
    random_works,
    training_works,
)
from benchmarks.ceilings import Ceilings, ceilings
from benchmarks.work import Work
from tensorlang.tuner.measurement.rounds import Ratio, Timing, interleaved, paired_ratio

_REST: Final = (
    0.05  # seconds until threads of the previous call sleep, OpenBLAS's included
)
_FRESH, _INTO = "ours, fresh", "ours, into existing"


def measure(threads: int, rounds: int, only: str = "") -> dict[str, Any]:
    """Every work with this many threads, and the machine's limits before and after."""
    limits = ceilings(threads)
    rows = []
    every = (
        *random_works.works(threads),
        *layer_works.works(threads),
        *conv_works.works(threads),
        *attention_works.works(threads),
        *training_works.works(threads),
    )
    for name, make in every:
        if only in name:
            print(f"{threads} threads: {name}", file=sys.stderr)
            rows.append({"work": name} | _row(make(), rounds))
    return {"threads": threads, "limits": plain(limits), "rows": rows}


def plain(limits: Ceilings) -> dict[str, float]:
    """The limits by name."""
    return {name: getattr(limits, name) for name in Ceilings.__slots__}


def _row(work: Work, rounds: int) -> dict[str, Any]:
    calls: dict[str, Callable[[], object]] = {}
    if work.fresh is not None:
        calls[_FRESH] = work.fresh
    if work.into is not None:
        calls[_INTO] = work.into
    missing = {}
    for peer in work.peers:
        try:
            calls[peer.name] = peer.make()
        except (ImportError, RuntimeError, AttributeError) as problem:
            missing[peer.name] = str(problem).splitlines()[0][:200]
    for limit in work.limits:
        calls[limit.name] = limit.make()
    timings = interleaved(
        calls, rounds=rounds, min_sample=0.01, warm_up=0.3, rest=_REST
    )
    ours = timings.get(_INTO) or timings[_FRESH]
    return {
        "operator": work.operator,
        "floating": work.floating,
        "integer": work.integer,
        "moved": work.moved,
        "fastest": work.fastest,
        "seconds": {name: timing.median for name, timing in timings.items()},
        "spread": {name: timing.spread for name, timing in timings.items()},
        "ratios": _ratios(work, timings),
        "reached": {
            limit.name: _plain_ratio(
                paired_ratio(timings[limit.name].samples, ours.samples), limit.share
            )
            | {"floor": limit.floor}
            for limit in work.limits
        },
        "missing": missing,
        "memory": _memory(work),
    }


def _memory(work: Work) -> dict[str, int]:
    """Bytes by name; empty if not counted or the peer is missing."""
    try:
        return dict(work.memory()) if work.memory else {}
    except ImportError:
        return {}


def _plain_ratio(ratio: Ratio, scale: float = 1.0) -> dict[str, Any]:
    return {
        "median": ratio.median * scale,
        "low": ratio.low * scale,
        "high": ratio.high * scale,
    }


def _ratios(work: Work, timings: dict[str, Timing]) -> dict[str, Any]:
    found = {}
    for peer in work.peers:
        if peer.name not in timings:
            continue
        like = _FRESH if peer.fresh and _FRESH in timings else _INTO
        ours = timings.get(like) or timings[_FRESH]
        ratio = paired_ratio(timings[peer.name].samples, ours.samples)
        found[peer.name] = _plain_ratio(ratio) | {"against": like, "floor": peer.floor}
    return found
