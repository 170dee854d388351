"""`by_target`: what is added up at places from data, by groups of places."""

import numpy as np
import pytest

from tensorlang.errors import InterpreterError, ScheduleError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling import Schedule

ADD = """
def add(ids: i64[n], x: f32[n, 3], total: InOut[f32[5, 3]], *, n: i64):
    for p in range(n):
        for c in range(3):
            with block("add", vp=ordered(n, p), vc=spatial(3, c)):
                row: i64 = ids[vp]
                if row >= 0:
                    total[row, vc] = total[row, vc] + x[vp, vc]
"""
RNG = np.random.default_rng(0)


def outcome(func):
    ids = RNG.integers(-1, 5, 40)
    x, total = RNG.normal(size=(40, 3)).astype("f4"), np.zeros((5, 3), "f4")
    expected = np.zeros_like(total)
    for row, line in zip(ids, x, strict=True):
        if row >= 0:
            expected[row] += line
    run(func, ids, x, total, n=40)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_groups_at_once_add_up_in_the_same_order(groups):
    s = Schedule(parse(ADD))
    group = s.by_target("add", groups)
    s.reorder("c", "p")
    s.bind(group, "block.x")
    s.bind("c", "thread.x")
    outcome(s.function)


def test_groups_that_met_would_be_found():
    s = Schedule(parse(ADD))
    s.bind(s.by_target("add", 2), "block.x")
    wrong = parse(repr(s.function).replace("row % 2 == vgroup", "row % 2 >= vgroup"))
    with pytest.raises(InterpreterError, match=r"disjoint|race|wr"):
        outcome(wrong)


def test_what_has_no_places_from_data_stays():
    s = Schedule(parse(ADD.replace("total[row, vc]", "total[0, vc]")))
    with pytest.raises(ScheduleError, match="at one place from data"):
        s.by_target("add", 2)
    s = Schedule(parse(ADD.replace("+ x[vp, vc]", "+ total[0, vc]")))
    with pytest.raises(ScheduleError, match="at one place from data"):
        s.by_target("add", 2)
    with pytest.raises(ScheduleError, match="0 groups are none"):
        Schedule(parse(ADD)).by_target("add", 0)


def test_what_is_folded_beside_the_update_is_not_counted_group_by_group():
    folded = "reduce(sum, total[0, vc], f32(1.0))\n                row: i64"
    s = Schedule(parse(ADD.replace("row: i64", folded)))
    with pytest.raises(ScheduleError, match="also reduces"):
        s.by_target("add", 2)


def test_a_place_is_known_before_memory_is_used():
    text = """
def add(ids: i64[8], x: f32[8], seen: InOut[f32[8]], total: InOut[f32[4]]):
    for p in range(8):
        with block("add", vp=ordered(8, p)):
            seen[vp] = 1.0
            row: i64 = ids[vp]
            total[row] = total[row] + x[vp]
"""
    with pytest.raises(ScheduleError, match="'row', after the first use of memory"):
        Schedule(parse(text)).by_target("add", 2, of="total")


def test_places_of_other_stores_are_declared_to_differ():
    text = """
def move(bins: i64[n], x: f32[n], starts: i64[4], y: Out[f32[n]], *, n: i64):
    count = alloc(i64[4])
    for z in range(4):
        count[z] = starts[z]
    for e in range(n):
        with block("move", ve=ordered(n, e)):
            bin: i64 = bins[ve]
            place: i64 = count[bin]
            count[bin] = place + 1
            y[place] = x[ve]
"""
    s = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="has 2 stores to group"):
        s.by_target("move", 4)
    s.bind(s.by_target("move", 4, of="count"), "thread.x")
    bins = RNG.integers(0, 4, 20)
    x, y = RNG.normal(size=20).astype("f4"), np.zeros(20, "f4")
    starts = np.searchsorted(np.sort(bins), np.arange(4))
    run(s.function, bins, x, starts, y, n=20)
    np.testing.assert_array_equal(y, x[bins.argsort(kind="stable")])
    with pytest.raises(InterpreterError, match=r"disjoint|race|wr"):
        run(s.function, bins, x, np.zeros(4, "i8"), y, n=20)
