"""What is proved about loops over parts of symbolic lengths; shapes are not shared."""

from __future__ import annotations

import pytest

from tensorlang.ir import compute, function, placeholder, show, size, verify
from tensorlang.ir.integers.bounds import prove
from tensorlang.ir.nodes import Var

N, K, LANE = Var("n"), Var("k"), Var("lane")


@pytest.mark.parametrize(
    "length", [N, N - 100, (N + 8191) // 8192, N - N // 8192 * 8192]
)
def test_whole_steps_stay_inside_of_any_length(length):
    ranges = {N: (0, None), K: (0, length // 64 - 1), LANE: (0, 63)}
    at = K * 64 + LANE
    assert prove(at < length, ranges) is True
    assert prove(at < length - 1, ranges) is None


def test_shapes_of_tensors_are_no_part_of_what_is_shared():
    n = size("n")
    shape = ((n + 7) // 8,)
    x, z = placeholder(shape, "f32", "x"), placeholder(shape, "f32", "z")
    func = function("f", [x, z], [compute(shape, lambda i: x[i] * z[i], "y")])
    verify(func)
    assert "y[vi] = x[vi] * z[vi]" in show(func)
