"""Activations and their gradients, beside float64 and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import math, nn

erf = pytest.importorskip("scipy.special").erf


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_tanh(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def bent(x, beta=1.0, threshold=20.0):
    return np.where(beta * x > threshold, x, np.log1p(np.exp(beta * x)) / beta)


# name -> (operator, arguments, in float64, PyTorch's name and keywords)
CASES = {
    "relu": ("relu", (), lambda x: np.maximum(x, 0), ("relu", {})),
    "leaky_relu": (
        "leaky_relu",
        (0.2,),
        lambda x: np.where(x > 0, x, 0.2 * x),
        ("leaky_relu", {"negative_slope": 0.2}),
    ),
    "gelu": ("gelu", (), lambda x: x / 2 * (1 + erf(x / np.sqrt(2))), ("gelu", {})),
    "gelu_tanh": ("gelu", ("tanh",), by_tanh, ("gelu", {"approximate": "tanh"})),
    "silu": ("silu", (), lambda x: x * sigmoid(x), ("silu", {})),
    "hard_swish": (
        "hard_swish",
        (),
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        ("hardswish", {}),
    ),
    "sigmoid": ("sigmoid", (), sigmoid, ("sigmoid", {})),
    "tanh": ("tanh", (), np.tanh, ("tanh", {})),
    "softplus": ("softplus", (), bent, ("softplus", {})),
    "steep": (
        "softplus",
        (2.0, 3.0),
        lambda x: bent(x, 2.0, 3.0),
        ("softplus", {"beta": 2.0, "threshold": 3.0}),
    ),
}
SHAPES = [(), (1,), (0,), (3, 0), (33, 65), (2, 3, 4, 5), (5000,)]
PRECISE = {"f32": 5e-7, "f64": 2e-15, "f16": 6e-4, "bf16": 5e-3}
# PyTorch's own vectors give gelu(inf) = NaN; its formula, and its scalar code, do not
ODD = np.array([0, -0.0, -np.inf, np.nan, 1e30, -1e30, 1e-40, 1e38, 88, -104], "f4")


def drawn(shape, dtype="f32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 3
    return np.asarray(x, DType(dtype).numpy)


def operators(case):
    name, *_ = CASES[case]
    return getattr(nn, name), getattr(nn, f"{name}_grad")


def close(found, expected, dtype):
    assert found.dtype == DType(dtype).numpy
    tolerance = PRECISE[dtype]
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("case", CASES)
def test_every_shape_by_one_kernel(case):
    op, gradient = operators(case)
    _, arguments, reference, _ = CASES[case]
    kernels = set()
    for shape in SHAPES:
        x, dy = drawn(shape), drawn(shape, seed=1)
        close(op(x, *arguments), reference(x.astype(np.float64)), "f32")
        assert gradient(dy, x, *arguments).shape == shape
        kernels |= {op.kernel(x, *arguments), gradient.kernel(dy, x, *arguments)}
    assert len(kernels) == 2


@pytest.mark.parametrize("case", ["relu", "gelu", "silu", "steep"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_other_floats_are_rounded_once(case, dtype):
    op, _ = operators(case)
    _, arguments, reference, _ = CASES[case]
    x = drawn((5, 77), dtype)
    close(op(x, *arguments), reference(x.astype(np.float64)), dtype)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite_differences(case):
    op, gradient = operators(case)
    _, arguments, _, _ = CASES[case]
    x, dy = drawn(301, "f64"), drawn(301, "f64", seed=1)
    step = 1e-6
    slope = (op(x + step, *arguments) - op(x - step, *arguments)) / (2 * step)
    found = gradient(dy, x, *arguments)
    np.testing.assert_allclose(found, dy * slope, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("values", ["ordinary", "odd"])
def test_values_and_gradients_are_those_of_pytorch(case, values):
    torch = pytest.importorskip("torch")
    _, arguments, _, (name, keywords) = CASES[case]
    x = drawn(777) if values == "ordinary" else ODD
    if case == "hard_swish":
        x = x[x < 5e37]  # PyTorch's 6 x overflows; at NaN its gradient is a number
    dy = drawn(x.shape, seed=1)
    op, gradient = operators(case)
    theirs = torch.tensor(x, requires_grad=True)
    result = getattr(torch.nn.functional, name)(theirs, **keywords)
    result.backward(torch.tensor(dy))
    np.testing.assert_allclose(op(x, *arguments), result.detach(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        gradient(dy, x, *arguments), theirs.grad, rtol=2e-6, atol=6e-6
    )


def test_bf16_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    x, dy = (torch.tensor(drawn(500, seed=seed)).bfloat16() for seed in (0, 1))
    theirs = x.clone().requires_grad_()
    torch.nn.functional.silu(theirs).backward(dy)
    found = nn.silu_grad(dy, x)
    assert found.dtype is torch.bfloat16
    assert torch.allclose(found.float(), theirs.grad.float(), rtol=8e-3, atol=1e-3)


def test_in_place_and_not_in_a_row():
    x = drawn((40, 60))
    expected = np.maximum(x, 0)
    np.testing.assert_array_equal(nn.relu(x.T), expected.T)
    np.testing.assert_array_equal(nn.relu(x[::3, ::2]), expected[::3, ::2])
    assert nn.relu(x, out=x) is x
    np.testing.assert_array_equal(x, expected)
    dy = drawn((40, 60), seed=1)
    wanted = np.where(x <= 0, 0, dy)
    nn.relu_grad(dy, x, out=dy)
    np.testing.assert_array_equal(dy, wanted)


def test_other_numbers_make_no_other_kernel():
    x = drawn(10)
    kernels = {nn.leaky_relu.kernel(x, slope) for slope in (0.1, 0.2, 0, np.float32(3))}
    kernels |= {nn.softplus.kernel(x, beta) for beta in (1, 2.0)}
    assert len(kernels) == 2


def test_what_does_not_fit():
    x = drawn((3, 4))
    with pytest.raises(ArgumentError, match="approximate is 'none' or 'tanh', not 'x'"):
        nn.gelu(x, "x")
    with pytest.raises(ArgumentError, match="negative_slope is a number, not 'steep'"):
        nn.leaky_relu(x, "steep")
    with pytest.raises(ArgumentError, match="beta divides the result, and cannot be 0"):
        nn.softplus(x, 0)
    with pytest.raises(DTypeError, match=r"math\.abs takes .*, not bool; cast it"):
        math.abs(x > 0)
    with pytest.raises(ShapeError, match=r"dy has shape \(3,\), x has \(3, 4\)"):
        nn.gelu_grad(x[:, 0], x)
    locked = x.copy()
    locked.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        nn.relu(x, out=locked)
