"""`python -m benchmarks.gpu.measure WORK`: measure one work; print JSON at the end.

On a GPU each call is timed between events, alone and with cold caches, as the tuner
does (`tensorlang.tuner.measurement.timers`). Where that is impossible (no events can be
recorded in JAX's streams), many calls are queued and waited for once. Sides are
interleaved, and ratios are paired by round; the GPU's clocks are read with every
sample, which takes longer than a call: not while it is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from benchmarks.gpu import attention, calling, hashing, products, streaming
from benchmarks.gpu.works import Call, Sides, Stage, Work

OURS = "tensorlang"
# most informative first, as a run may be stopped at any time
WORKS = {
    work.name: work
    for work in (
        *products.WORKS,
        *attention.WORKS,
        *streaming.WORKS,
        *hashing.WORKS,
        *calling.WORKS,
    )
}
_BURST = 0.05  # seconds of queued calls
_MOST = 256  # a stream's queue holds some thousand


def burst(calls: Sequence[Call], wait: Callable[[], None], count: int) -> Call:
    """Queue `count` calls, cycling through sets of arrays, and wait for the last."""

    def run() -> None:
        for number in range(count):
            calls[number % len(calls)]()
        wait()

    return run


def calls_for(calls: Sequence[Call], stage: Stage) -> int:
    """The number of calls in a burst; each was called before."""
    for call in calls:
        call()
    stage.wait()
    begun = time.perf_counter()
    calls[0]()
    stage.wait()
    once = max(time.perf_counter() - begun, 1e-6)
    return max(len(calls), min(int(_BURST / once), _MOST))


def in_turn(calls: Sequence[Call]) -> Call:
    """A call that cycles through the sets of arrays."""
    following = cycle(calls)

    def run() -> object:
        return next(following)()

    return run


def measured(work: Work, stage: Stage, rounds: int) -> dict[str, Any]:
    """The work's times by side, and the ratios of other sides' times over ours.

    Raises:
        ArithmeticError: a side's result is wrong.
    """
    from tensorlang.tuner.measurement.rounds import paired_ratio

    sides = work.make(stage)
    errors = {name: check() for name, check in sides.checks.items()}
    for name, error in errors.items():
        if not error <= 1.0:
            raise ArithmeticError(
                f"{work.name}: {name} has an error of {error:.3g} times what is allowed"
            )
    on_device = not work.queued
    timings, about = (_by_marks if on_device else _by_bursts)(sides, stage, rounds)
    samples = {
        name: [each * sides.shares.get(name, 1.0) for each in times]
        for name, times in timings.items()
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
        "how": "by its own clock, cold" if on_device else "queued",
        "samples": samples,
        "ratios": {n: [r.median, r.low, r.high] for n, r in ratios.items()},
        "wanted": dict(work.wanted),
        "moved": work.moved(stage),
        "operations": work.operations(stage),
        "limit": work.limit,
        "errors": errors,
        **about,
    }


Times = Mapping[str, Sequence[float]]


def _by_marks(sides: Sides, stage: Stage, rounds: int) -> tuple[Times, dict[str, Any]]:
    """Seconds between GPU events, and their conditions."""
    from tensorlang import targets
    from tensorlang.tuner.measurement.timers import CudaTimer

    timer = CudaTimer(targets.get(stage.target))
    calls = {name: in_turn(made) for name, made in sides.calls.items()}
    found = timer.against(calls, rounds)
    about = _about({name: timing.states for name, timing in found.items()})
    about["measured"] = timer.measured(found.values())
    return {name: timing.samples for name, timing in found.items()}, about


def _by_bursts(sides: Sides, stage: Stage, rounds: int) -> tuple[Times, dict[str, Any]]:
    """Seconds by the host's clock, for calls that were queued together."""
    from tensorlang import targets
    from tensorlang.tuner.measurement.rounds import interleaved
    from tensorlang.tuner.measurement.telemetry import reader

    counts = {name: calls_for(calls, stage) for name, calls in sides.calls.items()}
    target = targets.get(stage.target)
    read = reader(target.index)
    states: dict[str, list[Any]] = {name: [] for name in sides.calls}
    seconds: dict[str, list[float]] = {name: [] for name in sides.calls}

    def sampled(name: str) -> Call:
        def wait() -> None:
            states[name].append(read())  # read while the GPU is busy
            stage.wait()

        timed = burst(sides.calls[name], stage.wait, counts[name])
        again = burst(sides.calls[name], wait, counts[name])

        def sample() -> None:
            begun = time.perf_counter()
            timed()
            seconds[name].append((time.perf_counter() - begun) / counts[name])
            again()

        return sample

    interleaved(
        {name: sampled(name) for name in sides.calls},
        rounds=rounds,
        min_sample=0.0,
        warm_up=0.1,
    )
    times = {name: each[-rounds:] for name, each in seconds.items()}
    about = _about({name: each[-rounds:] for name, each in states.items()})
    about["measured"] = f"{target.device}, {target.driver}"
    return times, about


def _about(states: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The clocks of each side's samples, and how many were throttled."""
    from tensorlang.tuner.measurement.telemetry import described

    return {
        "clocks": {name: described(each) for name, each in states.items()},
        "slowed": {
            name: sum(bool(state and state.slowed) for state in each)
            for name, each in states.items()
        },
        "mhz": {
            name: [state.sm_mhz if state else 0 for state in each]
            for name, each in states.items()
        },
    }


def main() -> None:
    """Measure a work, and print the result as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.measure")
    parser.add_argument("work", choices=sorted(WORKS), nargs="?")
    parser.add_argument(
        "--list", action="store_true", help="list the works and what to tune"
    )
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    stage = Stage(given.target, given.scale)
    if given.list or not given.work:
        plan = {
            name: {"tuned": work.tuned(stage), "weight": work.weight}
            for name, work in WORKS.items()
        }
        print(json.dumps(plan))
        return
    try:
        result = measured(WORKS[given.work], stage, given.rounds)
    except Exception as problem:  # noqa: BLE001 - reported in a line
        sys.exit(f"{type(problem).__name__}: {' '.join(str(problem).split())[:400]}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
