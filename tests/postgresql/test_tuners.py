"""Four tuners, each a process with a simulated device, in a space of 500."""

from __future__ import annotations

from typing import Any

from benchmarks.shared_search import BEST, WHOLE, Task, through_outage, together

SPACE = 500


def test_four_tuners_measure_a_whole_space_almost_without_duplicates(url: str) -> None:
    told = together(url, 4, 0, Task(0.02, WHOLE))
    codes = {each.code for each in told}
    assert len(codes) == SPACE
    assert len(codes) / len(told) >= 0.95
    assert min(each.seconds for each in told) == BEST


def test_nothing_is_lost_and_little_measured_twice_while_the_server_is_away(
    server: Any, url: str
) -> None:
    told, stored = through_outage(server, url, 8)
    codes = {each.code for each in told}
    assert len(codes) == SPACE
    assert len(codes) / len(told) >= 0.9
    assert stored == codes
