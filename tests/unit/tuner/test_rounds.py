"""Interleaved timing and paired ratios, on a clock that the test turns by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorlang.tuner.measurement.rounds import Timing, beats, interleaved, paired_ratio


class FakeClock:
    """Time that passes only when a candidate runs; `drift` slows the machine down."""

    def __init__(self, drift: float = 1.0) -> None:
        self.now = 0.0
        self.speed = 1.0
        self.drift = drift

    def __call__(self) -> int:
        return int(self.now)

    def costing(self, nanoseconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += nanoseconds * self.speed
            self.speed *= self.drift

        return call


def test_samples_are_seconds_a_call_however_often_it_was_called() -> None:
    clock = FakeClock()
    timing = interleaved({"a": clock.costing(1000)}, rounds=3, clock=clock)["a"]
    assert timing.median == pytest.approx(1e-6)
    assert timing.calls * 1000 >= 0.02 * 1e9
    assert len(timing.samples) == 3


def test_a_first_call_that_builds_tells_nothing_about_the_next() -> None:
    clock = FakeClock()
    build, run = clock.costing(3e8), clock.costing(1000)
    calls = iter([build])

    def call() -> None:
        next(calls, run)()

    timing = interleaved({"a": call}, rounds=3, clock=clock)["a"]
    assert timing.calls * 1000 >= 0.02 * 1e9
    assert timing.median == pytest.approx(1e-6)


def test_a_drifting_machine_does_not_move_the_ratio() -> None:
    clock = FakeClock(drift=1.01)
    calls = {"slow": clock.costing(3e7), "fast": clock.costing(1e7)}
    result = interleaved(calls, rounds=12, warm_up=0.0, clock=clock)
    ratio = paired_ratio(result["slow"].samples, result["fast"].samples)
    assert ratio.low <= 3.0 <= ratio.high
    assert ratio.median == pytest.approx(3.0, rel=0.02)
    assert result["slow"].samples[-1] > 1.2 * result["slow"].samples[0]


def test_the_interval_is_that_of_the_median_by_order_statistics() -> None:
    ratios = [float(n) for n in range(1, 12)]
    ratio = paired_ratio(ratios, [1.0] * 11)
    assert (ratio.median, ratio.low, ratio.high) == (6.0, 2.0, 10.0)


def test_only_a_win_beyond_the_noise_counts() -> None:
    noisy = Timing((1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9, 1.0, 1.0, 1.0), 1)
    same = Timing((1.0, 1.0, 1.0, 0.95, 1.0, 1.1, 0.9, 1.05, 1.0, 1.0, 0.99), 1)
    faster = Timing(tuple(s * 0.8 for s in noisy.samples), 1)
    assert not beats(same, noisy)
    assert beats(faster, noisy)
    assert not beats(noisy, faster)
