"""Random schedules of random nests: every step is refused or keeps the meaning."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tensorlang.scheduling import PRIMITIVES

BATCHES = 4
CASES = 300  # in each batch
LEAST_ACCEPTED = 20


def test_random_schedules_keep_the_meaning(programs: ModuleType) -> None:
    tally = programs.Tally()
    for number in range(BATCHES):
        _batch(programs, tally, number)()
    assert tally.cases >= 1000, tally
    assert tally.share >= 0.5, tally
    assert all(tally.accepted[name] >= LEAST_ACCEPTED for name in PRIMITIVES), tally


def _batch(programs: ModuleType, tally: object, number: int) -> Callable[[], None]:
    @seed(number)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def schedules(data: st.DataObject) -> None:
        programs.trial(data.draw, data.draw(programs.nests()), tally)

    return schedules  # type: ignore[no-any-return]


def test_every_primitive_is_drawn(programs: ModuleType) -> None:
    assert programs.MOVES.keys() == PRIMITIVES.keys()
