"""Random schedules, compiled: two threads compute what the interpreter does."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from tensorlang.ir.text.parser import parse
from tensorlang.runtime import build

CASES = 150


def test_random_schedules_compute_the_same_when_built(
    programs: ModuleType, share: int
) -> None:
    fuzzer = programs.fuzzers.fuzzer("schedules", "llvm")
    programs.fuzzing.search(fuzzer, 7, CASES // share)


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
