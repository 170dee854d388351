"""Batch normalisation, in training and after it, and its gradients against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional


def drawn(*shape, seed=0, dtype=np.float32):
    values = np.random.default_rng(seed).standard_normal(shape) * 2 + 1
    return values.astype(dtype)


def wide(array, *, grad=False):
    made = torch.from_numpy(np.array(array, dtype=np.float64))
    return made.requires_grad_() if grad else made


def parameters(channels, dtype=np.float32):
    weight, bias, mean = drawn(3, channels, seed=1, dtype=dtype)
    var = (np.abs(drawn(channels, seed=2)) + 0.5).astype(dtype)
    return weight, bias, mean, var


def close(got, wanted, tolerance):
    wanted = wanted.detach().numpy()
    size = np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(
        got.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * size
    )


def check(x, axis=1, tolerance=1e-5, **kinds):
    """All four operators are as PyTorch has them in float64."""
    dy = drawn(*x.shape, seed=5, dtype=x.dtype)
    weight, bias, mean, var = parameters(x.shape[axis], kinds.get("dtype", x.dtype))
    for training in (False, True):
        tx, tw, tb = (
            wide(array, grad=True) for array in (np.moveaxis(x, axis, 1), weight, bias)
        )
        moments = wide(mean), wide(var)
        wanted = F.batch_norm(tx, *moments, tw, tb, training, 0.2, 1e-3)
        wanted.backward(wide(np.moveaxis(dy, axis, 1)))
        how = {"eps": 1e-3, "axis": axis}
        if training:
            y, *moved = nn.batch_norm_train(
                x, mean, var, weight, bias, momentum=0.2, **how
            )
            made = nn.batch_norm_train_grad(dy, x, weight, **how)
            for got, right in zip(moved, moments, strict=True):
                close(got, right, tolerance)
        else:
            y = nn.batch_norm(x, mean, var, weight, bias, **how)
            made = nn.batch_norm_grad(dy, x, mean, var, weight, **how)
        close(np.moveaxis(y, axis, 1), wanted, tolerance)
        close(np.moveaxis(made[0], axis, 1), tx.grad, tolerance * 4)
        close(made[1], tw.grad, tolerance * 4)
        close(made[2], tb.grad, tolerance * 4)
        assert y.dtype == x.dtype


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5, 7), 1),
        ((1100, 20), 1),
        ((2, 3, 9, 10), 1),
        ((4, 6, 3), -1),
        ((3, 1, 70), 1),
        ((6, 3, 4), 0),
    ],
)
def test_shapes(shape, axis):
    check(drawn(*shape), axis)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-12), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)],
)
def test_types(dtype, tolerance):
    check(drawn(2, 3, 5, 4, dtype=dtype), 1, tolerance)
    if dtype is ml_dtypes.bfloat16:
        check(drawn(2, 3, 5, 4, dtype=dtype), 1, tolerance, dtype=np.float32)


def test_without_weights():
    x, dy = drawn(4, 3, 5), drawn(4, 3, 5, seed=1)
    _, _, mean, var = parameters(3)
    for training in (False, True):
        tx = wide(x, grad=True)
        wanted = F.batch_norm(tx, wide(mean), wide(var), training=training)
        wanted.backward(wide(dy))
        if training:
            y, *_ = nn.batch_norm_train(x, mean, var)
            dx = nn.batch_norm_train_grad(dy, x)
        else:
            y, dx = nn.batch_norm(x, mean, var), nn.batch_norm_grad(dy, x, mean, var)
        close(y, wanted, 1e-5)
        close(dx, tx.grad, 1e-5)


def test_one_kernel_for_all_batches():
    ops = [
        nn.batch_norm,
        nn.batch_norm_train,
        nn.batch_norm_grad,
        nn.batch_norm_train_grad,
    ]

    def kernels():
        return [sum(key[0] == "kernel" for key in op.kernels) for op in ops]

    check(drawn(2, 3, 9, 10))
    check(drawn(5, 7))
    before = kernels()
    for batch in (1, 13, 64):
        check(drawn(batch, 3, 9, 10))
        check(drawn(batch + 1, 7))
    assert kernels() == before


def test_empty_strided_and_in_place():
    _, _, mean, var = parameters(3)
    assert nn.batch_norm(np.zeros((0, 3, 4), np.float32), mean, var).size == 0
    x = drawn(8, 6, 10)[::2, ::2, ::-1]
    packed = np.ascontiguousarray(x)
    np.testing.assert_array_equal(
        nn.batch_norm(x, mean, var), nn.batch_norm(packed, mean, var)
    )
    y, *moved = nn.batch_norm_train(x, mean, var)
    again = np.empty_like(packed)
    nn.batch_norm_train(x, mean, var, out=(again, mean, var))
    for got, wanted in zip((again, mean, var), (y, *moved), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_far_means_nan_and_infinities():
    x = drawn(6, 4, 50)
    x[:, 0] += 1e4
    x[2, 1, 3] = np.nan
    x[2, 2, 3] = np.inf
    x[:, 3] = 2.5
    zeros, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
    wanted = F.batch_norm(wide(x), wide(zeros), wide(ones), training=True).numpy()
    got, *_ = nn.batch_norm_train(x, zeros, ones)
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def test_the_gradient_is_finite_differences():
    x, dy = drawn(3, 2, 2, dtype=np.float64), drawn(3, 2, 2, seed=1, dtype=np.float64)
    weight, bias, mean, var = parameters(2, np.float64)
    dx, step = nn.batch_norm_train_grad(dy, x, weight)[0], 1e-6
    for at in np.ndindex(x.shape):
        held, ends = x[at], []
        for moved in (held + step, held - step):
            x[at] = moved
            y, *_ = nn.batch_norm_train(x, mean, var, weight, bias)
            ends.append((y * dy).sum())
        x[at] = held
        assert dx[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


C3 = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("given", "named", "error", "match"),
    [
        ((drawn(4, 5), C3, C3), {}, ShapeError, r"mean has shape \(3,\); .* is \(5,\)"),
        ((drawn(4, 3), C3, C3), {"axis": 2}, ArgumentError, "axis 2 does not exist"),
        ((drawn(4, 3), C3, C3), {"eps": None}, ArgumentError, "eps is a number"),
        (
            (drawn(4, 3), C3.astype(np.float64), C3),
            {},
            DTypeError,
            "mean f64, var f32",
        ),
    ],
)
def test_bad_calls(given, named, error, match):
    with pytest.raises(error, match=match):
        nn.batch_norm(*given, **named)


def test_one_value_has_no_variance():
    with pytest.raises(ShapeError, match="one value a channel"):
        nn.batch_norm_train(drawn(1, 3), C3, C3)
