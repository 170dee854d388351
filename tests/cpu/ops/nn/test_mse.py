"""The mean squared error and its gradient."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import nn

FOLDS = {"mean": np.mean, "sum": np.sum, "none": lambda x: x}
SHAPES = [(), (1,), (7,), (33, 65), (3, 40, 999)]


def drawn(shape, dtype="f32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(x, DType(dtype).numpy)


@pytest.mark.parametrize("reduction", FOLDS)
def test_every_shape_by_one_kernel(reduction):
    kernels = set()
    for shape in SHAPES:
        p, t = drawn(shape), drawn(shape, seed=1)
        found = nn.mse(p, t, reduction)
        expected = FOLDS[reduction]((p.astype(np.float64) - t) ** 2)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-6)
        kernels.add(nn.mse.kernel(p, t, reduction))
    assert len(kernels) == 1


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_other_floats(dtype):
    p, t = drawn((100, 77), dtype), drawn((100, 77), dtype, seed=1)
    found = nn.mse(p, t)
    assert found.dtype == p.dtype
    exact = ((p.astype(np.float64) - t.astype(np.float64)) ** 2).mean()
    tolerance = {"f64": 1e-13, "f16": 1e-3, "bf16": 8e-3}[dtype]
    np.testing.assert_allclose(float(found), exact, rtol=tolerance)


@pytest.mark.parametrize("reduction", FOLDS)
def test_gradients_are_those_of_pytorch(reduction):
    torch = pytest.importorskip("torch")
    p, t = drawn((33, 65)), drawn((33, 65), seed=1)
    theirs = torch.tensor(p, requires_grad=True)
    loss = torch.nn.functional.mse_loss(theirs, torch.tensor(t), reduction=reduction)
    np.testing.assert_allclose(nn.mse(p, t, reduction), loss.detach(), rtol=1e-6)
    dy = drawn((33, 65) if reduction == "none" else (), seed=2)
    loss.backward(torch.tensor(dy))
    found = nn.mse_grad(dy, p, t, reduction)
    np.testing.assert_allclose(found, theirs.grad, rtol=1e-6)


@pytest.mark.parametrize("reduction", FOLDS)
def test_gradients_are_finite_differences(reduction):
    p, t = drawn((5, 7), "f64"), drawn((5, 7), "f64", seed=1)
    dy = np.ones((5, 7)) if reduction == "none" else 1.0
    found, step = nn.mse_grad(dy, p, t, reduction), 1e-6
    for place in np.ndindex(p.shape):
        moved = np.zeros_like(p)
        moved[place] = step
        above = nn.mse(p + moved, t, reduction).sum()
        below = nn.mse(p - moved, t, reduction).sum()
        slope = (above - below) / (2 * step)
        np.testing.assert_allclose(found[place], slope, rtol=1e-6, atol=1e-8)


def test_a_gradient_of_the_loss_may_be_a_number():
    p, t = drawn((9, 4)), drawn((9, 4), seed=1)
    found = nn.mse_grad(3.0, p, t, "sum")
    np.testing.assert_allclose(found, 6 * (p - t), rtol=1e-6)
    array = np.asarray(3.0, np.float32)
    np.testing.assert_array_equal(nn.mse_grad(array, p, t, "sum"), found)
    kernels = {nn.mse_grad.kernel(3.0, p[:n], t[:n], "mean") for n in (2, 3, 9)}
    assert len(kernels) == 1


def test_nothing_and_what_is_no_number():
    empty = np.empty((0, 3), np.float32)
    assert np.isnan(nn.mse(empty, empty))
    assert nn.mse(empty, empty, "sum") == 0
    assert nn.mse_grad(1.0, empty, empty).shape == (0, 3)
    odd = np.array([1, np.nan], np.float32)
    assert np.isnan(nn.mse(odd, odd))
    assert nn.mse(np.array([np.inf], "f4"), np.array([0], "f4"), "sum") == np.inf


def test_arrays_not_in_a_row_and_out():
    p, t = drawn((20, 30)), drawn((20, 30), seed=1)
    out = np.empty((), np.float32)
    assert nn.mse(p.T, t.T, out=out) is out
    np.testing.assert_allclose(out, ((p - t) ** 2).mean(), rtol=1e-6)
    nn.mse_grad(1.0, p, t, out=p)
    assert np.isfinite(p).all()


def test_what_does_not_fit():
    p = drawn((3, 4))
    with pytest.raises(ShapeError, match=r"prediction has shape \(3, 4\), truth has"):
        nn.mse(p, p[0])
    with pytest.raises(DTypeError, match="have one element type, not f32, f64"):
        nn.mse(p, p.astype(np.float64))
    with pytest.raises(ArgumentError, match="'mean', 'sum' or 'none', not 'max'"):
        nn.mse(p, p, "max")
    with pytest.raises(ShapeError, match=r"dy has shape \(3, 4\), nn.mse gives \(\)"):
        nn.mse_grad(p, p, p)
    with pytest.raises(ShapeError, match=r"dy has shape \(4,\), nn.mse gives \(3, 4\)"):
        nn.mse_grad(p[0], p, p, "none")


def test_gradients_of_tensors_and_of_numbers_count_all_elements():
    torch = pytest.importorskip("torch")
    ones, zeros = torch.ones(3, 4), torch.zeros(3, 4)
    found = nn.mse_grad(torch.tensor(1.0), ones, zeros)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, 2 / 12, rtol=1e-6)
    np.testing.assert_allclose(nn.mse_grad(1.0, 1.0, zeros), found, rtol=1e-6)
