"""Variables of one name in loops beside each other are different ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import parse


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
