"""Convolutions of images whose channels come last, with gradients, against PyTorch."""

from __future__ import annotations

from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ir.nodes import For
from tensorlang.ir.visit import walk
from tensorlang.ops import nn, pin
from tensorlang.ops.kernels.building import default, preferred
from tensorlang.schedules.convolution.tiles import MOST_TAPS
from tensorlang.targets import Target

torch = pytest.importorskip("torch")
F = torch.nn.functional
MACHINE = Path(__file__).parents[3] / "data/machines/zen4.json"
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}

# image with channels, weights, attributes, activation
CASES = [
    ((6, 10, 17), (41, 6, 3, 3), {"padding": 1}, "relu"),
    (
        (6, 9, 11),
        (34, 3, 3, 2),
        {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": 2},
        None,
    ),
    ((3, 41), (8, 3, 5), {"stride": 3, "padding": 2}, None),
    ((3, 7, 4, 5), (4, 3, 3, 2, 3), {"stride": (2, 1, 2), "padding": 1}, None),
    ((5, 7, 1), (6, 5, 3, 1), {"padding": (1, 0)}, "gelu"),
    ((40, 6, 9), (40, 1, 3, 3), {"padding": 1, "groups": 40}, None),
    (
        (6, 9, 11),
        (6, 1, 5, 3),
        {"stride": (3, 2), "padding": 2, "dilation": (1, 2), "groups": 6},
        None,
    ),
    ((5, 8, 9), (64, 5, 1, 1), {"stride": 2}, None),
    ((6, 5, 4), (6, 1, 1, 1), {"groups": 6}, None),
]


def images(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def last(array):
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def close(got, wanted, tolerance=1e-4):
    wanted = np.moveaxis(wanted.detach().numpy(), 1, -1)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("image", "weights", "given", "activation"), CASES)
def test_forward_and_gradients(image, weights, given, activation):
    rank = len(weights) - 2
    x, w, b = images(2, *image), images(*weights, seed=1), images(weights[0], seed=2)
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = getattr(F, f"conv{rank}d")(tx, tw, tb, **given)
    dy = images(*y.shape, seed=3)
    how = {**given, "layout": LAST[rank]}
    got = getattr(nn, f"conv{rank}d")(last(x), w, b, activation=activation, **how)
    close(got, getattr(F, activation)(y) if activation else y)
    dx, dw, db = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    made = getattr(nn, f"conv{rank}d_grad")(last(dy), last(x), w, b, **how)
    close(made[0], dx)
    np.testing.assert_allclose(made[1], dw, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(made[2], db, rtol=1e-4, atol=1e-4)
    one = getattr(nn, f"conv{rank}d_grad_data")(last(dy), w, image[1:], **how)
    close(one, dx)


def test_transposed_with_their_gradients():
    given = {"stride": (2, 1), "padding": 1, "output_padding": (1, 0), "groups": 2}
    x, w, b = images(2, 6, 5, 7), images(6, 2, 3, 3, seed=1), images(4, seed=2)
    tx, tw, tb = (t(a).requires_grad_() for a in (x, w, b))
    y = F.conv_transpose2d(tx, tw, tb, **given)
    close(nn.conv2d_transpose(last(x), w, b, layout="NHWC", **given), y)
    dy = images(*y.shape, seed=3)
    dx, dw, db = torch.autograd.grad(y, [tx, tw, tb], t(dy))
    made = nn.conv2d_transpose_grad(last(dy), last(x), w, b, layout="NHWC", **given)
    close(made[0], dx)
    np.testing.assert_allclose(made[1], dw, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(made[2], db, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_types(dtype):
    x, w = images(1, 40, 5, 6).astype(dtype), images(9, 40, 3, 3, seed=1).astype(dtype)
    wide = [t(a.astype(np.float64)) for a in (x, w)]
    wanted = last(F.conv2d(*wide, padding=1).numpy())
    got = nn.conv2d(last(x), w, padding=1, layout="NHWC")
    assert got.dtype == dtype
    near = 1e-12 if dtype == np.float64 else 3e-2
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=near, atol=near)


def test_any_batch_by_one_kernel_views_nan_and_infinities():
    w, given = images(16, 6, 3, 3, seed=1), {"padding": 1}
    for n in (0, 1, 5):
        x = images(n, 6, 9, 22)[..., ::2]
        if n:
            x[0, 0, 4, 4], x[-1, 1, 1, 1] = np.nan, np.inf
        got = nn.conv2d(np.moveaxis(x, 1, -1), w, layout="NHWC", **given)
        close(got, F.conv2d(t(x), t(w), **given))
    known = {v for k, v in nn.conv2d.kernels.items() if k[0] == "kernel"}
    nn.conv2d(images(3, 9, 11, 6), w, layout="NHWC", **given)
    after = {v for k, v in nn.conv2d.kernels.items() if k[0] == "kernel"}
    assert after == known


FLAT = [case for case in CASES if case[1][1] > 1 and {*case[1][2:]} != {1}]


@pytest.mark.parametrize(("image", "weights", "given", "activation"), FLAT)
def test_flattened_images_give_the_bits_of_channels_first(
    image, weights, given, activation
):
    rank = len(weights) - 2
    conv = getattr(nn, f"conv{rank}d")
    x, w, b = images(2, *image), images(*weights, seed=1), images(weights[0], seed=2)
    how = {**given, "activation": activation}
    with pin(f"nn.conv{rank}d:algorithm=implicit_gemm"):
        wanted = conv(x, w, b, **how)
        got = conv(last(x), w, b, layout=LAST[rank], **how)
        view = conv(np.moveaxis(x, 1, -1), w, b, layout=LAST[rank], **how)
    np.testing.assert_array_equal(got, last(wanted))
    np.testing.assert_array_equal(view, got)


@pytest.mark.parametrize(
    ("image", "weights", "dtype", "flat"),
    [
        ((7, 7, 512), (512, 512, 3, 3), "f32", True),
        ((7, 7, 512), (512, 512, 3, 3), "bf16", False),
        ((7, 7, 512), (512, 512, 1, 1), "f32", False),
        ((56, 56, 64), (4, 64, 3, 3), "f32", True),
        ((56, 56, 64), (4, 64, 1, 1), "f32", False),
        ((56, 56, 64), (64, 64, 3, 3), "f32", False),
        ((56, 56, 64), (8, 64, 3, 3), "f32", False),  # they fill a vector
        ((40, 40, 7), (10, 7, 7, 7), "f32", True),  # of 16 lanes
        ((40, 40, 7), (10, 7, 1, 1), "f32", False),  # little arithmetic
        ((1, 1, 64), (4, 64, 3, 3), "f32", False),
    ],
)
def test_few_outputs_or_many_weights_flatten_images(image, weights, dtype, flat):
    op, avx2 = nn.conv2d, Target(vector_bits=256)
    how = {"padding": weights[2] // 2, "layout": "NHWC"}
    asked = op.workload((1, *image), weights, dtypes=dtype, **how)
    assert (preferred(op, asked, avx2) == "implicit_gemm") == flat


@pytest.mark.parametrize(("outputs", "flat"), [(512, False), (4, True)])
def test_constant_weights_count_as_packed(outputs, flat):
    """Many weights for few pixels are then no reason to flatten images."""
    op, avx2 = nn.conv2d, Target(vector_bits=256)
    how = {"padding": 1, "layout": "NHWC"}
    asked = op.workload((1, 7, 7, 512), (outputs, 512, 3, 3), **how)
    assert preferred(op, asked, avx2) == "implicit_gemm"
    assert preferred(op, asked, avx2, constants=[0, 2]) == "implicit_gemm"
    kept = preferred(op, asked, avx2, constants=[1])
    assert (kept == "implicit_gemm") == flat


MOVED = [case for case in CASES if case[1][1] > 1]


@pytest.mark.parametrize(("image", "weights", "given", "activation"), MOVED)
def test_channels_first_that_are_moved(image, weights, given, activation):
    """Outputs are in vectors, which have no gaps between lines."""
    rank = len(weights) - 2
    x, w, b = images(2, *image), images(*weights, seed=1), images(weights[0], seed=2)
    if activation != "gelu":
        x[0, 0, 1], x[1, 1, -1] = np.inf, np.nan
    tx, tw, tb = t(x).requires_grad_(), t(w), t(b)
    y = getattr(F, f"conv{rank}d")(tx, tw, tb, **given)
    dy = images(*y.shape, seed=3)
    (dx,) = torch.autograd.grad(y, [tx], t(dy))
    conv = f"conv{rank}d"
    with (
        pin(f"nn.{conv}:algorithm=channels_last"),
        pin(f"nn.{conv}_grad_data:algorithm=channels_last"),
    ):
        got = getattr(nn, conv)(x, w, b, activation=activation, **given)
        one = getattr(nn, f"{conv}_grad_data")(dy, w, image[1:], **given)
    close(last(got), getattr(F, activation)(y) if activation else y)
    close(last(one), dx)


@pytest.mark.parametrize(
    ("image", "weights", "dtype", "moved"),
    [
        ((64, 7, 7), (96, 64, 5, 5), "f32", True),
        ((64, 7, 7), (96, 64, 5, 5), "f64", True),
        ((64, 7, 7), (96, 64, 5, 5), "bf16", False),
        ((16, 14, 14), (32, 16, 7, 7), "f32", True),
        ((64, 56, 56), (64, 64, 3, 3), "f32", False),  # short gaps
        ((64, 7, 7), (96, 64, 1, 1), "f32", False),  # none
        ((64, 7, 7), (4, 64, 5, 5), "f32", False),  # outputs fill no vector
    ],
)
@pytest.mark.parametrize("op", [nn.conv2d, nn.conv2d_grad_data])
def test_long_gaps_between_lines_move_channels(op, image, weights, dtype, moved):
    machine = Target(vector_bits=512, vector_registers=32)
    outputs, side = weights[0], image[1:]
    given = image if op is nn.conv2d else (outputs, *side)
    if op is nn.conv2d_grad_data and outputs == 4:
        weights = (outputs, 4, *weights[2:])
    how = {"padding": weights[2] // 2}
    more = {"size": side} if op is nn.conv2d_grad_data else {}
    asked = op.workload((8, *given), weights, dtypes=dtype, **how, **more)
    assert (preferred(op, asked, machine) == "channels_last") == moved


def test_many_weights_for_few_pixels_stay_as_they_are():
    asked = nn.conv2d.workload((1, 512, 7, 7), (512, 512, 3, 3), padding=1)
    machine = Target(vector_bits=512, vector_registers=32)
    assert preferred(nn.conv2d, asked, machine) == "implicit_gemm"


def test_a_tolerance_prefers_winograd_to_moving_channels(monkeypatch):
    monkeypatch.setenv("TENSORLANG_MACHINE", str(MACHINE))
    machine = Target(vector_bits=512, vector_registers=32)
    for tolerance, chosen in ((None, "channels_last"), (1.0, "winograd43")):
        asked = nn.conv2d.workload(
            (8, 64, 16, 16), (64, 64, 3, 3), padding=1, tolerance=tolerance
        )
        assert preferred(nn.conv2d, asked, machine) == chosen


@pytest.mark.parametrize(("inputs", "most"), [(64, True), (3, True), (37, False)])
def test_inputs_are_unrolled_beside_few_products(inputs, most):
    """As many as divide their number and whose products make a loop's body."""
    avx2 = Target(vector_bits=256, vector_registers=16)
    how = {"padding": 1, "layout": "NHWC"}
    asked = nn.conv2d.workload((1, 56, 56, inputs), (64, inputs, 3, 3), **how)
    knobs = default(nn.conv2d, asked, avx2, {"algorithm": "channels_last"})[1].values
    products = knobs["rows"] * knobs["vectors"]
    assert (knobs["steps"] > 1) == most
    assert inputs % knobs["steps"] == 0
    assert knobs["steps"] * products <= MOST_TAPS
    fuller = [n for n in range(knobs["steps"] + 1, inputs + 1) if inputs % n == 0]
    assert all(n * products > MOST_TAPS for n in fuller)


@pytest.mark.parametrize(("stride", "phases"), [(1, 1), (2, 4)])
def test_phases_share_the_steps_of_a_loop_body(stride, phases):
    """Each has a loop of its own: their code together is as much as that of one."""
    avx2 = Target(vector_bits=256, vector_registers=16)
    how = {"padding": 1, "layout": "NHWC", "stride": stride, "size": (56, 56)}
    dy = (1, 56 // stride, 56 // stride, 64)
    asked = nn.conv2d_grad_data.workload(dy, (64, 64, 3, 3), **how)
    tile = {"algorithm": "channels_last", "rows": 4, "vectors": 2}
    knobs = default(nn.conv2d_grad_data, asked, avx2, tile)[1]
    assert knobs.values["steps"] * 4 * 2 * phases == MOST_TAPS
    assert max(knobs.domains["steps"].options) == 2 * knobs.values["steps"]


def test_steps_of_a_tall_and_wide_tile_are_few():
    avx2 = Target(vector_bits=256, vector_registers=16)
    how = {"padding": 1, "layout": "NHWC"}
    asked = nn.conv2d.workload((1, 14, 14, 128), (128, 128, 3, 3), **how)
    tile = {"algorithm": "channels_last", "rows": 14, "vectors": 4}
    with pytest.raises(ArgumentError, match="'steps' is one of 1, 2, 4, not 128"):
        default(nn.conv2d, asked, avx2, {**tile, "steps": 128})


@pytest.mark.parametrize(
    ("inputs", "window", "stride", "unrolled"),
    [(64, 3, 1, False), (3, 7, 2, True)],
)
def test_pixels_are_unrolled_if_registers_hold_what_they_share(
    inputs, window, stride, unrolled
):
    """Neighbours share most of a full tile's image, but less with a stride."""
    avx2 = Target(vector_bits=256, vector_registers=16)
    images, side = (1, 56, 56, inputs), 56 // stride
    how = {"layout": "NHWC", "stride": stride, "padding": window // 2}
    asked = nn.conv2d_grad_weight.workload(
        (1, side, side, 64), images, window=(window, window), **how
    )
    made = default(nn.conv2d_grad_weight, asked, avx2, {})[0]
    loops = [n for n in walk(made.function) if is_unrolled(n)]
    bodies = [
        prod(int(n.extent.value) for n in walk(loop) if is_unrolled(n))
        for loop in loops
    ]
    assert (max(bodies) > avx2.vector_registers) == unrolled


def is_unrolled(node):
    return isinstance(node, For) and node.kind == "unrolled"
