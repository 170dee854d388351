"""Direct convolution: register tiles of whole and ragged rows, with strides."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import run, show
from tensorlang.runtime import build

# image, weight, stride
CASES = {
    "whole tiles": ((1, 2, 4, 34), (4, 2, 3, 3), 1),
    "a tail of columns": ((1, 2, 4, 60), (3, 2, 2, 3), 1),
    "a last vector that is not full": ((2, 3, 4, 25), (4, 3, 3, 2), 1),
    "less than a vector": ((1, 2, 5, 7), (5, 2, 3, 3), 1),
    "stride 2": ((1, 2, 7, 67), (3, 2, 3, 3), 2),
    "stride 2, ragged": ((2, 1, 6, 20), (2, 1, 2, 5), 2),
    "stride 3": ((1, 2, 7, 23), (2, 2, 1, 1), 3),
    "size 1": ((1, 1, 1, 1), (1, 1, 1, 1), 1),
    "no images": ((0, 2, 5, 5), (3, 2, 2, 2), 1),
}


def reference(x, f, stride):
    windows = np.lib.stride_tricks.sliding_window_view(x, f.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    return np.einsum("bcijyx,ocyx->boij", windows, f, dtype=np.float64)


@pytest.mark.parametrize("case", CASES)
def test_conv_is_exact_on_whole_numbers(load, results, case):
    image, weight, stride = CASES[case]
    conv = load("conv2d")
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, image).astype(np.float32)
    f = rng.integers(-4, 5, weight).astype(np.float32)
    expected = reference(x, f, stride)
    func = conv.conv2d(image, weight, stride)
    y = np.full(expected.shape, np.nan, np.float32)
    for scheduled in (func, conv.tiled(func, stride).function):
        for (found,) in results(scheduled, x, f, y):
            np.testing.assert_array_equal(found, expected)


def test_conv_is_near_float64(load):
    conv = load("conv2d")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 16, 30, 43), np.float32)
    f = rng.standard_normal((12, 16, 3, 3), np.float32)
    func = conv.conv2d(x.shape, f.shape)
    y = build(conv.tiled(func).function, store=False)(x, f)
    assert np.abs(y - reference(x, f, 1)).max() < 1e-7 * 16 * 9 * 4


def test_scheduled_conv_text(load, golden):
    conv = load("conv2d")
    func = conv.conv2d((1, 3, 9, 75), (4, 3, 3, 3), 2)
    golden(show(conv.tiled(func, 2).function) + "\n")


def test_conv_tiles_fit_into_the_registers(load):
    conv = load("conv2d")
    for channels in (1, 7, 13, 24, 64, 97):
        for columns in (1, 14, 16, 28, 55, 56, 112, 224):
            rows, vectors = conv.tile_shape(channels, columns)
            assert channels % rows == 0
            assert (rows + 1) * vectors < conv.REGISTERS


def test_the_conv_tile_stays_in_registers(load):
    if targets.host().vector_registers < 32:
        pytest.skip("the tile needs the 32 vector registers of AVX-512")
    conv = load("conv2d")
    func = conv.conv2d((1, 8, 6, 66), (24, 8, 3, 3))
    kernel = build(conv.tiled(func).function, store=False)
    bodies = re.split(r"\n(?=\.LBB\S+:)", kernel.asm)
    body = max(bodies, key=lambda text: text.count("vfmadd"))
    inner = body[: re.search(r"\n\tj[a-z]+\s+\.LBB", body).end()]
    assert inner.count("vfmadd") >= 3 * 16
    assert "(%rsp" not in inner
    assert "(%rbp" not in inner or "%rsp, %rbp" not in kernel.asm  # rbp is no frame


def test_conv_without_faults_on_its_own_size(load):
    """The interpreter's races, bounds and unwritten reads, on one layer's row."""
    conv = load("conv2d")
    image, weight = (1, 4, 3, 58), (8, 4, 3, 3)
    func = conv.tiled(conv.conv2d(image, weight)).function
    y = np.zeros((1, 8, 1, 56), np.float32)
    report = run(func, np.ones(image, "f4"), np.ones(weight, "f4"), y)
    assert report.steps > 0
    assert (y == 36).all()
