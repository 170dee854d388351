"""Convolutions by warpgroups, whose bulk copies read boxes of pixels."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build, targets
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default

NEAR = 2**-8


def convolved(x, w, padding):
    """The convolution of images with channels last, in f64."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), *zip(padding[::2], padding[1::2], strict=True), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(
        x, w.shape[2:], range(1, rank + 1)
    )
    taps = "xyz"[:rank]
    return np.einsum(f"b...c{taps},oc{taps}->b...o", windows, w)


def error(name, shapes, padding, knobs=None, processors=3, **given):
    """The largest error relative to the largest result, and the source."""
    op, rank = find(name), len(shapes[0]) - 2
    given |= {"padding": padding, "layout": ("NWC", "NHWC", "NDHWC")[rank - 1]}
    workload = op.workload(*shapes, dtypes="bf16", **given)
    target = replace(targets.get("cuda"), threads=processors)
    kernel = build(default(op, workload, target, knobs or {})[0], target)
    rng = np.random.default_rng(5)
    taken = [rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes]
    x, w, *bias = (array.astype("f8") for array in taken)
    wanted = convolved(x, w, padding)
    if bias:
        wanted = np.maximum(wanted + bias[0], 0)
    y = np.full(wanted.shape, np.nan, ml_dtypes.bfloat16)
    kernel.launch(*taken, y)
    return np.abs(y.astype("f8") - wanted).max() / np.abs(wanted).max(), kernel.source


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize(
    ("name", "x", "w", "padding"),
    [
        ("nn.conv2d", (3, 7, 7, 64), (64, 64, 3, 3), (1, 1, 1, 1)),
        ("nn.conv2d", (1, 9, 20, 128), (64, 128, 3, 3), (1, 1, 1, 1)),
        ("nn.conv2d", (2, 8, 10, 72), (72, 72, 3, 3), (0, 0, 0, 0)),
        ("nn.conv2d", (2, 5, 6, 64), (136, 64, 5, 3), (3, 2, 0, 2)),
        ("nn.conv1d", (2, 100, 64), (64, 64, 3), (1, 1)),
        ("nn.conv3d", (2, 3, 4, 5, 64), (64, 64, 2, 2, 2), (1, 0, 0, 1, 1, 0)),
    ],
)
def test_images_are_read_by_boxes(name, x, w, padding):
    found, source = error(name, (x, w), padding)
    assert "wgmma" in source
    assert "mma.sync" not in source
    assert found < NEAR


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize(
    "knobs",
    [
        {"warpgroups": 1, "box_1": 4, "box_2": 4, "persistent": False},
        {"warpgroups": 2, "group_columns": 128, "box_1": 1, "box_2": 128},
        {"warpgroups": 2, "box_1": 16, "box_2": 8, "in_flight": 1, "ring": 3},
        {"warpgroups": 2, "box_1": 2, "box_2": 4, "bulk_store": False},
        {"warpgroups": 1, "step_parts": 2},
    ],
)
def test_every_tile(knobs):
    shapes = (5, 6, 11, 128), (128, 128, 3, 3)
    found, source = error("nn.conv2d", shapes, (1, 1, 1, 1), knobs)
    assert "mma.sync" not in source
    assert found < NEAR


@pytest.mark.usefixtures("ptx_driver")
def test_an_epilogue_runs_on_the_sums():
    shapes = (3, 5, 7, 64), (64, 64, 3, 3), (64,)
    found, source = error("nn.conv2d", shapes, (1, 1, 1, 1), activation="relu")
    assert source.count("__global__") == 2
    assert found < NEAR


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 2, 1, 0)])
def test_gradients_of_images(padding):
    before, after = np.reshape(padding, (2, 2)).T
    height, width = (np.array((5, 6)) + before + after - 2).tolist()
    shapes = (2, height, width, 64), (64, 72, 3, 3)
    given = {"padding": padding, "layout": "NHWC", "size": (5, 6)}
    op, target = find("nn.conv2d_grad_data"), targets.get("cuda")
    workload = op.workload(*shapes, dtypes="f16", **given)
    kernel = build(default(op, workload, target, {})[0], target)
    assert "mma.sync" not in kernel.source
    rng = np.random.default_rng(5)
    dy, w = (rng.standard_normal(shape).astype("f2") for shape in shapes)
    turned = w.astype("f8").transpose(1, 0, 2, 3)[..., ::-1, ::-1]
    wanted = convolved(dy.astype("f8"), turned, tuple(2 - n for n in padding))
    dx = np.full(wanted.shape, np.nan, "f2")
    kernel.launch(dy, w, dx)
    assert np.abs(dx - wanted).max() < 2**-11 * np.abs(wanted).max()
