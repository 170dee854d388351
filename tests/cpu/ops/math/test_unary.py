"""Functions of one array and their gradients, beside float64 NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import math

erf = pytest.importorskip("scipy.special").erf

EVERYWHERE = {
    "negative": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "exp": np.exp,
    "expm1": np.expm1,
    "erf": erf,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "atan": np.arctan,
}
INSIDE_1 = {"asin": np.arcsin, "acos": np.arccos}
ABOVE_0 = {
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": np.reciprocal,
}
FUNCTIONS = EVERYWHERE | ABOVE_0 | INSIDE_1
ON_INTEGERS = ("negative", "abs", "sign", "square")
SHAPES = [(), (1,), (0,), (7,), (3, 0, 2), (33, 65), (2, 3, 4, 5)]
ODD = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40, -1e-40, 3e38, 88, -104],
    np.float32,
)
PRECISE = {"f32": 4e-7, "f64": 2e-15, "f16": 6e-4, "bf16": 5e-3}


def drawn(name, shape, dtype="f32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 2
    x = np.tanh(x) * 0.9 if name in INSIDE_1 else x
    return np.asarray(np.abs(x) + 0.1 if name in ABOVE_0 else x, DType(dtype).numpy)


def close(found, expected, dtype):
    """Equal up to some roundings of a type, near 0 absolutely."""
    assert found.dtype == DType(dtype).numpy
    tolerance = PRECISE[dtype]
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_shape_by_one_kernel(name):
    op = getattr(math, name)
    kernels = set()
    for shape in SHAPES:
        x = drawn(name, shape)
        close(op(x), FUNCTIONS[name](x.astype(np.float64)), "f32")
        kernels.add(op.kernel(x))
    assert len(kernels) == 1


@pytest.mark.parametrize(
    "name", ["exp", "tanh", "rsqrt", "sign", "floor", "abs", "atan", "acos"]
)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_other_floats_are_rounded_once(name, dtype):
    x = drawn(name, (5, 77), dtype)
    close(getattr(math, name)(x), FUNCTIONS[name](x.astype(np.float64)), dtype)


@pytest.mark.parametrize("name", ["sin", "log"])
def test_arrays_that_are_not_in_a_row(name):
    x = drawn(name, (40, 60))
    op, reference = getattr(math, name), FUNCTIONS[name]
    for view in (x.T, x[::2, 1::3], x[::-1], np.broadcast_to(x[0], (5, 60))):
        close(op(view), reference(view.astype(np.float64)), "f32")
    wide = np.zeros((40, 120), np.float32)
    assert op(x, out=wide[:, ::2]) is not None
    close(wide[:, ::2], reference(x.astype(np.float64)), "f32")
    assert not wide[:, 1::2].any()


def test_in_place():
    x = drawn("exp", (33, 65))
    expected = np.exp(x.astype(np.float64))
    assert math.exp(x, out=x) is x
    close(x, expected, "f32")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_values_are_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    x = torch.tensor(ODD, requires_grad=True)
    expected = getattr(torch, name)(x)
    found = getattr(math, name)(ODD)
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-6)
    dy = np.linspace(-1, 2, ODD.size, dtype=np.float32)
    expected.backward(torch.tensor(dy))
    gradient = getattr(math, f"{name}_grad")(dy, ODD)
    np.testing.assert_allclose(gradient, x.grad, rtol=3e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_finite_differences(name):
    x, dy = drawn(name, 301, "f64"), drawn("dy", 301, "f64", seed=1)
    x += (np.abs(x - np.round(x)) < 1e-3) * 2e-3  # off the steps of floor
    op, step = getattr(math, name), 1e-5
    slope = (op(x + step) - op(x - step)) / (2 * step)
    found = getattr(math, f"{name}_grad")(dy, x)
    np.testing.assert_allclose(found, dy * slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ON_INTEGERS)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "u64"])
def test_integers_wrap(name, dtype):
    limits = DType(dtype).limits
    x = np.array([0, 1, 5, 100, *limits], DType(dtype).numpy)
    found = getattr(math, name)(x)
    np.testing.assert_array_equal(found, getattr(np, name)(x))
    assert found.dtype == x.dtype


def test_types_and_shapes_that_do_not_fit():
    with pytest.raises(DTypeError, match=r"math\.abs takes .*, not bool"):
        math.abs(np.ones(3, bool))
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ShapeError, match=r"dy has shape \(4,\), x has \(3, 4\)"):
        math.exp_grad(x[0], x)
    assert math.exp_grad(x.astype(np.float64), x).dtype == np.float64
    with pytest.raises(ShapeError, match=r"out has shape \(4,\), the result \(3, 4\)"):
        math.exp(x, out=x[0])


def test_torch_gives_torch():
    torch = pytest.importorskip("torch")
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    assert torch.allclose(math.sin(x), x.sin())
    narrow = x.bfloat16()
    assert math.exp(narrow).dtype is torch.bfloat16
