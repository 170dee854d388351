"""Sizes in a launch that runs: its grid says what they are at least."""

import pytest

from tensorlang.codegen.simt.nonempty import sizes_in_launch
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.nodes import Binary, Var

M, N = Var("m", i64), Var("n", i64)
UNKNOWN = {M: (0, 100), N: (0, None)}


@pytest.mark.parametrize(
    ("extent", "m", "n"),
    [
        (M, 1, 0),
        (M * ((N + 511) // 512), 1, 1),
        ((M * N + 255) // 256, 1, 1),
        (N // 16, 0, 16),
        ((N + 3) // 16, 0, 13),
        ((N + 15) >> 3, 0, 0),
        (N.cast(i32).cast(i64) * 2, 0, 1),
        (Binary("min", M, N), 1, 1),
        (Binary("max", M, N), 0, 0),
        (N + M, 0, 0),
        (N - 5, 0, 0),
    ],
)
def test_what_a_grid_tells(extent, m, n):
    found = sizes_in_launch([extent], UNKNOWN)
    assert found == {M: (m, 100), N: (n, None)}
