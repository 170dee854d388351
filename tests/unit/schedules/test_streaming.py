"""Long loops in vectors: whole units of work, a rest, or less than one unit."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir import compute, function, placeholder, run
from tensorlang.schedules.streaming import Stream, stream
from tensorlang.scheduling import Schedule

HOW = Stream(lanes=8, chunk=4, nontemporal=False)


@pytest.mark.parametrize(("length", "inner"), [(5, 1), (31, 1), (64, 1), (77, 2)])
def test_any_length_is_streamed(length, inner):
    x = placeholder((length,), "f32", "x")
    func = function("double", [x], [compute((length,), lambda i: x[i] * 2.0, "y")])
    s = Schedule(func)
    assert len(stream(s, s.loops("y")[0], HOW)) == inner
    held = np.arange(length, dtype=np.float32)
    made = np.zeros(length, np.float32)
    run(s.function, held, made)
    np.testing.assert_array_equal(made, held * 2)
