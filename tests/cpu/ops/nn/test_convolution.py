"""Convolutions and their gradients against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn
from tensorlang.ops.registry import find

torch = pytest.importorskip("torch")
F = torch.nn.functional

# window, channels, outputs, attributes, activation, element type
GRID = [
    ((3, 3), 6, 16, {"padding": 1}, "relu", np.float32),
    (
        (3, 2),
        6,
        4,
        {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)},
        None,
        np.float64,
    ),
    # no tile divides 17 outputs of a group
    ((3, 3), 6, 34, {"groups": 2, "padding": 1, "stride": (2, 3)}, "silu", np.float32),
    ((3, 3), 6, 6, {"groups": 6, "padding": 1}, "sigmoid", np.float32),
    ((1, 1), 6, 8, {}, "gelu", np.float32),
    # windows that read few of the pixels between them
    ((1, 1), 6, 8, {"stride": (2, 3)}, "relu", np.float32),
    ((3, 3), 6, 4, {"stride": 2, "padding": 2, "dilation": 2}, None, np.float32),
    ((3, 3), 6, 4, {"stride": 4, "padding": 2, "dilation": 2}, None, np.float32),
    (
        (3, 5),
        8,
        8,
        {"groups": 8, "padding": 2, "stride": (2, 3), "dilation": (1, 2)},
        "tanh",
        np.float32,
    ),
]


def images(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def weights(window, channels, outputs, given, dtype=np.float32):
    own = channels // given.get("groups", 1)
    return images(outputs, own, *window, dtype=dtype, seed=1)


def close(got, wanted, tolerance=2e-5):
    wanted = wanted.detach().numpy() if torch.is_tensor(wanted) else wanted
    assert got.shape == wanted.shape
    np.testing.assert_allclose(
        got.astype(np.float64), wanted, rtol=tolerance, atol=tolerance
    )


def activated(name, value):
    return (getattr(F, name, None) or getattr(torch, name))(value) if name else value


@pytest.mark.parametrize("case", GRID)
def test_forward_and_gradients_are_pytorchs(case):
    window, channels, outputs, given, activation, dtype = case
    x = images(2, channels, 9, 11, dtype=dtype)
    w = weights(window, channels, outputs, given, dtype)
    b = images(outputs, dtype=dtype, seed=2)
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = F.conv2d(tx, tw, tb, **given)
    made = nn.conv2d(x, w, b, activation=activation, **given)
    close(made, activated(activation, y))
    dy = images(*y.shape, dtype=dtype, seed=3)
    wanted = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    for got, of in zip(nn.conv2d_grad(dy, x, w, b, **given), wanted, strict=True):
        close(got, of, 1e-4)


def test_channels_may_come_last():
    given = {"groups": 2, "stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}
    x, w, b = images(2, 9, 11, 6), images(4, 3, 3, 2, seed=1), images(4)
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = F.conv2d(tx.permute(0, 3, 1, 2), tw, tb, **given).permute(0, 2, 3, 1)
    close(nn.conv2d(x, w, b, layout="NHWC", **given), y)
    dy = images(*y.shape, seed=3)
    wanted = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    made = nn.conv2d_grad(dy, x, w, b, layout="NHWC", **given)
    for got, of in zip(made, wanted, strict=True):
        close(got, of, 1e-4)


def test_one_and_three_dimensions():
    x, w = images(2, 3, 40), images(4, 3, 5, seed=1)
    close(nn.conv1d(x, w, padding="same"), F.conv1d(t(x), t(w), padding="same"))
    x, w = images(2, 3, 5, 6, 7), images(4, 3, 2, 3, 3, seed=1)
    wanted = F.conv3d(t(x), t(w), stride=(1, 2, 1), padding=1)
    close(nn.conv3d(x, w, stride=(1, 2, 1), padding=1), wanted, 1e-4)


def test_transposed():
    x, w = images(2, 6, 5, 7), images(6, 2, 3, 3, seed=1)
    given = {"groups": 2, "stride": (2, 1), "padding": 1, "output_padding": (1, 0)}
    b = images(4, seed=2)
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = F.conv_transpose2d(tx, tw, tb, **given)
    close(nn.conv2d_transpose(x, w, b, **given), y)
    dy = images(*y.shape, seed=3)
    wanted = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    made = nn.conv2d_transpose_grad(dy, x, w, b, **given)
    for got, of in zip(made, wanted, strict=True):
        close(got, of, 1e-4)


def test_gradients_apart():
    window, channels, outputs, given, *_ = GRID[2]
    x, w = images(2, channels, 9, 11), weights(window, channels, outputs, given)
    dy = images(2, outputs, 5, 4, seed=3)
    both = nn.conv2d_grad(dy, x, w, images(outputs), **given)
    close(nn.conv2d_grad_data(dy, w, (9, 11), **given), both[0])
    close(nn.conv2d_grad_weight(dy, x, window, **given), both[1])


def test_gradient_by_finite_differences():
    window, channels, outputs, given, _, dtype = GRID[1]
    x = images(2, channels, 9, 11, dtype=dtype)
    w = weights(window, channels, outputs, given, dtype)
    b = images(outputs, dtype=dtype, seed=2)
    y = nn.conv2d(x, w, b, **given)
    dy = images(*y.shape, dtype=dtype, seed=3)
    dx, dw, _ = nn.conv2d_grad(dy, x, w, b, **given)
    step = 1e-6
    for array, gradient in ((x, dx), (w, dw)):
        for at in [(0, 0, 0, 0), (1, 3, 2, 1)]:
            moved = array.copy()
            moved[at] += step
            args = (moved, w) if array is x else (x, moved)
            change = nn.conv2d(*args, b, **given) - y
            assert abs((change * dy).sum() / step - gradient[at]) < 1e-6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_summed_wide(dtype):
    x, w = images(1, 64, 5, 6).astype(dtype), images(4, 64, 3, 3, seed=1).astype(dtype)
    b = images(4).astype(dtype)
    wide = [a.astype(np.float32) for a in (x, w, b)]
    wanted = F.conv2d(*map(t, wide), padding=1).numpy().astype(dtype)
    got = nn.conv2d(x, w, b, padding=1)
    assert got.dtype == dtype
    np.testing.assert_allclose(
        got.astype(np.float32), wanted.astype(np.float32), rtol=1e-2, atol=1e-2
    )


def test_one_kernel_for_all_batches():
    w, b = images(16, 6, 3, 3, seed=1), images(16, seed=2)
    nn.conv2d(images(2, 6, 9, 11), w, b, padding=1, activation="relu")
    known = {v for k, v in nn.conv2d.kernels.items() if k[0] == "kernel"}
    for n in (0, 1, 5):
        x = images(n, 6, 9, 11)
        y = nn.conv2d(x, w, b, padding=1, activation="relu")
        assert y.shape == (n, 16, 9, 11)
        if n:
            close(y, F.relu(F.conv2d(t(x), t(w), t(b), padding=1)))
    after = {v for k, v in nn.conv2d.kernels.items() if k[0] == "kernel"}
    assert after == known


def test_views_huge_values_and_nan():
    x = images(2, 6, 18, 22)[:, :, ::2, ::2] * np.float32(1e18)
    w = images(16, 6, 3, 3, seed=1) * np.float32(1e18)
    x[0, 0, 4, 4] = np.nan
    x[1, 1, 1, 1] = np.inf
    b = np.zeros(16, np.float32)
    got = nn.conv2d(x, w, b, padding=1, activation="relu")
    wanted = F.relu(F.conv2d(t(x), t(w), padding=1)).numpy()
    assert (np.isnan(got) == np.isnan(wanted)).all()
    there = np.isfinite(wanted)
    np.testing.assert_allclose(got[there], wanted[there], rtol=1e-3, atol=1e33)


def test_shapes_without_data():
    assert nn.conv2d.shape((8, 3, 32, 32), (16, 3, 3, 3), padding=1) == (8, 16, 32, 32)
    x, w = (8, 3, 32, 32), (16, 3, 1, 1)
    assert nn.conv2d.shape(x, w, stride=2) == (8, 16, 16, 16)
    assert nn.conv2d.flops((1, 4, 8, 8), (2, 4, 3, 3)) == 2 * 36 * 2 * 36


@pytest.mark.parametrize(("rank", "groups"), [(1, 4), (2, 2), (3, 1)])
@pytest.mark.parametrize("suffix", ["", "_transpose"])
def test_one_image_needs_no_batch(rank, groups, suffix):
    op = getattr(nn, f"conv{rank}d{suffix}")
    x, w = images(4, *[7] * rank), images(4, 4 // groups, *[3] * rank, seed=1)
    given = {"stride": 2, "padding": 1, "groups": groups}
    y = op(x, w, images(4), **given)
    close(y, op(x[None], w, images(4), **given)[0])
    grad = find(f"{op.id}_grad")
    for one, whole in zip(
        grad(y, x, w, images(4), **given),
        grad(y[None], x[None], w, images(4), **given),
        strict=True,
    ):
        close(one, whole.reshape(one.shape))
    if suffix:
        return
    more = {"dy": y, **given}
    close(
        find(f"{op.id}_grad_data")(w=w, size=x.shape[1:], **more),
        grad(y, x, w, **given)[0],
    )
    close(
        find(f"{op.id}_grad_weight")(x=x, window=3, **more), grad(y, x, w, **given)[1]
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_one_image_in_each_layout_with_an_addend(layout):
    x, w = images(6, 8, 3), images(5, {"NCHW": 6, "NHWC": 3}[layout], 3, 3, seed=1)
    shape = {"NCHW": (5, 6, 1), "NHWC": (4, 6, 5)}[layout]
    given = {"layout": layout, "activation": "relu", "tolerance": 1e-2}
    add = images(*shape, seed=2)
    y = nn.conv2d(x, w, addend=add, **given)
    close(y, nn.conv2d(x[None], w, addend=add[None], **given)[0])


# every type in two dimensions, and every number of dimensions in one type
KINDS = [(dtype, 2) for dtype in (np.int8, np.uint8, np.int32, np.int64)]
KINDS += [(np.int8, 1), (np.int32, 3)]


@pytest.mark.parametrize(("dtype", "rank"), KINDS)
@pytest.mark.parametrize("groups", [1, 4])
def test_integers_wrap(dtype, rank, groups):
    def drawn(*shape):
        return np.random.default_rng(0).integers(0, 9, shape).astype(dtype)

    x, b = drawn(2, 4, *[9] * rank), drawn(8)
    w, back = drawn(8, 4 // groups, *[2] * rank), drawn(4, 8 // groups, *[2] * rank)
    wide = [t(each.astype(np.int64)) for each in (x, w, back, b)]
    given = {"stride": 2, "padding": 1, "groups": groups}
    theirs = getattr(F, f"conv{rank}d")(*wide[:2], wide[3], **given)
    conv = getattr(nn, f"conv{rank}d")
    np.testing.assert_array_equal(conv(x, w, b, **given), theirs.numpy().astype(dtype))
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    made = conv(last, w, b, layout=("NWC", "NHWC", "NDHWC")[rank - 1], **given)
    np.testing.assert_array_equal(
        np.moveaxis(made, -1, 1), theirs.numpy().astype(dtype)
    )
    theirs = getattr(F, f"conv_transpose{rank}d")(wide[0], *wide[2:], **given)
    made = getattr(nn, f"conv{rank}d_transpose")(x, back, b, **given)
    np.testing.assert_array_equal(made, theirs.numpy().astype(dtype))


def test_bad_calls():
    x, w = images(1, 4, 5, 5), images(2, 4, 3, 3)
    with pytest.raises(ShapeError, match="4 channels"):
        nn.conv2d(x, w, groups=2)
    with pytest.raises(ShapeError, match="does not fit"):
        nn.conv2d(x, w, dilation=3)
    with pytest.raises(ShapeError, match="bias has shape"):
        nn.conv2d(x, w, images(3))
    with pytest.raises(ShapeError, match="4 dimensions"):
        nn.conv2d(x[0, 0], w)
    with pytest.raises(ShapeError, match="4 dimensions"):
        nn.conv2d(x, w[0])
    with pytest.raises(ShapeError, match="4 dimensions"):
        nn.conv2d_grad(x, x[0], w, padding=1)
    with pytest.raises(DTypeError, match="'gelu' is a function of floats, not of i32"):
        nn.conv2d(x.astype("i"), w.astype("i"), activation="gelu")
    with pytest.raises(ArgumentError, match="stride is a whole number"):
        nn.conv2d(x, w, stride=0)
    with pytest.raises(ArgumentError, match="padding is"):
        nn.conv2d(x, w, padding="full")
    with pytest.raises(ArgumentError, match="'same' is for stride 1"):
        nn.conv2d(x, w, padding="same", stride=2)
    with pytest.raises(ArgumentError, match="layout is"):
        nn.conv2d(x, w, layout="CHWN")
    with pytest.raises(ArgumentError, match="activation is one of"):
        nn.conv2d(x, w, activation="swish")
    with pytest.raises(ArgumentError, match="tolerance"):
        nn.conv2d(x, w, tolerance="high")
    with pytest.raises(DTypeError, match="one element type"):
        nn.conv2d(x, w.astype(np.float64))
    with pytest.raises(ShapeError, match="dy has shape"):
        nn.conv2d_grad(x, x, w)
    with pytest.raises(ArgumentError, match="gradient of its own"):
        nn.conv2d_grad(x, x, w, padding=1, activation="relu")


def test_one_column_of_each_channel_for_itself():
    x, w = images(2, 8, 3, 5), images(8, 1, 3, 5, seed=1)
    given = {"groups": 8, "padding": (2, 0), "stride": (1, 3)}
    close(nn.conv2d(x, w, **given), F.conv2d(t(x), t(w), **given))


def test_gradients_of_each_channel_for_itself_in_long_lines():
    x, w = images(2, 4, 8, 33), images(4, 1, 5, 7, seed=1)
    given = {"groups": 4, "padding": (1, 3)}
    tx, tw = (t(a).requires_grad_() for a in (x, w))
    y = F.conv2d(tx, tw, **given)
    dy = images(*y.shape, seed=3)
    wanted = torch.autograd.grad(y, [tx, tw], t(dy))
    for got, of in zip(nn.conv2d_grad(dy, x, w, **given), wanted, strict=True):
        close(got, of, 1e-4)


def test_many_weights_are_turned_round_for_each_tile():
    dy, w = images(2, 160, 3, 4), images(160, 192, 3, 3, seed=1)
    wanted = F.conv_transpose2d(t(dy), t(w), padding=1)
    close(nn.conv2d_grad_data(dy, w, (3, 4), padding=1), wanted, 2e-4)
