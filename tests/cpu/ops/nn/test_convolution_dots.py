"""Convolutions by dot products of groups of channels, with a row for each pixel."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ops import nn, pin
from tensorlang.ops.kernels.building import default, preferred
from tensorlang.ops.nn import convolution_layouts as layouts
from tensorlang.ops.nn.convolution_problem import of
from tensorlang.runtime import build
from tensorlang.workload import Workload

BF16 = np.dtype(ml_dtypes.bfloat16)
DOTS = targets.Target(
    device="emulated",
    arch="x86_64",
    features=("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"),
    vector_bits=512,
    vector_registers=32,
)
# images, weights, and how they are convolved
CASES = {
    "ragged": ((2, 5, 9, 11), (17, 5, 3, 3), {"padding": 1}),
    "strided": ((3, 34, 8, 8), (40, 34, 5, 5), {"stride": 2, "padding": 2}),
    "dilated": ((1, 6, 12, 10), (20, 6, 3, 2), {"dilation": (2, 3)}),
    "groups": ((2, 12, 7, 6), (24, 3, 3, 3), {"groups": 4, "padding": (1, 0)}),
    "one channel": ((2, 1, 9, 9), (3, 1, 3, 3), {}),
    "one pixel": ((2, 8, 3, 3), (18, 8, 3, 3), {}),
    "single pixels": ((2, 7, 5, 5), (6, 7, 1, 1), {"stride": 2}),
    "cropped after": ((1, 4, 6, 6), (16, 4, 2, 2), {"padding": (0, 1, 2, 0)}),
    "lines of 32": ((2, 20, 3, 32), (37, 20, 3, 3), {"padding": 1}),
    "no images": ((0, 4, 6, 6), (16, 4, 3, 3), {}),
}


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(BF16)


def reference(x, w, *, stride=1, padding=0, dilation=1, groups=1):
    """The direct sum in f64, and that of absolute values."""

    def each(given, count):
        return (given,) * count if isinstance(given, int) else given

    (sy, sx), (dy, dx) = each(stride, 2), each(dilation, 2)
    sides = each(padding, 2) if len(each(padding, 2)) == 2 else padding
    top, bottom, left, right = np.repeat(sides, 2) if len(sides) == 2 else sides
    x = np.pad(x.astype("f8"), [(0, 0), (0, 0), (top, bottom), (left, right)])
    w = w.astype("f8")
    height, width = (
        (n - 1) * d + 1 for n, d in zip(w.shape[2:], (dy, dx), strict=True)
    )
    seen = np.lib.stride_tricks.sliding_window_view(x, (height, width), axis=(2, 3))
    seen = seen[:, :, ::sy, ::sx, ::dy, ::dx]
    inputs, outputs = w.shape[1], w.shape[0] // groups

    def summed(seen, w):
        parts = [
            np.einsum(
                "bchwyx,ocyx->bohw",
                seen[:, g * inputs : (g + 1) * inputs],
                w[g * outputs : (g + 1) * outputs],
            )
            for g in range(groups)
        ]
        return np.concatenate(parts, axis=1)

    return summed(seen, w), summed(np.abs(seen), np.abs(w))


def back(dy, w, size, *, stride=1, padding=0, dilation=1, groups=1):
    """The gradient for images of extents `size` in f64, and its sum of magnitudes."""
    steps, apart = np.broadcast_to(stride, 2), np.broadcast_to(dilation, 2)
    sides = np.broadcast_to(padding, 2).repeat(2) if np.size(padding) < 4 else padding
    top, bottom, left, right = sides
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    found = np.zeros(
        (2, len(dy), groups * inputs, size[0] + top + bottom, size[1] + left + right)
    )
    for y, x in np.ndindex(w.shape[2:]):
        rows, columns = (
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, n, s in zip((y, x), apart, dy.shape[2:], steps, strict=True)
        )
        for g in range(groups):
            own = slice(g * outputs, (g + 1) * outputs)
            given = dy[:, own].astype("f8"), w[own, :, y, x].astype("f8")
            at = (slice(None), slice(g * inputs, (g + 1) * inputs), rows, columns)
            for kept, parts in zip(found, (given, map(np.abs, given)), strict=True):
                kept[at] += np.einsum("bohw,oc->bchw", *parts)
    return found[..., top : top + size[0], left : left + size[1]]


def workload(x, w, layout, how) -> Workload:
    return nn.conv2d.workload(x.shape, w.shape, dtypes="bf16", layout=layout, **how)


def _canonical(x, w, layout, how) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of images and weights as kernels take them."""
    problem = of(workload(x, w, layout, how))
    return problem.x, problem.w


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_those_of_f64(case, layout):
    (images, weights, how) = CASES[case]
    x, w = drawn(*images), drawn(*weights)
    expected, size = reference(x, w, **how)
    last = layout == "NHWC"
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    with pin("nn.conv2d:algorithm=dot_products"):
        made = nn.conv2d(given, w, layout=layout, **how)
    made = np.moveaxis(made, -1, 1) if last else made
    bound = 2**-8 * np.abs(expected) + 2**-20 * size
    assert made.shape == expected.shape
    assert (np.abs(made.astype("f8") - expected) <= bound).all()


