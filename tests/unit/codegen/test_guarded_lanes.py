"""Guards around the loops that do not change them, and of all lanes of a vector."""

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import For, If
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk

GPU = targets.get("cuda:sm_90a")

COLUMNS = """
def columns(x: f32[8, n], y: Out[f32[8, n]], *, n: i64):
    for b in bound((n + 31) // 32, "block.x"):
        for t in bound(32, "thread.x"):
            for i in unrolled(8):
                if {cond}:
                    y[i, b * 32 + t] = x[i, b * 32 + t] + 1.0
"""


@pytest.mark.parametrize(
    ("cond", "outside"),
    [
        ("b * 32 + t < n", True),
        ("b * 32 + t < n - i // 8", True),
        ("i < n - b * 32 - t", False),
    ],
)
def test_a_guard_stands_around_what_it_does_not_depend_on(cond, outside):
    lowered = lower(parse(COLUMNS.format(cond=cond)), GPU)
    verify(lowered)
    guards = [n for n in walk(lowered) if isinstance(n, If)]
    assert any(isinstance(g.then, For) for g in guards) == outside


def test_guarded_columns_are_what_they_were():
    lowered = lower(parse(COLUMNS.format(cond="b * 32 + t < n")), GPU)
    x = np.arange(8 * 45, dtype="f4")
    y = np.zeros_like(x)
    run(lowered, x, y, n=45)
    np.testing.assert_array_equal(y, x + 1)


PAIRS = """
def pairs(x: f32[n * {size}], y: Out[f32[n * {size}]], *, n: i64):
    for b in bound((n * {size} + 63) // 64, "block.x"):
        for t in bound(32, "thread.x"):
            for lane in vectorized(2):
                if b * 64 + t * 2 + lane < n * {size}:
                    y[b * 64 + t * 2 + lane] = x[b * 64 + t * 2 + lane] * 2.0
"""


@pytest.mark.parametrize(("size", "tails"), [(196, 0), (49, 1)])
def test_a_pair_of_an_even_number_is_inside_or_outside(size, tails):
    lowered = lower(parse(PAIRS.format(size=size)), GPU)
    verify(lowered)
    guards = [n for n in walk(lowered) if isinstance(n, If)]
    assert sum(g.orelse is not None for g in guards) == tails
    x = np.arange(3 * size, dtype="f4")
    y = np.zeros_like(x)
    run(lowered, x, y, n=3)
    np.testing.assert_array_equal(y, x * 2)
