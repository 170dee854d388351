"""Convolutions by warpgroups: the schedule, run with every check; and what is left."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import ArgumentError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default

HOPPER = targets.to_compile("cuda:sm_90a")
KNOBS = ("warpgroups", "group_columns", "box_1", "box_2")


def scheduled(x, w, knobs=None, padding=1, **given):
    op = find("nn.conv2d")
    given = {"padding": (padding,) * 4, "layout": "NHWC", "dtypes": "bf16", **given}
    return default(op, op.workload(x, w, **given), HOPPER, knobs or {})


@pytest.mark.parametrize(
    ("x", "knobs"),
    [
        ((2, 3, 5, 64), {"warpgroups": 1, "ring": 2}),
        ((1, 3, 3, 72), {"warpgroups": 1, "box_1": 2, "box_2": 4, "persistent": False}),
        ((1, 2, 9, 64), {"warpgroups": 2, "box_1": 2, "box_2": 8, "bulk_store": False}),
    ],
)
def test_boxes_are_multiplied_with_every_check(x, knobs):
    w = (64, x[-1], 2, 3)
    func = scheduled(x, w, knobs)[0].function
    verify(func)
    assert parse(show(func)) == func
    rng = np.random.default_rng(1)
    image, weight = (rng.integers(-2, 3, n).astype(ml_dtypes.bfloat16) for n in (x, w))
    edged = np.pad(image.astype("f4"), [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(edged, w[2:], (1, 2))
    wanted = np.einsum("bijcuv,ocuv->bijo", windows, weight.astype("f4"))
    y = np.full(wanted.shape, np.nan, ml_dtypes.bfloat16)
    run(func, image, weight, y)
    assert (y == wanted.astype(ml_dtypes.bfloat16)).all()


# ResNet-50's, of as many images as may be: least is computed outside of them
@pytest.mark.parametrize(
    ("channels", "extent", "tile"),
    [
        (64, 56, (2, 64, 8, 8)),
        (128, 28, (2, 128, 4, 4)),
        (256, 14, (2, 128, 2, 2)),
        (512, 7, (2, 128, 1, 4)),
    ],
)
def test_the_fastest_tile_is_chosen(channels, extent, tile):
    x, w = (64, extent, extent, channels), (channels, channels, 3, 3)
    values = scheduled(x, w)[1].values
    assert tuple(values[name] for name in KNOBS) == tile


@pytest.mark.parametrize(
    ("x", "w", "given"),
    [
        ((2, 9, 9, 64), (64, 64, 3, 3), {"stride": (2, 2)}),
        ((2, 9, 9, 128), (128, 64, 3, 3), {"groups": 2}),
        ((2, 64, 9, 9), (64, 64, 3, 3), {"layout": "NCHW"}),
        ((2, 9, 9, 12), (64, 12, 3, 3), {}),
        ((2, 9, 9, 16), (64, 16, 3, 3), {}),  # of which steps would be mostly zeros
        ((2, 9, 9, 64), (32, 64, 3, 3), {}),
        ((2, 9, 9, 64), (64, 64, 3, 3), {"dtypes": "f32"}),
    ],
)
def test_other_convolutions_are_left_to_warps_and_threads(x, w, given):
    made, knobs = scheduled(x, w, **given)
    assert knobs.values.get("instruction") != "wgmma"
    assert "role" not in show(made.function)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"box_1": 64, "box_2": 64}, r"boxes of \[64, 64\] pixels are no part of the"),
        ({"step_parts": 2}, "step_parts=2 does not divide the 3 slices of channels"),
    ],
)
def test_knobs_that_do_not_fit_are_refused(knobs, message):
    with pytest.raises(ArgumentError, match=message):
        scheduled((2, 9, 9, 192), (64, 192, 3, 3), knobs)
