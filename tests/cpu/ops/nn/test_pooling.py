"""Poolings and their gradients against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, ShapeError, TensorlangError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional


def images(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(reference, op, grad, x, *given, **named):
    """Result and gradient of an operator are those of a function of PyTorch."""
    tx = torch.from_numpy(x).requires_grad_()
    y = reference(tx)
    got = op(x, *given, **named)
    np.testing.assert_allclose(got, y.detach().numpy(), rtol=1e-5, atol=1e-5)
    dy = images(*y.shape, seed=7)
    (wanted,) = torch.autograd.grad(y, tx, torch.from_numpy(dy))
    made = grad(dy, x, *given, **named)
    np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        (2, {}),
        (3, {"stride": 2, "padding": 1}),
        ((3, 2), {"stride": (2, 1), "ceil_mode": True, "dilation": (1, 2)}),
    ],
)
def test_max_pool(kernel, given):
    x = images(2, 3, 9, 11)
    x[0, 0, 2, 3:5] = np.nan
    x[0, 1, 2:5, 3:6] = 9.0  # ties
    x[1, 0, 4, 4] = np.inf
    x[1, 1] = -np.inf  # also of windows that begin in the padding
    check(
        lambda v: F.max_pool2d(v, kernel, **given),
        nn.max_pool2d,
        nn.max_pool2d_grad,
        x,
        kernel,
        **given,
    )


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        (3, {"stride": 2, "padding": 1, "ceil_mode": True}),
        ((3, 2), {"stride": 2, "padding": 1, "count_include_pad": False}),
        (2, {"divisor": 7}),
    ],
)
def test_avg_pool(kernel, given):
    theirs = {"divisor_override" if k == "divisor" else k: v for k, v in given.items()}
    check(
        lambda v: F.avg_pool2d(v, kernel, **theirs),
        nn.avg_pool2d,
        nn.avg_pool2d_grad,
        images(2, 3, 9, 11),
        kernel,
        **given,
    )


def test_long_lines():
    x = torch.from_numpy(images(2, 3, 33, 79))
    for kernel, stride, padding in ((2, 2, 0), (3, 3, 0)):
        got = nn.max_pool2d(x, kernel, stride, padding)
        assert torch.equal(got, F.max_pool2d(x, kernel, stride, padding))
    got = nn.avg_pool2d(x, 3, 2, 1)
    assert torch.allclose(got, F.avg_pool2d(x, 3, 2, 1), atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "kernel", "given"),
    [
        ((8, 40), 2, {}),
        ((9, 37), 3, {"stride": 1, "padding": 1}),
        ((9, 37), 5, {"stride": 3, "padding": 2}),
        ((7, 5), 1, {"stride": 2}),
    ],
)
def test_gradients_of_maxima_in_long_lines(shape, kernel, given):
    for n in (0, 3):
        check(
            lambda v: F.max_pool2d(v, kernel, **given),
            nn.max_pool2d,
            nn.max_pool2d_grad,
            images(n, 2, *shape),
            kernel,
            **given,
        )


def test_gradients_of_maxima_in_one_and_three_dimensions():
    x, x3 = images(2, 3, 39), images(2, 3, 6, 7, 9)
    one, three = nn.max_pool1d, nn.max_pool3d
    check(lambda v: F.max_pool1d(v, 3, 2), one, nn.max_pool1d_grad, x, 3, stride=2)
    check(lambda v: F.max_pool3d(v, 2), three, nn.max_pool3d_grad, x3, 2)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_gradients_of_maxima_of_other_types(dtype):
    x, dy = images(2, 3, 8, 12).astype(dtype), images(2, 3, 4, 6, seed=1).astype(dtype)
    wide = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    y = F.max_pool2d(wide, 2)
    (wanted,) = torch.autograd.grad(y, wide, torch.from_numpy(dy.astype(np.float64)))
    got = nn.max_pool2d_grad(dy, x, 2)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float64), wanted.numpy())


def test_adaptive():
    x, results = images(2, 3, 9, 11), (12, 5)
    mean, top = nn.adaptive_avg_pool2d, nn.adaptive_max_pool2d
    check(
        lambda v: F.adaptive_avg_pool2d(v, results),
        mean,
        nn.adaptive_avg_pool2d_grad,
        x,
        results,
    )
    got, wanted = mean(x, (3, 11)), x.reshape(2, 3, 3, 3, 11).mean(3)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    x[0, 0, 2, 3:5] = np.nan
    check(
        lambda v: F.adaptive_max_pool2d(v, results),
        top,
        nn.adaptive_max_pool2d_grad,
        x,
        results,
    )


def last(reference):
    """A function of images whose channels come last."""
    return lambda v: reference(v.movedim(-1, 1)).movedim(1, -1)


def test_global():
    x = images(2, 3, 9, 11)
    mean, top = nn.global_avg_pool, nn.global_max_pool
    check(lambda v: F.adaptive_avg_pool2d(v, 1), mean, nn.global_avg_pool_grad, x)
    theirs = last(lambda v: F.adaptive_max_pool2d(v, 1))
    check(theirs, top, nn.global_max_pool_grad, x, layout="NHWC")


def test_one_and_three_dimensions_and_channels_last():
    check(
        last(lambda v: F.max_pool1d(v, 3, 2, 1)),
        nn.max_pool1d,
        nn.max_pool1d_grad,
        images(2, 30, 20),
        3,
        2,
        1,
        layout="NWC",
    )
    check(
        lambda v: F.avg_pool3d(v, 2),
        nn.avg_pool3d,
        nn.avg_pool3d_grad,
        images(2, 3, 4, 6, 8),
        2,
    )


def test_narrow_types():
    x = images(2, 3, 8, 8).astype(ml_dtypes.bfloat16)
    top = nn.max_pool2d(x, 2)
    blocks = x.reshape(2, 3, 4, 2, 4, 2).astype(np.float32)
    assert top.dtype == x.dtype
    np.testing.assert_array_equal(top.astype(np.float32), blocks.max((3, 5)))
    mean = nn.avg_pool2d(x, 2).astype(np.float32)
    np.testing.assert_allclose(mean, blocks.mean((3, 5)), rtol=1e-2, atol=1e-2)


def test_one_kernel_for_all_batches():
    nn.max_pool2d(images(2, 3, 9, 11), 2)
    known = {v for k, v in nn.max_pool2d.kernels.items() if k[0] == "kernel"}
    for shape in ((0, 3, 9, 11), (5, 7, 9, 11)):
        assert nn.max_pool2d(images(*shape), 2).shape == (*shape[:2], 4, 5)
    after = {v for k, v in nn.max_pool2d.kernels.items() if k[0] == "kernel"}
    assert after == known


def test_bad_calls():
    x = images(1, 3, 4, 4)
    with pytest.raises(ShapeError, match="does not fit"):
        nn.max_pool2d(x, 5)
    with pytest.raises(ArgumentError, match="whole windows"):
        nn.max_pool2d(x, 2, padding=2)
    with pytest.raises(ShapeError, match="4 dimensions, or 3 without a batch"):
        nn.avg_pool2d(x[0, 0], 2)
    with pytest.raises(ArgumentError, match="kernel is a whole number"):
        nn.avg_pool2d(x, 0)
    with pytest.raises(ShapeError, match="the result had"):
        nn.max_pool2d_grad(x, x, 2)
    with pytest.raises(ArgumentError, match="divisor"):
        nn.avg_pool2d(x, 2, divisor=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nn.adaptive_avg_pool2d(x, 2**40),
        lambda x: nn.max_pool2d(x, 2**40, padding=2**39),
        lambda x: nn.conv2d(x, np.ones((4, 3, 3, 3), np.float32), padding=2**40),
        lambda x: nn.conv2d(
            x, np.ones((4, 3, 3, 3), np.float32), padding=2**30, stride=2**30
        ),
        lambda x: nn.pad(x, [(0, 0)] * 3 + [(2**63, 0)]),
    ],
)
def test_sizes_beyond_any_memory_are_refused_at_once(call):
    with pytest.raises(ShapeError, match=r"more than 2\*\*48 elements"):
        call(np.ones((1, 3, 8, 8), np.float32))


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("size", [2**40, 2**62, 2**64 + 3])
def test_more_results_than_there_can_be(batch, size):
    x = np.ones((batch, 2, 8, 3), np.float32)
    for op in (nn.adaptive_avg_pool2d, nn.adaptive_max_pool2d):
        with pytest.raises(TensorlangError, match=r"2(\*\*|\^)48|not a value of i64"):
            op(x, size)


def test_largest_of_bf16_with_a_channel_beyond_whole_vectors():
    x = np.random.default_rng(0).standard_normal((1, 2, 2, 2, 17))
    x = x.astype(ml_dtypes.bfloat16)
    got = nn.global_max_pool(x, layout="NDHWC").ravel().astype(np.float32)
    assert (got == x.astype(np.float32).max((0, 1, 2, 3))).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (3, 9, 8), (0, 3, 9, 8)])
def test_positions_of_maxima(shape, dtype):
    x = (torch.from_numpy(images(*shape)) * 4).to(dtype)  # with ties
    for given in (
        {"stride": 2, "padding": 1},
        {"dilation": 2, "ceil_mode": True, "stride": (2, 3)},
    ):
        found = nn.max_pool2d(x, 3, **given, return_indices=True)
        wanted = F.max_pool2d(x, 3, **given, return_indices=True)
        assert all(map(torch.equal, found, wanted))
        assert torch.equal(nn.max_pool2d(x, 3, **given), wanted[0])
    if dtype.is_floating_point:
        found = nn.adaptive_max_pool2d(x, (4, 5), return_indices=True)
        wanted = F.adaptive_max_pool2d(x, (4, 5), return_indices=True)
        assert all(map(torch.equal, found, wanted))


def test_positions_of_maxima_with_channels_last():
    x = images(2, 9, 8, 3)
    found = nn.max_pool2d(x, 3, 2, 1, layout="NHWC", return_indices=True)
    given = torch.from_numpy(x.transpose(0, 3, 1, 2))
    wanted = F.max_pool2d(given, 3, 2, 1, return_indices=True)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs.permute(0, 2, 3, 1))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_one_image_without_a_batch(layout):
    x = images(5, 9, 8)
    for op, grad in (
        (nn.max_pool2d, nn.max_pool2d_grad),
        (nn.avg_pool2d, nn.avg_pool2d_grad),
        (nn.adaptive_avg_pool2d, nn.adaptive_avg_pool2d_grad),
    ):
        y = op(x, 2, layout=layout)
        np.testing.assert_array_equal(y, op(x[None], 2, layout=layout)[0])
        dx = grad(y, x, 2, layout=layout)
        np.testing.assert_array_equal(dx, grad(y[None], x[None], 2, layout=layout)[0])


@pytest.mark.parametrize(
    ("extent", "stride", "padding", "dilation", "fills"),
    [
        (1, 1, 2, 3, False),
        (2, 1, 3, 4, False),
        (3, 3, 3, 4, True),
        (9, 1, 4, 4, True),
    ],
)
def test_windows_around_a_small_image(extent, stride, padding, dilation, fills):
    x = images(1, 2, extent)
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    if not fills:
        with pytest.raises(ArgumentError, match="has no pixel of an image"):
            nn.max_pool1d(x, 2, **given)
        return
    y, places = nn.max_pool1d(x, 2, return_indices=True, **given)
    np.testing.assert_array_equal(np.take_along_axis(x, places, 2), y)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [(3, 1, 2), (3, 2, 2), (4, 3, 3), ((2, 5), (1, 2), (1, 4)), (5, 2, (4, 0))],
)
def test_padding_of_more_than_half_a_window(kernel, stride, padding, layout):
    """As of an image that is padded before, where PyTorch refuses it."""
    x = images(2, 3, 9, 11)
    x[1, 1] = -np.inf
    low = padding if isinstance(padding, tuple) else (padding,) * 2
    flat = [n for each in low[::-1] for n in (each, each)]
    order = last if layout == "NHWC" else lambda reference: reference
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x
    given = {"stride": stride, "padding": padding, "layout": layout}

    def largest(v):
        made = F.pad(v, flat, value=-torch.inf)
        return F.max_pool2d(made, kernel, stride)

    dy = images(*order(largest)(torch.from_numpy(x)).shape, seed=7)
    finite = np.where(np.isinf(x), 0, x).astype(np.float32)
    check(order(largest), nn.max_pool2d, nn.max_pool2d_grad, finite, kernel, **given)
    wanted = order(largest)(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(nn.max_pool2d(x, kernel, **given), wanted)
    grad = nn.max_pool2d_grad(dy, x, kernel, **given)
    np.testing.assert_allclose(grad.sum(), dy.sum(), rtol=1e-4)  # none of it is lost

    def mean(v):
        return F.avg_pool2d(F.pad(v, flat), kernel, stride)

    check(order(mean), nn.avg_pool2d, nn.avg_pool2d_grad, finite, kernel, **given)