@pytest.mark.parametrize("op", [nn.conv2d_grad_data, nn.conv2d_transpose])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES)
def test_sums_of_phases_are_those_of_f64(case, layout, op):
    (images, weights, how) = CASES[case]
    w, made = drawn(*weights), reference(drawn(*images), drawn(*weights), **how)[0]
    dy, last = drawn(*made.shape), layout == "NHWC"
    given = np.ascontiguousarray(np.moveaxis(dy, 1, -1)) if last else dy
    size = {"size": images[2:]} if op is nn.conv2d_grad_data else {}
    with pin(f"{op.id}:algorithm=dot_products"):
        found = op(given, w, layout=layout, **size, **how)
    found = np.moveaxis(found, -1, 1) if last else found
    expected, most = back(dy, w, found.shape[2:], **how)
    bound = 2**-8 * np.abs(expected) + 2**-20 * most
    assert found.shape == expected.shape
    assert (np.abs(found.astype("f8") - expected) <= bound).all()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("lines", [(1, 19), (5, 6, 7)])
def test_lines_and_volumes(lines, last):
    """One-dimensional images as two-dimensional ones; volumes by planes of taps."""
    op, extra = (nn.conv3d, 1) if len(lines) == 3 else (nn.conv1d, 0)
    *_, height, width = lines
    deep = lines[0] if extra else 1
    x, w = drawn(2, 9, deep, height, width), drawn(19, 9, 1 + extra, 1 + 2 * extra, 3)
    parts = [
        reference(x[:, :, z + k], w[:, :, k], padding=(extra, 1))
        for z in range(deep - extra)
        for k in range(1 + extra)
    ]
    planes = np.array(parts).reshape(deep - extra, 1 + extra, 2, *parts[0][0].shape)
    expected, size = np.moveaxis(planes.sum(1), (1, 0), (0, 3))
    if not extra:
        x, w, expected, size = (
            x[:, :, 0, 0],
            w[:, :, 0, 0],
            expected[:, :, 0, 0],
            size[:, :, 0, 0],
        )
    names = ("NCDHW", "NDHWC") if extra else ("NCW", "NWC")
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    padding = (0, 1, 1) if extra else 1
    with pin(f"{op.id}:algorithm=dot_products"):
        made = op(given, w, layout=names[last], padding=padding)
    made = np.moveaxis(made, -1, 1) if last else made
    bound = 2**-8 * np.abs(expected) + 2**-20 * size
    assert made.shape == expected.shape
    assert (np.abs(made.astype("f8") - expected) <= bound).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_pixels_beside_padding_that_are_not_finite(value, layout):
    """They reach just the results whose windows contain them."""
    x, w = drawn(1, 5, 6, 7), np.abs(drawn(18, 5, 3, 3)) + BF16.type(1)
    x[0, 4, 0, 6] = x[0, 2, 5, 0] = value
    last = layout == "NHWC"
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    with pin("nn.conv2d:algorithm=dot_products"):
        made = nn.conv2d(given, w, layout=layout, padding=1).astype("f4")
    made = np.moveaxis(made, -1, 1) if last else made
    seen = np.zeros((6, 7), bool)
    seen[:2, 5:] = seen[4:, :2] = True
    np.testing.assert_array_equal(made[0, :, seen], np.full((8, 18), value, "f4"))
    assert np.isfinite(made[0, :, ~seen]).all()


def test_bias_addend_and_activation():
    x, w, b = drawn(2, 6, 9, 9), drawn(21, 6, 3, 3), drawn(21)
    addend = drawn(2, 21, 9, 9)
    sums, size = reference(x, w, padding=1)
    shifted = sums + b.astype("f8")[:, None, None] + addend.astype("f8")
    with pin("nn.conv2d:algorithm=dot_products"):
        made = nn.conv2d(x, w, b, padding=1, activation="relu", addend=addend)
    bound = 2**-8 * np.abs(shifted) + 2**-19 * (size + 1)
    assert (np.abs(made.astype("f8") - np.maximum(shifted, 0)) <= bound).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("dpbf16ps", "ragged"),
        ("dpbf16ps", "strided"),
        ("dpbf16ps", "groups"),
        ("tdpbf16ps", "lines of 32"),  # a tile's pixels lie in one line
    ],
)
def test_the_instructions_by_their_meaning(name, case, layout):
    (images, weights, how) = CASES[case]
    x, w = drawn(*images), drawn(*weights)
    last = layout == "NHWC"
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    target, pins = DOTS, {"algorithm": "dot_products"}
    if name != "dpbf16ps":
        amx = (*DOTS.features, "amx_tile", "amx_bf16")
        target, pins = replace(DOTS, features=amx), pins | {"products": "tiles"}
    made, _ = default(nn.conv2d, workload(given, w, layout, how), target, pins)
    assert name in str(made.function), made.declined
    kernel = build(made.function, target, store=False, by_meaning=True)
    expected, size = reference(x, w, **how)
    shapes = _canonical(given, w, layout, how)
    found = kernel(*(a.reshape(n) for a, n in zip((given, w), shapes, strict=True)))
    lying = np.moveaxis(expected, 1, -1) if last else expected
    found = found.reshape(lying.shape)
    found = np.moveaxis(found, -1, 1) if last else found
    bound = 2**-8 * np.abs(expected) + 2**-20 * size
    assert (np.abs(found.astype("f8") - expected) <= bound).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", ["ragged", "strided", "groups"])
