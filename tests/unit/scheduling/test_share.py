"""`share`: one copy for several readers."""

import numpy as np
import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling import Schedule

TWICE = """
def twice(x: f32[4, 6], y: Out[f32[4]], z: Out[f32[4, 6]]):
    for i in range(4):
        for k in range(6):
            with block("y", vi=spatial(4, i), vk=reduction(6, k)):
                reduce(sum, y[vi], x[vi, vk])
        for j in range(6):
            with block("z", wi=spatial(4, i), wj=spatial(6, j)):
                z[wi, wj] = x[wi, wj] * 2.0
"""


def copied(text=TWICE, readers=("y", "z"), at="i"):
    s = Schedule(parse(text))
    return s, [s.cache_read(name, "x", "global", at=at)[1] for name in readers]


def test_readers_of_both_read_the_first():
    s, (first, second) = copied()
    s.share(first, second)
    assert [b.name for b in allocations(s.function)] == [first]
    x = np.arange(24, dtype="f4").reshape(4, 6)
    y, z = np.zeros(4, "f4"), np.zeros((4, 6), "f4")
    run(s.function, x, y, z)
    np.testing.assert_array_equal(y, x.sum(1))
    np.testing.assert_array_equal(z, 2 * x)
    again = Schedule(parse(TWICE))
    again.replay(s.trace)
    assert again.function == s.function


def test_what_differs_stays():
    s, (first, second) = copied(TWICE.replace("x[wi, wj]", "x[3 - wi, wj]"))
    with pytest.raises(ScheduleError, match="do not hold the same"):
        s.share(first, second)
    s, (first, second) = copied()
    with pytest.raises(ScheduleError, match="is filled after"):
        s.share(second, first)
    s = Schedule(parse(TWICE))
    first = s.cache_read("y", "x", "global")[1]
    second = s.cache_read("z", "x", "global", at="i")[1]
    with pytest.raises(ScheduleError, match="not allocated in one sequence"):
        s.share(first, second)


def test_what_may_have_changed_between_is_copied_again():
    text = """
def changed(x: InOut[f32[4]], y: Out[f32[4]], z: Out[f32[4]]):
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = x[vi]
    for j in range(4):
        with block("x", vj=spatial(4, j)):
            x[vj] = x[vj] + 1.0
    for k in range(4):
        with block("z", vk=spatial(4, k)):
            z[vk] = x[vk]
"""
    s, (first, second) = copied(text, at=None)
    with pytest.raises(ScheduleError, match="may differ between its copies"):
        s.share(first, second)
