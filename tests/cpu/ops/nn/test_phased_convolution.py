"""Transposed convolutions and image gradients with steps, against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional

# image with channels, weights, attributes
GRADIENTS = [
    ((6, 10, 12), (4, 6, 3, 3), {"stride": 2, "padding": 1}),
    (
        (6, 9, 11),
        (4, 3, 3, 2),
        {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": 2},
    ),
    # pixels that no window reaches
    ((5, 11, 9), (4, 5, 2, 2), {"stride": 4}),
    ((5, 12, 13), (4, 5, 3, 3), {"stride": 4, "padding": 1, "dilation": 2}),
    (
        (6, 17, 19),
        (6, 1, 5, 3),
        {"stride": (3, 2), "padding": 2, "dilation": (2, 2), "groups": 6},
    ),
    ((4, 41), (8, 4, 5), {"stride": 3, "padding": 2}),
    ((3, 7, 4, 5), (4, 3, 3, 2, 3), {"stride": (2, 1, 2), "padding": 1}),
    ((3, 12, 12), (8, 3, 3, 3), {"stride": 2, "padding": 4}),
    ((3, 40, 40), (8, 3, 16, 16), {"stride": 16}),
    ((4, 3, 3), (6, 4, 2, 2), {"padding": 4}),
    ((6, 5, 5), (6, 1, 5, 5), {"stride": 2, "groups": 6}),
    ((6, 7, 19), (6, 1, 2, 2), {"padding": 3, "groups": 6}),
    ((17, 9, 11), (4, 17, 3, 3), {"stride": 2, "padding": 1}),  # no tile divides 17
]
# image, weights, attributes
TRANSPOSED = [
    (
        (6, 5, 7),
        (6, 2, 3, 3),
        {"stride": (2, 1), "padding": 1, "output_padding": (1, 0), "groups": 2},
    ),
    ((6, 5, 7), (6, 4, 3, 3), {"dilation": 2}),
    ((6, 4, 7), (6, 1, 3, 3), {"stride": 3, "output_padding": 2, "groups": 6}),
    ((6, 1), (6, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((6, 2, 3, 4), (6, 4, 2, 3, 2), {"stride": 2}),
    ((6, 1, 1), (6, 4, 4, 4), {}),
    ((1, 4, 4), (1, 4, 2, 2), {"stride": 2}),
    ((4, 5, 5), (4, 1, 3, 3), {"groups": 2}),  # one output of several channels
    ((6, 4, 17), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((4, 5, 6), (4, 19, 3, 3), {"stride": (1, 2)}),  # no tile divides 19
    # more results behind than a stride: below the dilation
    (
        (2, 2, 7),
        (2, 1, 4, 2),
        {
            "stride": (2, 3),
            "padding": (0, 2),
            "output_padding": (2, 0),
            "dilation": (3, 1),
            "groups": 2,
        },
    ),
    ((3, 4, 6), (3, 2, 1, 1), {"output_padding": 1, "dilation": 2}),
    ((3, 9), (3, 2, 3), {"stride": 2, "output_padding": 4, "dilation": 5}),
]


def images(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def close(got, wanted, tolerance=1e-4):
    wanted = wanted.detach().numpy()
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def of_rank(weights, suffix):
    return getattr(nn, f"conv{len(weights) - 2}d{suffix}")


@pytest.mark.parametrize(("image", "weights", "given"), GRADIENTS)
def test_gradients_of_images(image, weights, given):
    x, w = images(2, *image), images(*weights, seed=1)
    tx = t(x).requires_grad_()
    y = getattr(F, f"conv{len(weights) - 2}d")(tx, t(w), **given)
    dy = images(*y.shape, seed=2)
    (wanted,) = torch.autograd.grad(y, tx, t(dy))
    close(of_rank(weights, "_grad_data")(dy, w, image[1:], **given), wanted)


@pytest.mark.parametrize(("image", "weights", "given"), TRANSPOSED)
def test_transposed_with_their_gradients(image, weights, given):
    x, w = images(2, *image), images(*weights, seed=1)
    b = images(weights[1] * given.get("groups", 1), seed=2)
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = getattr(F, f"conv_transpose{len(weights) - 2}d")(tx, tw, tb, **given)
    close(of_rank(weights, "_transpose")(x, w, b, **given), y)
    dy = images(*y.shape, seed=3)
    wanted = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    made = of_rank(weights, "_transpose_grad")(dy, x, w, b, **given)
    for got, of in zip(made, wanted, strict=True):
        close(got, of)


def test_output_padding_stays_below_stride_or_dilation():
    x, w = images(1, 2, 4, 4), images(2, 1, 3, 3)
    with pytest.raises(ArgumentError, match=r"output_padding \(3, 3\) reaches stride"):
        nn.conv2d_transpose(x, w, stride=3, output_padding=3, dilation=2)


@pytest.mark.parametrize("case", [GRADIENTS[1], GRADIENTS[4], GRADIENTS[-1]])
def test_all_gradients_at_once(case):
    image, weights, given = case
    x, w, b = images(2, *image), images(*weights, seed=1), images(weights[0])
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = F.conv2d(tx, tw, tb, **given)
    dy = images(*y.shape, seed=3)
    wanted = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    for got, of in zip(nn.conv2d_grad(dy, x, w, b, **given), wanted, strict=True):
        close(got, of)


def test_gradient_of_images_by_finite_differences():
    x, w = (images(1, 2, 7, 6, dtype=np.float64), images(3, 2, 3, 3, dtype=np.float64))
    given = {"stride": 2, "padding": 1}
    y = nn.conv2d(x, w, **given)
    dy = images(*y.shape, dtype=np.float64, seed=3)
    dx = nn.conv2d_grad_data(dy, w, (7, 6), **given)
    for at in [(0, 0, 0, 0), (0, 1, 3, 2), (0, 1, 6, 5)]:
        moved = x.copy()
        moved[at] += 1e-6
        change = ((nn.conv2d(moved, w, **given) - y) * dy).sum() / 1e-6
        assert abs(change - dx[at]) < 1e-6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_summed_wide(dtype):
    x, w = images(1, 64, 5, 6).astype(dtype), images(64, 4, 4, 4, seed=1).astype(dtype)
    wide = [t(a.astype(np.float32)) for a in (x, w)]
    wanted = F.conv_transpose2d(*wide, stride=2, padding=1).numpy().astype(dtype)
    got = nn.conv2d_transpose(x, w, stride=2, padding=1)
    assert got.dtype == dtype
    got, wanted = (a.astype(np.float32) for a in (got, wanted))
    np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-2)


def test_views_activation_infinities_and_one_kernel_for_all_batches():
    w, b = images(6, 4, 4, 4, seed=1), images(4)
    given = {"stride": 2, "padding": 1}
    for n in (0, 1, 5):
        x = images(n, 6, 10, 7)[:, :, ::2]
        if n:
            x[0, 0, 2, 3], x[-1, 1, 0, 0] = np.nan, np.inf
        got = nn.conv2d_transpose(x, w, b, activation="relu", **given)
        wanted = F.relu(F.conv_transpose2d(t(x), t(w), t(b), **given))
        assert got.shape == tuple(wanted.shape) == (n, 4, 10, 14)
        close(got, wanted)
    known = {v for k, v in nn.conv2d_transpose.kernels.items() if k[0] == "kernel"}
    nn.conv2d_transpose(images(3, 6, 5, 7), w, b, activation="relu", **given)
    after = {v for k, v in nn.conv2d_transpose.kernels.items() if k[0] == "kernel"}
    assert after == known
