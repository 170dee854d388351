"""layer_norm and rms_norm, and their gradients, against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional

EPSILON = {np.float64: 1e-12, np.float32: 1e-5}
EPSILON |= {np.float16: 4e-3, ml_dtypes.bfloat16: 3e-2}


def drawn(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def wide(array):
    return torch.from_numpy(array.astype(np.float64)).requires_grad_()


def close(got, wanted, tolerance):
    wanted = wanted.detach().numpy()
    np.testing.assert_allclose(
        got.astype(np.float64),
        wanted,
        rtol=tolerance,
        atol=tolerance * max(np.abs(wanted).max(initial=0), 1),
    )


def check_layer_norm(x, weight, bias, tolerance, **given):
    dy = drawn(*x.shape, seed=7, dtype=x.dtype)
    tx, tw, tb = wide(x), wide(weight), wide(bias)
    wanted = F.layer_norm(tx, weight.shape, tw, tb, given.get("eps", 1e-5))
    wanted.backward(wide(dy).detach())
    close(nn.layer_norm(x, weight, bias, **given), wanted, tolerance)
    made = nn.layer_norm_grad(dy, x, weight, **given)
    for got, right in zip(made, (tx, tw, tb), strict=True):
        close(got, right.grad, tolerance * 4)
    assert [g.dtype for g in made] == [x.dtype, weight.dtype, weight.dtype]


def check_rms_norm(x, weight, tolerance):
    dy = drawn(*x.shape, seed=7, dtype=x.dtype)
    tx, tw = wide(x), wide(weight)
    wanted = F.rms_norm(tx, weight.shape, tw, 1e-6)
    wanted.backward(wide(dy).detach())
    close(nn.rms_norm(x, weight), wanted, tolerance)
    for got, right in zip(nn.rms_norm_grad(dy, x, weight), (tx, tw), strict=True):
        close(got, right.grad, tolerance * 4)


@pytest.mark.parametrize(
    ("shape", "normal"),
    [((5, 100), (100,)), ((70, 64), (64,)), ((3, 1), (1,)), ((2, 4, 3, 5), (3, 5))],
)
def test_shapes(shape, normal):
    weight, bias = drawn(2, *normal, seed=1)
    check_layer_norm(drawn(*shape), weight, bias, 1e-5, eps=1e-3)
    check_rms_norm(drawn(*shape), weight, 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_types(dtype):
    x = drawn(3, 37, dtype=dtype)
    weight, bias = drawn(2, 37, seed=1, dtype=dtype)
    check_layer_norm(x, weight, bias, EPSILON[dtype])
    check_rms_norm(x, weight, EPSILON[dtype])
    if dtype not in (np.float64, np.float16):
        single = [a.astype(np.float32) for a in (weight, bias)]
        check_layer_norm(x, *single, EPSILON[dtype])


def test_without_weights():
    x, dy = drawn(4, 9), drawn(4, 9, seed=1)
    tx = wide(x)
    wanted = F.layer_norm(tx, (9,))
    wanted.backward(wide(dy).detach())
    close(nn.layer_norm(x), wanted, 1e-5)
    close(nn.layer_norm_grad(dy, x), tx.grad, 1e-5)
    bias = drawn(9, seed=2)
    close(nn.layer_norm(x, bias=bias), wanted + wide(bias), 1e-5)
    close(nn.rms_norm(x), F.rms_norm(wide(x), (9,), eps=1e-6), 1e-5)


def test_one_kernel_for_all_batches():
    weight, bias = drawn(2, 64, seed=1)
    for rows in (70, 1):  # the gradient of one row, which sums no rows, is another one
        check_layer_norm(drawn(rows, 64), weight, bias, 1e-5)

    def kernels():
        ops = (nn.layer_norm, nn.layer_norm_grad)
        return [sum(key[0] == "kernel" for key in op.kernels) for op in ops]

    before = kernels()
    for rows in (1, 2, 13, 33, 128):
        check_layer_norm(drawn(rows, 64), weight, bias, 1e-5)
    check_layer_norm(drawn(2, 5, 64), weight, bias, 1e-5, eps=0.1)
    assert kernels() == before


def test_empty_and_strided():
    weight, bias = drawn(2, 64, seed=1)
    none = np.zeros((0, 64), np.float32)
    assert nn.layer_norm(none, weight, bias).shape == (0, 64)
    dx, dweight, dbias = nn.layer_norm_grad(none, none, weight)
    assert dx.shape == (0, 64)
    assert not dweight.any()
    assert not dbias.any()
    nothing = np.zeros(0, np.float32)
    assert nn.layer_norm(np.zeros((3, 0), np.float32), nothing).shape == (3, 0)
    x = drawn(64, 12).T[::3]
    got = nn.layer_norm(x, weight, bias)
    np.testing.assert_array_equal(
        got, nn.layer_norm(np.ascontiguousarray(x), weight, bias)
    )


def test_far_means_nan_and_infinities():
    x = drawn(5, 64)
    x[0] += 1e4
    x[1, 3] = np.nan
    x[2, 5] = np.inf
    x[3] *= 1e15
    x[4] = 7.0
    wanted = F.layer_norm(torch.from_numpy(x), (64,)).numpy()
    wanted[[0, 3, 4]] = F.layer_norm(wide(x), (64,)).detach().numpy()[[0, 3, 4]]
    np.testing.assert_allclose(nn.layer_norm(x), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_gradients_are_finite_differences(name):
    op, grad = getattr(nn, name), getattr(nn, f"{name}_grad")
    x, dy = drawn(2, 5, dtype=np.float64), drawn(2, 5, seed=1, dtype=np.float64)
    weight, step = drawn(5, seed=2, dtype=np.float64), 1e-6
    dx, dweight, *_ = grad(dy, x, weight)
    for array, made in ((x, dx), (weight, dweight)):
        for at in np.ndindex(array.shape):
            held, ends = array[at], []
            for moved in (held + step, held - step):
                array[at] = moved
                ends.append((op(x, weight) * dy).sum())
            array[at] = held
            assert made[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ((drawn(4, 6), drawn(5)), ShapeError, r"weight has shape \(5,\); .* \(4, 6\)"),
        ((drawn(4, 6), drawn(6), drawn(4, 6)), ShapeError, r"bias has shape \(4, 6\)"),
        ((np.float32(1.0),), ShapeError, "no dimension to normalise over"),
        ((drawn(4, 6), None, None, "x"), ArgumentError, "eps is a number, not 'x'"),
        ((drawn(4, 6), drawn(6, dtype=np.float64)), DTypeError, "weight f64"),
        ((drawn(4, 6).astype(int),), DTypeError, "not i64"),
    ],
)
def test_bad_calls(given, error, match):
    with pytest.raises(error, match=match):
        nn.layer_norm(*given)


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match=r"dy has shape \(3, 6\), x has \(4, 6\)"):
        nn.layer_norm_grad(drawn(3, 6), drawn(4, 6), drawn(6))
