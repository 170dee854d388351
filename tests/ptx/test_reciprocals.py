"""Quotients by an argument, multiplied by its reciprocal in two doubles."""

import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir.text.parser import parse

COUNT = 4096
DIVIDED = f"""
def f(x: f32[{COUNT}], y: Out[f32[{COUNT}]], *, d: f32):
    for block in bound({COUNT // 1024}, "block.x"):
        for thread in bound(256, "thread.x"):
            for c in unrolled(4):
                y[block * 1024 + thread * 4 + c] = x[block * 1024 + thread * 4 + c] / d
"""
DIVISORS = [0.5, 0.9, 0.1, 1 / 3, 3.0, -0.7, 1 - 2**-24, 1 + 2**-23, 16777215.0]
EXTREME = [1e-45, -1e-40, 2.0**-126, 3.4e38, -np.inf, 0.0, -0.0, np.nan]
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-45, 1e-40, 1.1754942e-38, 3.4e38],
    np.float32,
)


def hard(divisor, rng):
    """Dividends whose quotients are close to, or at, the middle of two numbers."""
    bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32)
    made = bits.view(np.float32)
    with np.errstate(all="ignore"):
        middle = made[: COUNT // 2].astype(np.float64) * (1 + 2.0**-24)
        made[: COUNT // 2] = middle * np.float64(np.float32(divisor))
    tiny = rng.integers(0, 1 << 12, COUNT // 4, dtype=np.uint32)
    made[-COUNT // 4 :] = tiny.view(np.float32)
    made[: len(SPECIAL)] = SPECIAL
    return made


@pytest.mark.parametrize("divisor", DIVISORS + EXTREME)
def test_they_are_those_of_a_division(divisor, ptx_driver):
    kernel = build(parse(DIVIDED), "cuda")
    assert "1.0 / (f64)d" in kernel.source.replace("divisor", "(f64)d")
    x, y = hard(divisor, np.random.default_rng(7)), np.zeros(COUNT, np.float32)
    with np.errstate(all="ignore"):
        right = x / np.float32(divisor)
    kernel.launch(x, y, np.float32(divisor))
    same = (y.view(np.uint32) == right.view(np.uint32)) | (
        np.isnan(y) & np.isnan(right)
    )
    assert same.all(), (x[~same][:4], y[~same][:4], right[~same][:4])
    assert ptx_driver.issued
