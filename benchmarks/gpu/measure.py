"""`python -m benchmarks.gpu.measure WORK`: one work, in this process; JSON at the end.

Each side's calls are queued many at a time and waited for once, so that what is timed
is the device's work; sides take turns, and ratios are paired by round.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.gpu import hashing, products, streaming
from benchmarks.gpu.works import Call, Stage, Work

OURS = "tensorlang"
WORKS = {
    work.name: work for work in (*streaming.WORKS, *hashing.WORKS, *products.WORKS)
}
_BURST = 0.05  # seconds that calls are queued for
_MOST = 64


def burst(calls: Sequence[Call], wait: Callable[[], None], count: int) -> Call:
    """So many calls, round the sets of arrays, and a wait for the last."""

    def run() -> None:
        for number in range(count):
            calls[number % len(calls)]()
        wait()

    return run


def calls_for(calls: Sequence[Call], stage: Stage) -> int:
    """How many calls fill a burst; each was called before."""
    for call in calls:
        call()
    stage.wait()
    begun = time.perf_counter()
    calls[0]()
    stage.wait()
    once = max(time.perf_counter() - begun, 1e-6)
    return max(len(calls), min(int(_BURST / once), _MOST))


def measured(work: Work, stage: Stage, rounds: int) -> dict[str, Any]:
    """The work's times by side, and the ratios of the others' times over ours.

    Raises:
        ArithmeticError: our result is not what the others compute.
    """
    from tensorlang.tuner.rounds import interleaved, paired_ratio

    sides = work.make(stage)
    error = sides.check()
    if not error <= 1.0:
        raise ArithmeticError(f"{work.name}: off by {error:.3g} times what is allowed")
    counts = {name: calls_for(calls, stage) for name, calls in sides.calls.items()}
    bursts = {
        name: burst(calls, stage.wait, counts[name])
        for name, calls in sides.calls.items()
    }
    timings = interleaved(bursts, rounds=rounds, min_sample=0.0, warm_up=0.1)
    samples = {
        name: [each / counts[name] * sides.shares.get(name, 1.0) for each in t.samples]
        for name, t in timings.items()
    }
    ratios = {
        name: paired_ratio(times, samples[OURS])
        for name, times in samples.items()
        if name != OURS
    }
    return {
        "work": work.name,
        "target": stage.target,
        "scale": stage.scale,
        "samples": samples,
        "ratios": {n: [r.median, r.low, r.high] for n, r in ratios.items()},
        "wanted": dict(work.wanted),
        "moved": work.moved(stage),
        "operations": work.operations(stage),
        "error": error,
    }


def main() -> None:
    """Measure a work, and print what came of it as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.measure")
    parser.add_argument("work", choices=sorted(WORKS), nargs="?")
    parser.add_argument("--list", action="store_true", help="works, and what to tune")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    stage = Stage(given.target, given.scale)
    if given.list or not given.work:
        print(json.dumps({name: work.tuned(stage) for name, work in WORKS.items()}))
        return
    try:
        result = measured(WORKS[given.work], stage, given.rounds)
    except Exception as problem:  # noqa: BLE001 - told in a line, by whatever raises
        sys.exit(f"{type(problem).__name__}: {' '.join(str(problem).split())[:400]}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
