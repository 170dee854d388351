"""Four tuners, each a process with a simulated device, in a space of 500."""

from __future__ import annotations

from benchmarks.shared_search import BEST, together

SPACE = 500


def test_four_tuners_measure_a_whole_space_almost_without_duplicates(url: str) -> None:
    told = together(url, 4, 0, 0.02, whole=True)
    codes = {each.code for each in told}
    assert len(codes) == SPACE
    assert len(codes) / len(told) >= 0.95
    assert min(each.seconds for each in told) == BEST
