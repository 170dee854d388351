"""Small kernels from IR text to machine code, against NumPy."""

import numpy as np


def test_rows_reduced_by_a_parallel_loop(build):
    kernel = build("""
def rows(x: f32[n, 64], y: Out[f32[n]], *, n: i64):
    for i in parallel(n):
        for k in range(64):
            with block("b", vi=spatial(n, i), vk=reduction(64, k)):
                reduce(sum, y[vi], x[vi, vk] * x[vi, vk])
""")
    x = np.random.default_rng(0).normal(size=(37, 64)).astype(np.float32)
    for team in (1, 3, 50):
        y = np.full(37, np.nan, np.float32)
        assert kernel(x, y, n=37, team=team) == 0
        np.testing.assert_allclose(y, (x * x).sum(1), rtol=1e-5)
    assert kernel.query("team", x, y, n=37) == 37
    assert kernel.query("workspace", x, y, n=37) == 0


def test_vector_lanes_beyond_the_end_are_masked(build):
    kernel = build("""
def relu2(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in parallel((n + 15) // 16):
        for v in vectorized(16):
            with block("b", vi=spatial(n, i * 16 + v), where=i * 16 + v < n):
                y[vi] = max(x[vi], 0.0) * 2.0
""")
    rng = np.random.default_rng(0)
    for n in (0, 1, 15, 16, 17, 100):
        x = rng.normal(size=n).astype(np.float32)
        y = np.full(n + 8, 7, np.float32)
        assert kernel(x, y, n=n, team=2) == 0
        np.testing.assert_array_equal(y[:n], np.maximum(x, 0) * 2)
        np.testing.assert_array_equal(y[n:], 7)
