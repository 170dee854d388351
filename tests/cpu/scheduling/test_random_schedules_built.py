"""Random schedules, compiled: two threads compute what the interpreter does."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tensorlang import targets
from tensorlang.ir.parser import parse
from tensorlang.ir.printer import show
from tensorlang.runtime import build
from tensorlang.targets import Target

CASES = 150


def test_random_schedules_compute_the_same_when_built(programs: ModuleType) -> None:
    tally = programs.Tally()
    target = replace(targets.host(), threads=2)

    @seed(7)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def schedules(data: st.DataObject) -> None:
        case = data.draw(programs.nests())
        func = programs.trial(data.draw, case, tally, most=5)
        _same_when_built(programs, case, func, target)

    schedules()
    assert tally.cases >= CASES, tally


def _same_when_built(
    programs: ModuleType, case: Any, func: Any, target: Target
) -> None:
    """Compare the arrays bit by bit at each of the sizes."""
    if "bound(" in show(func):
        return  # threads of a GPU
    kernel = build(func, target, store=False)
    for sizes, expected in zip(case.sizes, programs.outcomes(func, case), strict=True):
        arrays = programs.arrays(func, sizes)
        kernel(*arrays, *(sizes[free.name] for free in kernel.signature.free))
        for param, got, wanted in zip(func.params, arrays, expected, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=param.buffer.name)


def test_an_init_that_reads_what_its_loops_compute_stays_inside() -> None:
    func = parse("""
def biased(x: f32[1], w: f32[1], y: Out[f32[2, 2]]):
    for i in range(2):
        for k in range(1):
            for j in range(2):
                t = alloc(f32[3])
                for c in range(3):
                    with block("t", vc=spatial(3, c)):
                        t[vc] = w[0]
                with block("y", vi=spatial(2, i), vj=spatial(2, j), vk=reduction(1, k)):
                    with init():
                        y[vi, vj] = t[1] * 3.0
                    reduce(min, y[vi, vj], x[vk] - t[vj + vi])
""")
    x, w, y = np.float32([1]), np.float32([-1]), np.zeros((2, 2), np.float32)
    build(func, store=False)(x, w, y)
    np.testing.assert_array_equal(y, np.full((2, 2), -3))