@pytest.mark.parametrize("name", ["dpbf16ps", "tdpbf16ps"])
def test_the_instructions_of_phases_by_their_meaning(name, case, layout):
    (images, weights, how) = CASES[case]
    w, made = drawn(*weights), reference(drawn(*images), drawn(*weights), **how)[0]
    dy, last = drawn(*made.shape), layout == "NHWC"
    given = np.ascontiguousarray(np.moveaxis(dy, 1, -1)) if last else dy
    target, pins = DOTS, {"algorithm": "dot_products"}
    if name != "dpbf16ps":
        target = replace(DOTS, features=(*DOTS.features, "amx_tile", "amx_bf16"))
    asked = nn.conv2d_grad_data.workload(
        given.shape, w.shape, dtypes="bf16", layout=layout, size=images[2:], **how
    )
    made, _ = default(nn.conv2d_grad_data, asked, target, pins)
    assert "dpbf16ps" in str(made.function), made.declined
    p = of(asked)
    kernel = build(made.function, target, store=False, by_meaning=True)
    expected, size = back(dy, w, images[2:], **how)
    found = kernel(given.reshape(p.y), w.reshape(p.w))
    lying = np.moveaxis(expected, 1, -1) if last else expected
    found = found.reshape(lying.shape)
    found = np.moveaxis(found, -1, 1) if last else found
    bound = 2**-8 * np.abs(expected) + 2**-20 * size
    assert (np.abs(found.astype("f8") - expected) <= bound).all()


def test_phases_are_left_to_dot_products_where_these_are_faster():
    def chosen(layout, side, window, stride):
        dy = (1, side, side, 128) if layout == "NHWC" else (1, 128, side, side)
        asked = nn.conv2d_grad_data.workload(
            dy,
            (128, 256, window, window),
            dtypes="bf16",
            layout=layout,
            size=(28, 28),
            stride=stride,
            padding=window // 2,
        )
        return preferred(nn.conv2d_grad_data, asked, DOTS)

    assert chosen("NCHW", 28, 3, 1) == chosen("NHWC", 28, 3, 1) == "dot_products"
    assert chosen("NCHW", 14, 3, 2) == chosen("NHWC", 14, 3, 2) == "dot_products"
    # one pixel of four is multiplied, and all are taken apart by elements
    assert chosen("NCHW", 14, 1, 2) == "implicit_gemm"


def test_dot_products_are_preferred_where_there_are_any():
    asked = workload(drawn(1, 28, 28, 64), drawn(64, 64, 3, 3), "NHWC", {})
    assert preferred(nn.conv2d, asked, DOTS) == "dot_products"
    plain = targets.Target(
        device="plain", features=("avx2", "fma"), vector_bits=256, vector_registers=16
    )
    assert preferred(nn.conv2d, asked, plain) == "channels_last"


def test_copies_of_images_are_predicted():
    def predicted(layout, side, channels, padding):
        x = drawn(1, side, side, channels)
        if layout == "NCHW":
            x = np.moveaxis(x, -1, 1)
        how = {"padding": padding}
        p = of(workload(x, drawn(64, channels, 3, 3), layout, how))
        return layouts.by_dots(p, "bf16", DOTS)

    plain, padded = predicted("NHWC", 30, 64, 0), predicted("NHWC", 28, 64, 1)
    odd, even = predicted("NHWC", 30, 63, 0), predicted("NHWC", 30, 64, 0)
    assert plain < padded < predicted("NCHW", 28, 64, 1)
    assert even < odd


def test_images_with_channels_first_are_transposed_in_squares():
    asked = workload(drawn(2, 21, 12, 28), drawn(20, 21, 3, 3), "NCHW", {})
    made, _ = default(nn.conv2d, asked, DOTS, {"algorithm": "dot_products"})
    steps = str(made.trace)
    # lines of 28 pixels by 21 channels: 16 + 8 + 4 by 16 + 4, and by 8 + 8 + 4
    assert all(f"transpose_{n}x{n}xbf16" in steps for n in (16, 8, 4)), made.declined


def test_results_with_channels_last_are_written_from_the_tiles():
    asked = workload(drawn(2, 12, 12, 6), drawn(20, 6, 3, 3), "NHWC", {})
    made, _ = default(nn.conv2d, asked, DOTS, {"algorithm": "dot_products"})
    assert not re.search(r'block\(\s*"y"', str(made.function))
