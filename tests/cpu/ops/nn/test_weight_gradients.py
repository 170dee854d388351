"""Gradients of convolutions' weights against PyTorch, in both layouts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.ops import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}

# image with channels, weights, attributes
CASES = [
    ((6, 10, 12), (16, 6, 3, 3), {"padding": 1}),
    (
        (6, 9, 11),
        (34, 3, 3, 2),
        {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": 2},
    ),
    ((16, 20, 18), (32, 16, 3, 3), {"padding": 1}),  # many pixels; whole vectors
    ((3, 41), (8, 3, 5), {"stride": 3, "padding": 2}),
    ((3, 7, 4, 5), (4, 3, 3, 2, 3), {"stride": (2, 1, 2), "padding": 1}),
    ((7, 5, 5), (40, 7, 5, 5), {}),  # one pixel
    ((1, 33, 40), (17, 1, 31, 33), {}),  # windows wider than registers are many
    ((5, 9, 7), (64, 5, 1, 1), {"stride": 2}),
    ((5, 3, 4), (6, 5, 1, 1), {"padding": 1}),
    ((128, 5, 9), (144, 128, 1, 1), {}),  # many vectors of channels
    ((131, 6, 5), (128, 131, 1, 1), {"stride": 2}),
    # one output for several channels
    ((8, 16, 16), (1, 8, 3, 3), {}),
    ((8, 16, 16), (1, 8, 3, 3), {"padding": 1}),
    ((17, 17, 7), (1, 17, 1, 1), {"stride": (2, 1)}),
    ((6, 7, 7), (2, 3, 3, 3), {"groups": 2, "stride": 2}),
    ((5, 17), (1, 5, 3), {"stride": 2}),
]


def images(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def problem(image, weights, given, batch=2):
    """Images, the gradient of results, and the gradient that is wanted of weights."""
    x, w = images(batch, *image), t(images(*weights, seed=1)).requires_grad_()
    y = getattr(F, f"conv{len(weights) - 2}d")(t(x), w, **given)
    dy = images(*y.shape, seed=2)
    return x, dy, torch.autograd.grad(y, w, t(dy))[0].numpy()


def gradient(dy, x, weights, given):
    op = getattr(nn, f"conv{len(weights) - 2}d_grad_weight")
    return op(dy, x, weights[2:], **given)


def channels_last(array):
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


@pytest.mark.parametrize(("image", "weights", "given"), CASES)
def test_in_both_layouts(image, weights, given):
    x, dy, wanted = problem(image, weights, given)
    got = gradient(dy, x, weights, given)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    last = {**given, "layout": LAST[len(weights) - 2]}
    got = gradient(channels_last(dy), channels_last(x), weights, last)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_any_batch_by_one_kernel():
    image, weights, given = CASES[2]
    for n in (1, 3):
        x, dy, wanted = problem(image, weights, given, batch=n)
        got = gradient(dy, x, weights, given)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    known = {v for k, v in nn.conv2d_grad_weight.kernels.items() if k[0] == "kernel"}
    none = np.empty((0, 32, 20, 18), np.float32), np.empty((0, 16, 20, 18), np.float32)
    assert not gradient(*none, weights, given).any()
    after = {v for k, v in nn.conv2d_grad_weight.kernels.items() if k[0] == "kernel"}
    assert after == known


def test_views_infinities_and_nan_stay_where_they_belong():
    image, weights, given = (6, 8, 7), (16, 6, 3, 3), {"padding": 1}
    _, dy, _ = problem(image, weights, given)
    x = images(2, 6, 8, 14)[..., ::2]
    x[0, 0, 0, 0], x[0, 1, 2, 6], x[1, 2, 7, 6] = np.inf, -np.inf, np.nan
    w = t(images(*weights)).requires_grad_()
    y = F.conv2d(t(x), w, **given)
    wanted = torch.autograd.grad(y, w, t(dy))[0].numpy()
    got = gradient(dy, x, weights, given)
    assert np.isinf(got).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_other_types(dtype, layout):
    image, weights, given = (6, 6, 8), (10, 6, 3, 3), {"padding": 1, "layout": layout}
    x, dy = images(1, *image, dtype=dtype), images(1, 10, 6, 8, dtype=dtype, seed=2)
    wide = [t(a.astype(np.float64)) for a in (x, dy)]
    w = torch.zeros(weights, dtype=torch.float64).requires_grad_()
    wanted = torch.autograd.grad(F.conv2d(wide[0], w, padding=1), w, wide[1])[0].numpy()
    if layout == "NHWC":
        x, dy = channels_last(x), channels_last(dy)
    got = gradient(dy, x, weights, given)
    assert got.dtype == dtype
    close = 1e-12 if dtype == np.float64 else 2e-2
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=close, atol=close)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("stride", [5000, 2**31, 2**62])
def test_a_stride_beyond_the_image(size, stride):
    x, dy = images(2, 16, 32, 32), images(2, 16, 1, 1, seed=2)
    weights, given = (16, 16, size, size), {"stride": stride}
    wanted = np.einsum("noyx,nchw->ochw", dy, x[:, :, :size, :size])
    got = gradient(dy, x, weights, given)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "sizes",  # images, channels of image and result, groups, side
    [(2, 37, 53, 1, 19), (1, 4, 12, 1, 40), (3, 20, 6, 2, 5), (16, 33, 9, 1, 1)],
)
def test_single_pixels_are_matrix_products(sizes, stride):
    batch, inputs, outputs, groups, side = sizes
    places = (side - 1) // stride + 1
    x, dy = images(batch, inputs, side, side), images(batch, outputs, places, places)
    op, weights = nn.conv2d_grad_weight, (outputs, inputs // groups, 1, 1)
    given = {"stride": stride, "groups": groups}
    workload = op.workload(dy.shape, x.shape, window=(1, 1), **given)
    assert op.prefers(workload) == "dot_products"
    of = dy.reshape(batch, groups, outputs // groups, places, places)
    seen = x[..., ::stride, ::stride].reshape(batch, groups, -1, places, places)
    wanted = np.einsum("ngoyx,ngcyx->goc", of, seen).reshape(weights)
    got = gradient(dy, x, weights, given)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
