"""Accesses to permuted lanes: contiguous ones, with the same results."""

import numpy as np
import pytest

from tensorlang.codegen.lower import lower
from tensorlang.ir import parse
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Load, Ramp, Shuffle, Store
from tensorlang.ir.visit import walk
from tensorlang.targets import host

PROGRAM = """
def f(x: i32[64], y: InOut[i32[64]]):
    for i in range(4):
        for e in vectorized(16):
            y[i * 16 + ({to})] = x[i * 16 + ({of})]
"""


@pytest.mark.parametrize(
    ("to", "of", "shuffles"),
    [
        ("e ^ 4", "e", 1),
        ("e", "15 - (e ^ 3)", 1),
        ("15 - e", "e ^ 9", 2),
        ("e", "e", 0),
        ("e ^ 0", "e + 0", 0),  # in order, though written otherwise
        ("e", "e & 7", 0),  # some elements twice: a gather
    ],
)
def test_permuted_lanes(to, of, shuffles):
    function = parse(PROGRAM.format(to=to, of=of))
    x = np.arange(64, dtype="i4") * 3
    wanted, got = np.zeros(64, "i4"), np.zeros(64, "i4")
    run(function, x, wanted)
    made = lower(function, host())
    run(made, x, got, tid=0, team=1)
    np.testing.assert_array_equal(got, wanted)
    assert sum(isinstance(node, Shuffle) for node in walk(made)) == shuffles
    indices = [n.indices[0] for n in walk(made) if isinstance(n, (Load, Store))]
    assert all(isinstance(index, Ramp) for index in indices) == (of != "e & 7")
