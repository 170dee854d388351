"""Variables of one name in loops beside each other are different ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import parse, run


@pytest.mark.parametrize("kind", ["range", "unrolled", "vectorized"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_values_of_an_earlier_variable_are_not_reused(kind, dtype):
    function = parse(f"""
def f(x: {dtype}[4], y: Out[{dtype}[4]], z: Out[{dtype}[4]]):
    for i in {kind}(4):
        c: f32 = cast(f32, x[i])
        y[i] = cast({dtype}, select(c > 1.0, c, 0.0))
    for j in {kind}(4):
        c: f32 = cast(f32, x[j]) * 3.0
        z[j] = cast({dtype}, select(c > 1.0, c, 0.0))
""")
    x = np.arange(4).astype("f4" if dtype == "f32" else ml_dtypes.bfloat16)
    y, z = np.zeros_like(x), np.zeros_like(x)
    build(function, "llvm")(x, y, z)
    assert y.tolist() == [0, 0, 2, 3]
    assert z.tolist() == [0, 3, 6, 9]


COPIES = {
    "a copy in one loop, another value in the next": """
    for i in range(8):
        t: i64 = i
        y[t] = x[t]
    for i in range(8):
        t: i64 = n % (i + 3)
        y[i] = y[i] + cast(f32, t) * x[i]
""",
    "a copy in one branch, another value in the other": """
    for i in range(8):
        if i < 4:
            t: i64 = i
            y[t] = x[t]
        else:
            t: i64 = i * 3 % 8
            y[i] = x[t]
""",
    "a constant in one loop, the next one's variable": """
    for i in range(8):
        t: i64 = 5
        y[i] = x[t]
    for t in range(8):
        y[t] = y[t] + x[7 - t]
""",
    "a constant in one loop, another value in the next": """
    for i in range(8):
        t: i64 = 2
        y[i] = x[t]
    for i in range(8):
        t: i64 = 7 - i
        y[i] = y[i] + x[t]
""",
}


@pytest.mark.parametrize("body", COPIES.values(), ids=COPIES)
def test_a_copy_is_known_in_its_own_scope_alone(body):
    function = parse(f"def f(x: f32[8], y: Out[f32[8]], *, n: i64):\n{body}")
    x = np.arange(1, 9, dtype=np.float32)
    right = np.zeros_like(x)
    run(function, x, right, n=29)
    got = build(function, "llvm")(x, n=29)
    np.testing.assert_array_equal(got, right)
