"""Suggestions by a schedule's cost model, and what measurements make of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import tensorlang.schedules  # noqa: F401 - what the fixture puts back, it must have
from tensorlang import targets
from tensorlang.ir.definitions.frontend import compute
from tensorlang.ops import find, operator
from tensorlang.schedules.library import SCHEDULES
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.knobs import Choice, Integer, Value
from tensorlang.tuner.search.ranking import Ranking, values_of
from tensorlang.tuner.search.search import Search
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.search.surrogate import Floats, Surrogate
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.workers.protocol import ILLEGAL, OK, Candidate, Outcome

FAMILY = "test_sampler"
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
Seconds = Callable[[Mapping[str, Value]], float]


class Kept:
    """Trials in a list."""

    unread, blind, trouble = 0, False, ""

    def share(self, _: Candidate) -> bool:
        return True

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def news(self) -> list[Row]:
        return list(self.rows)

    def claimed(self) -> list[Row]:
        return []

    def claim(self, _: Row) -> bool:
        return True

    def hold(self, row: Row) -> None:
        self.rows.append(row)

    def deliver(self) -> None:
        pass


@operator("test_sampler.copy", family=FAMILY)
def copy(x: Any) -> Any:
    return compute(x.shape, lambda i: x[i], name="y")


@pytest.fixture
def modelled() -> Iterator[Callable[[Seconds], Space]]:
    """A space of 1,000 points with a cost model, for one test."""
    before = dict(SCHEDULES)

    def make(cost: Seconds) -> Space:
        SCHEDULES.clear()
        SCHEDULES.update(before)

        @schedule(FAMILY)
        def body(s: Schedule, knobs: Knobs) -> None:
            sizes = [knobs.choice(name, SIZES) for name in "abc"]
            knobs.costs.append(cost)
            s.split("i", [None, *sizes])

        return Space(copy, copy.workload((1 << 20,), dtypes="f32"), targets.host())

    yield make
    SCHEDULES.clear()
    SCHEDULES.update(before)


def distance(knobs: Mapping[str, Value], *goal: int) -> float:
    """Seconds that grow with the distance from a point."""
    steps = [
        weight * abs(math.log2(int(knobs.get(name) or 1) / at))
        for name, at, weight in zip("abc", goal, (0.2, 0.21, 0.23), strict=True)
    ]
    return 1e-3 * (1 + sum(steps))


def times(space: Space, seconds: Seconds, most: int, seed: int = 0) -> list[float]:
    search, found = Search(space, Kept(), seed), []
    for suggestion in search.suggestions():
        if len(found) == most:
            break
        found.append(seconds(suggestion.candidate.knobs))
        search.file(suggestion, Outcome(OK, "", found[-1]))
    return found


def test_the_model_s_best_comes_right_after_the_default(modelled: Any) -> None:
    def model(knobs: Mapping[str, Value]) -> float:
        return distance(knobs, 16, 64, 4)

    default, first = times(modelled(model), model, 2)
    assert default == model({"a": 1, "b": 1, "c": 1})
    assert first == model({"a": 16, "b": 64, "c": 4}) == 1e-3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_measurements_correct_a_model_that_is_off(modelled: Any, seed: int) -> None:
    def model(knobs: Mapping[str, Value]) -> float:
        return distance(knobs, 16, 64, 4)

    def truth(knobs: Mapping[str, Value]) -> float:
        return distance(knobs, 16, 8, 32)

    found = times(modelled(model), truth, 40, seed)
    assert truth({"a": 16, "b": 64, "c": 4}) == pytest.approx(2.32e-3)
    assert min(found) <= 1.25e-3


def test_a_model_that_tells_nothing_apart_leaves_the_choice_to_tpe(
    modelled: Any,
) -> None:
    def truth(knobs: Mapping[str, Value]) -> float:
        return distance(knobs, 16, 8, 32)

    found = times(modelled(lambda _: 1.0), truth, 40)
    assert len(found) == 40
    assert min(found) < found[0]


def test_a_model_in_other_units_suggests_the_same(modelled: Any) -> None:
    def model(knobs: Mapping[str, Value]) -> float:
        return distance(knobs, 16, 64, 4)

    def cycles(knobs: Mapping[str, Value]) -> float:
        return 4e9 * model(knobs)

    assert times(modelled(model), model, 12) == times(modelled(cycles), model, 12)


def test_what_fails_is_left_alone(modelled: Any) -> None:
    """The model's best candidates have a knob at which all fail."""
    space = modelled(lambda knobs: distance(knobs, 128, 64, 4))
    search, failed, tried = Search(space, Kept(), 0), 0, 0
    for suggestion in search.suggestions():
        knobs, tried = suggestion.candidate.knobs, tried + 1
        outcome = Outcome(OK, "", distance(knobs, 16, 64, 4))
        if int(knobs["a"]) > 16:
            outcome, failed = Outcome(ILLEGAL, "too large"), failed + 1
        search.file(suggestion, outcome)
        if tried == 40:
            break
    assert failed < 20
    assert search.fastest() <= 1.25e-3


