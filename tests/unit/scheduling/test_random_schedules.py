"""Random schedules of random nests: every step is refused or keeps the meaning."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

from tensorlang.scheduling import PRIMITIVES

BATCHES = 4
CASES = 400  # in each batch
LEAST_ACCEPTED = 20  # of each primitive


def test_random_schedules_keep_the_meaning(programs: ModuleType) -> None:
    fuzzer = programs.fuzzers.fuzzer("schedules", "interpreter")
    seen: Counter[str] = Counter()
    for start in range(BATCHES):
        seen += programs.fuzzing.search(fuzzer, start, CASES)
    taken = {name: seen[name] for name in PRIMITIVES}
    refused = {name: seen[f"refused: {name}"] for name in PRIMITIVES}
    assert sum(taken.values()) >= sum(refused.values()), seen
    assert min(taken.values()) >= LEAST_ACCEPTED, seen


def test_every_primitive_is_drawn(programs: ModuleType) -> None:
    assert programs.MOVES.keys() == PRIMITIVES.keys()
