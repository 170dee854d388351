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


def test_stages_meet_at_barriers(build):
    kernel = build("""
def stages(x: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[n])
    s = alloc(f32[1])
    for i in parallel(n):
        t[i] = x[i] * 2.0
    for i1 in range(n):
        with block("b", vi=reduction(n, i1)):
            reduce(sum, s[0], t[vi])
    for r in range(3):
        for i2 in parallel(n):
            y[i2] = t[i2] - s[0]
        for i3 in parallel(n):
            t[i3] = y[n - 1 - i3]
""")
    x = np.random.default_rng(0).integers(-4, 5, 1000).astype(np.float32)
    want = x * 2
    total = want.sum()
    for _ in range(3):
        last = want - total
        want = last[::-1]
    for team in (1, 3):
        y = np.zeros(1000, np.float32)
        assert kernel(x, y, n=1000, team=team) == 0
        np.testing.assert_array_equal(y, last)
    assert kernel.query("workspace", x, y, n=1000) == 4032 + 64


def test_each_thread_has_its_own_piece_of_the_workspace(build):
    kernel = build("""
def rows(x: f32[8, n], y: Out[f32[8, n]], *, n: i64):
    for i in parallel(8):
        t = alloc(f32[n])
        for j in range(n):
            t[j] = x[i, n - 1 - j]
        for j1 in range(n):
            y[i, j1] = t[j1] + 1.0
""")
    x = np.random.default_rng(0).normal(size=(8, 20)).astype(np.float32)
    y = np.zeros_like(x)
    kernel(x, y, n=20, team=2)
    np.testing.assert_array_equal(y, x[:, ::-1] + np.float32(1))
    assert kernel.query("team", x, y, n=20) == 2
    assert kernel.query("workspace", x, y, n=20) == 2 * 128


def test_a_failed_check_is_reported_and_nothing_outside_is_read(build):
    kernel = build("""
def rows(at: i64[n], t: f32[50, 16], y: Out[f32[n, 16]], *, n: i64):
    for i in parallel(n):
        r: i64 = at[i]
        evaluate(check((r >= 0) & (r < 50), 3))
        if (r >= 0) & (r < 50):
            for j in vectorized(16):
                y[i, j] = t[r, j]
""")
    t = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    at = np.array([3, 49, 0])
    y = np.zeros((3, 16), np.float32)
    assert kernel(at, t, y, n=3, team=2) == 0
    np.testing.assert_array_equal(y, t[at])
    for bad in (-1, 50, 1 << 60):
        assert kernel(np.array([3, 49, bad]), t, y, n=3, team=2) == 3


def test_checks_in_lanes_ignore_masked_ones(build):
    kernel = build("""
def lanes(at: i64[n], y: Out[f32[n]], *, n: i64):
    for i in range((n + 7) // 8):
        for v in vectorized(8):
            if i * 8 + v < n:
                evaluate(check(at[i * 8 + v] == 1, 9))
                y[i * 8 + v] = 1.0
""")
    y = np.zeros(11, np.float32)
    assert kernel(np.ones(11, np.int64), y, n=11) == 0
    assert y.sum() == 11
    assert kernel(np.arange(11), y, n=11) == 9


def test_lanes_of_any_number_are_summed(build):
    kernel = build("""
def sums(x: f32[n, m], y: Out[f32[n]], *, n: i64, m: i64):
    for i in parallel(n):
        for k in vectorized(m):
            with block("b", vi=spatial(n, i), vk=reduction(m, k)):
                reduce(sum, y[vi], x[vi, vk])
""")
    for m in (1, 15, 16, 100):
        x = np.random.default_rng(m).integers(-4, 5, (5, m)).astype(np.float32)
        y = np.zeros(5, np.float32)
        kernel(x, y, n=5, m=m)
        np.testing.assert_array_equal(y, x.sum(1))


def test_online_softmax(build):
    kernel = build("""
def softmax(x: f32[n, 64], z: Out[f32[n, 64]], *, n: i64):
    for i in parallel(n):
        m = alloc(f32[1], scope="register")
        s = alloc(f32[1], scope="register")
        for k0 in range(4):
            for k in vectorized(16):
                with block("fold", vo=spatial(1, 0), vk=reduction(64, k0 * 16 + k)):
                    reduce(logsumexp, (m[vo], s[vo]), (x[i, vk], 1.0))
        for j in vectorized(64):
            z[i, j] = exp(x[i, j] - m[0]) / s[0]
""")
    x = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    z = np.zeros_like(x)
    kernel(x, z, n=6, team=2)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(z, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_data_decides_loops_branches_and_truth(build):
    kernel = build("""
def collatz(x: i64[n], steps: Out[i64[n]], even: Out[bool[n]], *, n: i64):
    for i in parallel(n):
        v = alloc(i64[1], scope="register")
        v[0] = x[i]
        even[i] = x[i] % 2 == 0
        steps[i] = 0
        while v[0] != 1:
            if v[0] % 2 == 0:
                v[0] = v[0] // 2
            else:
                v[0] = v[0] * 3 + 1
            steps[i] = steps[i] + 1
""")
    x = np.arange(1, 40)
    steps, even = np.zeros(39, np.int64), np.zeros(39, bool)
    kernel(x, steps, even, n=39, team=3)
    assert list(steps[:9]) == [0, 1, 7, 2, 5, 8, 16, 3, 19]
    np.testing.assert_array_equal(even, x % 2 == 0)


def test_atomic_updates_and_gathers(build):
    kernel = build("""
def histogram(at: i64[n], x: f32[64], h: InOut[f32[8]], g: Out[f32[n]], *, n: i64):
    for i in parallel(n):
        atomic("add", h[at[i]], 1.0)
    for j in parallel(n // 16):
        for v in vectorized(16):
            g[j * 16 + v] = x[at[j * 16 + v] * 8 + 1]
""")
    at = np.random.default_rng(0).integers(0, 8, 64)
    x = np.arange(64, dtype=np.float32)
    h, g = np.zeros(8, np.float32), np.zeros(64, np.float32)
    kernel(at, x, h, g, n=64, team=2)
    np.testing.assert_array_equal(h, np.bincount(at, minlength=8))
    np.testing.assert_array_equal(g, x[at * 8 + 1])


def test_narrow_floats_and_bools_in_lanes(build):
    kernel = build("""
def keep(x: f16[32], m: bool[32], y: Out[f16[32]], k: Out[bool[32]]):
    for i in range(2):
        for v in vectorized(16):
            y[i * 16 + v] = select(m[i * 16 + v], x[i * 16 + v] * f16(2.0), f16(0.0))
            k[i * 16 + v] = m[i * 16 + v] & (x[i * 16 + v] > f16(0.0))
""")
    rng = np.random.default_rng(0)
    x, m = rng.normal(size=32).astype(np.float16), rng.random(32) < 0.5
    y, k = np.zeros(32, np.float16), np.zeros(32, bool)
    kernel(x, m, y, k)
    np.testing.assert_array_equal(y, np.where(m, x * np.float16(2), 0))
    np.testing.assert_array_equal(k, m & (x > 0))
