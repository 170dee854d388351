"""Softmax and log_softmax along any axis, and their gradients, against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")

OPS = {
    "softmax": (nn.softmax, nn.softmax_grad, torch.softmax),
    "log_softmax": (nn.log_softmax, nn.log_softmax_grad, torch.log_softmax),
}
EPSILON = {np.float64: 1e-13, np.float32: 3e-6}
EPSILON |= {np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}


def drawn(*shape, seed=0, dtype=np.float32):
    values = np.random.default_rng(seed).standard_normal(shape) * 3
    return values.astype(dtype)


def check(name, x, axis, tolerance):
    """Result and gradient are those of PyTorch in float64."""
    op, grad, reference = OPS[name]
    dy = drawn(*x.shape, seed=7, dtype=x.dtype)
    wide = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    wanted = reference(wide, axis)
    wanted.backward(torch.from_numpy(dy.astype(np.float64)))
    y, dx = op(x, axis), grad(dy, x, axis)
    assert (y.dtype, dx.dtype) == (x.dtype, x.dtype)
    pairs = [(y, wanted.detach().numpy()), (dx, wide.grad.numpy())]
    for got, right in pairs:
        size = np.nanmax(np.abs(np.where(np.isfinite(right), right, 0)), initial=1)
        np.testing.assert_allclose(
            got.astype(np.float64), right, rtol=tolerance, atol=tolerance * size
        )


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((4, 130), -1), ((3, 64), 1), ((7,), 0), ((5, 1), -1), ((3, 9, 70), 1)],
)
def test_of_every_axis(name, shape, axis):
    check(name, drawn(*shape), axis, EPSILON[np.float32])


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_of_every_type(name, dtype):
    check(name, drawn(3, 37, dtype=dtype), -1, EPSILON[dtype])
    check(name, drawn(2, 5, 18, dtype=dtype), 1, EPSILON[dtype])


@pytest.mark.parametrize("name", OPS)
def test_one_kernel_for_all_batches_and_layouts(name):
    op = OPS[name][0]
    check(name, drawn(4, 130), -1, 3e-6)
    check(name, drawn(3, 9, 70), 1, 3e-6)

    def kernels():
        return sum(key[0] == "kernel" for key in op.kernels)

    before = kernels()
    for shape, axis in [((1, 130), 1), ((64, 130), 1), ((2, 3, 130), -1)]:
        check(name, drawn(*shape), axis, 3e-6)
    for shape in [(1, 9, 70), (5, 9, 3), (2, 9, 8, 8)]:
        check(name, drawn(*shape), 1, 3e-6)
    assert kernels() == before


@pytest.mark.parametrize("name", OPS)
def test_strided_and_empty_arrays(name):
    op = OPS[name][0]
    x = drawn(130, 8).T[::2]
    np.testing.assert_array_equal(op(x), op(np.ascontiguousarray(x)))
    for shape in [(0, 5), (5, 0), (2, 0, 3)]:
        assert op(np.zeros(shape, np.float32), 1).shape == shape
    out = np.zeros((4, 260), np.float32)[:, ::2]
    op(drawn(4, 130), out=out)
    np.testing.assert_array_equal(out, op(drawn(4, 130)))
    x = drawn(4, 130)
    wanted = op(x)
    assert op(x, out=x) is x
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("name", OPS)
def test_huge_values_nan_and_infinities(name):
    x = drawn(9, 130)
    x[0] = -np.inf
    x[1, 3] = np.inf
    x[2, 129] = np.nan
    x[3, :5] = -np.inf
    x[4] = np.nan
    x[5, 100] = 3e38
    x[6] = -3e38
    x[7] *= 1e30
    op, _, reference = OPS[name]
    wanted = reference(torch.from_numpy(x), -1).numpy()
    np.testing.assert_allclose(op(x), wanted, rtol=1e-5, atol=1e-6)
    turned = np.ascontiguousarray(x.T)
    np.testing.assert_allclose(op(turned, 0), wanted.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPS)
def test_gradients_are_finite_differences(name):
    op, grad, _ = OPS[name]
    x, dy = drawn(2, 5, dtype=np.float64), drawn(2, 5, seed=1, dtype=np.float64)
    made, step = grad(dy, x), 1e-6
    for at in np.ndindex(x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][at] += step
        moved[1][at] -= step
        slope = ((op(moved[0]) - op(moved[1])) * dy).sum() / (2 * step)
        assert made[at] == pytest.approx(slope, abs=1e-7)


def test_results_in_the_callers_kind():
    x = torch.from_numpy(drawn(4, 130))
    got = nn.softmax(x)
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), nn.softmax(x.numpy()))
    assert nn.softmax.shape((8, 3, 5), axis=1) == (8, 3, 5)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ((drawn(2, 3), 2), ArgumentError, "axis 2 does not exist in an array of 2"),
        ((drawn(2, 3), True), ArgumentError, "axis is a whole number, not True"),
        ((drawn(2, 3), [1]), ArgumentError, r"axis is a whole number, not \[1\]"),
        ((drawn(2, 3).astype(np.int32),), DTypeError, "takes f32, .* not i32"),
    ],
)
def test_bad_calls(given, error, match):
    with pytest.raises(error, match=match):
        nn.softmax(*given)


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match=r"dy has shape \(2, 4\); .* \(2, 3\) is need"):
        nn.softmax_grad(drawn(2, 4), drawn(2, 3))
    with pytest.raises(DTypeError, match="one element type, not f64, f32"):
        nn.softmax_grad(drawn(2, 3, dtype=np.float64), drawn(2, 3))


def test_a_number_is_a_row_of_one():
    x = np.array(3.0, np.float32)
    for axis in (-1, 0):
        assert (nn.softmax(x, axis), nn.log_softmax(x, axis)) == (1, 0)
        assert nn.softmax_grad(x, x, axis).shape == ()
    with pytest.raises(ArgumentError, match="axis 1 does not exist"):
        nn.softmax(x, 1)
