"""Four tuners, each a process with a simulated device, in a space of 500."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.shared_search import BEST, together
from tensorlang.tuner.storage import studies

SPACE = 500


def test_four_tuners_measure_a_whole_space_almost_without_duplicates(url: str) -> None:
    told = together(url, 4, 0, 0.02, whole=True)
    codes = {each.code for each in told}
    assert len(codes) == SPACE
    assert len(codes) / len(told) >= 0.95
    assert min(each.seconds for each in told) == BEST


def test_nothing_is_lost_and_little_measured_twice_while_the_server_is_away(
    server: Any, url: str
) -> None:
    before = studies.counts(url)

    def new() -> dict[str, int]:
        return {n: c for n, c in studies.counts(url).items() if n not in before}

    with ThreadPoolExecutor() as pool:
        running = pool.submit(together, url, 4, 1, 0.1, whole=True)
        while sum(new().values()) < 50:
            time.sleep(0.2)
        server.stop()
        time.sleep(8)
        server.start()
        told = running.result()
    codes = {each.code for each in told}
    assert len(codes) == SPACE
    assert len(codes) / len(told) >= 0.9
    (study,) = new()
    stored = studies.trials(url, studies.named(url, study))
    assert {trial.row.outcome.ir for trial in stored if trial.row} == codes
