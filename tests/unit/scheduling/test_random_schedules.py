"""Random schedules of random nests: every step is refused or keeps the meaning."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from tensorlang.scheduling import PRIMITIVES

BATCHES = range(8, 25)  # at least so many, and on until every primitive has its share
CASES = 200  # in each batch
LEAST_ACCEPTED = 20  # of each primitive


@pytest.mark.long
def test_random_schedules_keep_the_meaning(programs: ModuleType, share: int) -> None:
    least = max(LEAST_ACCEPTED // share, 1)
    fuzzer = programs.fuzzers.fuzzer("schedules", "interpreter")
    seen: Counter[str] = Counter()
    for start in range(max(BATCHES)):
        seen += programs.fuzzing.search(fuzzer, start, CASES // share)
        if start + 1 >= min(BATCHES) and _least(seen) >= least:
            break
    taken = sum(seen[name] for name in PRIMITIVES)
    assert taken >= sum(seen[f"refused: {name}"] for name in PRIMITIVES), seen
    assert _least(seen) >= least, seen


def _least(seen: Counter[str]) -> int:
    """How often the primitive was accepted that was accepted least."""
    return min(seen[name] for name in PRIMITIVES)


def test_every_primitive_is_drawn(programs: ModuleType) -> None:
    assert programs.MOVES.keys() == PRIMITIVES.keys()
