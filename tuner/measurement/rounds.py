"""Interleaved timing: paired ratios with confidence intervals.

A shared machine drifts by tens of percent within an hour, so candidates are compared
only within a round: each round times every candidate once, in rotating order, and a
ratio is the median of the rounds' ratios with a distribution-free 95 % interval.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from tensorlang.tuner.measurement.telemetry import State

Clock = Callable[[], int]


@frozen
class Ratio:
    """Slower over faster, paired by round: the median and its 95 % interval."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f}x [{self.low:.2f}, {self.high:.2f}]"


@frozen
class Timing:
    """Seconds per call: one sample per round, and the calls per sample.

    `states` are those of the GPU at each sample, if available.
    """

    samples: tuple[float, ...]
    calls: int
    states: tuple[State | None, ...] = ()

    @property
    def median(self) -> float:
        """The median sample, in seconds."""
        return median(self.samples)

    @property
    def spread(self) -> float:
        """Half the interquartile range over the median; 0 for a single sample."""
        ordered = sorted(self.samples)
        quarter = len(ordered) // 4
        width = ordered[-1 - quarter] - ordered[quarter]
        return width / 2 / self.median if self.median else 0.0


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 11,
    min_sample: float = 0.02,
    warm_up: float = 0.1,
    rest: float = 0.0,
    clock: Clock = time.perf_counter_ns,
) -> dict[str, Timing]:
    """Time the candidates against each other.

    Args:
        candidates: Synchronous calls by name.
        rounds: Samples per candidate.
        min_sample: Minimum seconds per sample; short calls are repeated.
        warm_up: Seconds of warm-up per candidate.
        rest: Seconds to wait before each sample, so that spinning threads of the
            previous candidate go to sleep.
        clock: A nanosecond clock.
    """
    calls = {
        name: _calls_for(call, min_sample, warm_up, clock)
        for name, call in candidates.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for number in range(rounds):
        turn = number % len(order)
        for name in order[turn:] + order[:turn]:
            time.sleep(rest)
            samples[name].append(_sample(candidates[name], calls[name], clock))
    return {name: Timing(tuple(samples[name]), calls[name]) for name in candidates}


def _sample(call: Callable[[], object], calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls * 1e-9


def _calls_for(
    call: Callable[[], object], min_sample: float, warm_up: float, clock: Clock
) -> int:
    """Warm up, and find the number of calls per sample.

    The first call is ignored, since it may build something.
    """
    call()
    deadline = clock() + int(warm_up * 1e9)
    calls = 1
    while True:
        start = clock()
        for _ in range(calls):
            call()
        elapsed = (clock() - start) * 1e-9
        if elapsed >= min_sample:
            if clock() >= deadline:
                return calls
        else:
            grown = calls * min_sample / max(elapsed, 1e-9) * 1.2
            calls = max(calls + 1, min(int(grown), calls * 10))


def paired_ratio(slower: Sequence[float], faster: Sequence[float]) -> Ratio:
    """The ratio `slower / faster`, paired by round.

    The interval is that of the median by order statistics: with n rounds, the k-th
    smallest and largest ratio, k from the binomial distribution.
    """
    ratios = sorted(a / b for a, b in zip(slower, faster, strict=True))
    k = _interval_rank(len(ratios))
    return Ratio(median(ratios), ratios[k], ratios[-1 - k], len(ratios))


def _interval_rank(n: int) -> int:
    """The largest k with P(fewer than k+1 of n coins are heads) <= 2.5 %."""
    total, k = 0.0, 0
    for k in range(n):
        total += math.comb(n, k) / 2**n
        if total > 0.025:
            break
    return max(k - 1, 0)


def beats(challenger: Timing, incumbent: Timing) -> bool:
    """Whether the challenger is significantly faster: the whole interval is above 1."""
    return paired_ratio(incumbent.samples, challenger.samples).low > 1.0