def raising(knobs: Mapping[str, Value]) -> float:
    if knobs["a"] == 4:
        raise ZeroDivisionError
    return float(int(knobs["a"] or 0))


@pytest.mark.parametrize(
    "cost",
    [
        raising,
        lambda _: math.nan,
        lambda _: -1.0,
        lambda _: 0.0,
        lambda _: math.inf,
        lambda _: "no number",
        lambda knobs: knobs["no such knob"],
        lambda knobs: math.inf if knobs["a"] == 1 else 1.0,
    ],
)
def test_a_model_that_fails_ends_no_search(modelled: Any, cost: Any) -> None:
    def truth(knobs: Mapping[str, Value]) -> float:
        return distance(knobs, 16, 8, 32)

    found = times(modelled(cost), truth, 20)
    assert len(found) == 20
    assert min(found) < found[0]


@operator("test_sampler.dependent", family=f"{FAMILY}.dependent")
def dependent(x: Any) -> Any:
    return compute(x.shape, lambda i: x[i], name="y")


@schedule(f"{FAMILY}.dependent")
def _dependent(s: Schedule, knobs: Knobs) -> None:
    """The options of a knob depend on another one."""
    size = knobs.choice("a", SIZES)
    knobs.choice("way", ["x", "y", "z"] if size > 8 else ["x", "y"])
    knobs.costs.append(lambda knobs: distance(knobs, 16, 64, 1))
    s.split("i", [None, size, knobs.choice("b", SIZES)])


def test_options_that_depend_on_other_knobs_end_no_search() -> None:
    workload = dependent.workload((1 << 20,), dtypes="f32")
    space = Space(dependent, workload, targets.host())
    found = times(space, lambda knobs: distance(knobs, 8, 8, 1), 40)
    assert len(found) == 40


def test_values_of_large_domains_are_spread() -> None:
    assert values_of(Choice((3, 1))) == (3, 1)
    assert values_of(Integer(2, 8, step=2)) == (2, 4, 6, 8)
    many = values_of(Integer(1, 4000))
    assert len(many) <= 24
    assert (many[0], many[-1]) == (1, 4000)
    powers = values_of(Integer(1, 4000, log=True))
    assert powers[1] - powers[0] < many[1] - many[0]
    assert (powers[0], powers[-1]) == (1, 4000)


def apart(places: Floats, others: Floats) -> Floats:
    found: Floats = np.abs(places[:, None] - others).sum(axis=2)
    return found


def test_the_surrogate_is_exact_where_it_was_told_and_unsure_elsewhere() -> None:
    places = np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]])
    residuals = np.array([0.0, 1.0, -1.0])
    learned = Surrogate(apart(places, places), residuals)
    between = learned.between(apart(places, places))
    mean, error = learned.mean(between), learned.error(between)
    assert mean == pytest.approx(residuals, abs=0.05)
    assert (error < 0.1).all()
    elsewhere = np.array([[0.0, 1.0]])
    between = learned.between(apart(elsewhere, places))
    (middle,), (unsure,) = learned.mean(between), learned.error(between)
    assert error.max() < unsure < learned.spread
    assert -1 < middle < 1


def test_one_measurement_is_enough_for_a_surrogate() -> None:
    learned = Surrogate(np.zeros((1, 1)), np.array([3.0]))
    between = learned.between(np.full((1, 1), 2.0))
    (mean,), (error,) = learned.mean(between), learned.error(between)
    assert mean == pytest.approx(3.0)
    assert error > 0.1


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("nn.dense", ((512, 512), (512, 512), (512,))),
        ("nn.dense", ((33, 777), (1025, 777), (1025,))),
        ("math.matmul", ((8, 128, 256), (8, 256, 192))),
    ],
)
def test_products_have_a_model_and_thousands_of_points(
    name: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    op = find(name)
    workload = op.workload(*shapes, dtypes="f32")
    space = Space(op, workload, targets.host().with_threads(2))
    default = space.default().candidate
    assert space.modelled == ["direct"]
    ranking = Ranking(space, "direct", 0)
    found = ranking.promising([])
    assert found is not None
    settings = found[1].knobs, default.knobs
    best, first = space.predicted("direct", settings)
    assert best <= first
    random = np.random.default_rng(0)
    legal, draws = set(), 15
    for _ in range(draws):
        knobs = {
            knob: options[int(random.integers(len(options)))]
            for knob, domain in space.domains["direct"].items()
            if (options := values_of(domain))
        }
        point = space.given(Candidate("direct", knobs))
        if point.outcome is None:
            legal.add(point.ir)
    assert space.size is not None
    assert space.size * len(legal) / draws >= 1000
