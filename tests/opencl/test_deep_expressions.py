"""Expressions as deep as the IR allows: what prints C has to go as deep, too."""

import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import parse

X = np.linspace(-2, 2, 37).astype(np.float32)
K = (np.arange(37) * 7 % 11).astype(np.int32)

STEPS = {
    "sums": ("x[i]", "({0} * 0.5 + {1}.0)", 60),
    "largest": ("x[i]", "max({0} - 0.25, x[i] * {1}.0)", 60),
    "choices": ("x[i]", "select(k[i] > i32(4), {0} + 0.5, x[i] * {1}.0)", 55),
    "integers": ("k[i]", "(({0} ^ i32({1})) + k[i])", 60),
    "places": ("x[i]", "({0} * 0.5 + x[(i + {1}) % n])", 55),
}


def deep(name):
    text, step, times = STEPS[name]
    for number in range(times):
        text = step.format(text, number)
    if name == "integers":
        text = f"cast(f32, {text})"
    return parse(f"""
def deep(x: f32[n], k: i32[n], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        y[i] = {text}
""")


@pytest.mark.parametrize("like_gpu", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_deep_expressions(name, like_gpu, gpu_like):
    function = deep(name)
    expected = build(function, "llvm", store=False)(X, K)
    target = gpu_like if like_gpu else "opencl"
    kernel = build(function, target, store=False)
    np.testing.assert_allclose(kernel(X, K), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("like_gpu", [False, True])
def test_a_deep_condition(like_gpu, gpu_like):
    text = "y[i]"
    for number in range(50):
        text = f"({text} * 0.5 + {number}.0)"
    function = parse(f"""
def asked(x: f32[n], y: InOut[f32[n]], *, n: i64):
    for i in range(n):
        while {text} < 99.0:
            y[i] = y[i] * 2.0 + 1.0e14
""")
    expected, y = X.copy(), X.copy()
    build(function, "llvm", store=False)(X, expected)
    kernel = build(function, gpu_like if like_gpu else "opencl", store=False)
    kernel(X, y)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    assert (expected > 1e14).all()
