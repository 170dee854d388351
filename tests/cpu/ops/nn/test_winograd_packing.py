"""Windows that are transformed once, for many convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn
from tensorlang.ops.nn.winograd_matrices import F2, F4
from tensorlang.tuner.correctness.gate import Gate


def images(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def windows():
    return images(40, 20, 3, 3, seed=1)


@pytest.fixture(scope="module")
def packed(windows):
    return nn.prepack(nn.conv2d, windows, tolerance=1e-3)


def test_packed_windows_are_values(windows, packed):
    assert (packed.operator, packed.algorithm) == ("nn.conv2d", "winograd43")
    assert packed.shape == windows.shape
    assert packed.dtype == np.float32
    for array in (packed.array, nn.prepack(nn.dense, images(600, 800)).array):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    assert (packed.array[:, :, 20:] == 0).all()
    assert (packed.array[1, :, :, 8:] == 0).all()
    np.testing.assert_allclose(packed.unpack(), windows, atol=1e-6)
    exact = nn.prepack(nn.conv2d, windows, tolerance=F2.tolerance)
    assert exact.algorithm == "winograd23"
    np.testing.assert_allclose(exact.unpack(), windows, atol=1e-6)


def test_calls_are_those_by_the_windows_themselves(windows, packed):
    b = images(40)
    for batch in (2, 5, 0):
        x = images(batch, 20, 13, 11)
        given = {"padding": "same", "activation": "relu"}
        wanted = nn.conv2d(x, windows, b, **given)
        made = nn.conv2d(x, packed, b, tolerance=1e-3, **given)
        np.testing.assert_allclose(made, wanted, atol=30 * F4.tolerance / 4)
        y = np.empty_like(wanted)
        assert nn.conv2d(x, packed, b, out=y, **given) is y
        np.testing.assert_array_equal(y, made)


def test_their_operators_pass_the_tuners_gate(windows, packed):
    for op, arrays, given in (
        (nn.conv2d_winograd_weight, (windows,), {"m": 4}),
        (nn.conv2d_winograd, (images(2, 20, 9, 9), packed.array), {"outputs": 40}),
    ):
        of = op.workload(*[a.shape for a in arrays], **given)
        gate = Gate(op, of, op.algorithms["direct"].tolerance)
        assert gate.check(op.build(of), gate.full) < 0.5


def test_what_does_not_fit_is_told(windows, packed):
    x = images(1, 20, 6, 6)
    calls = (
        (lambda: nn.prepack(nn.conv2d, windows), ArgumentError, "need a tolerance"),
        (
            lambda: nn.prepack(nn.conv2d, windows[..., :2], tolerance=1),
            ShapeError,
            "windows of 3 by 3",
        ),
        (
            lambda: nn.prepack(nn.conv2d, windows.astype(np.float64), tolerance=1),
            DTypeError,
            "w is an array of f32, not of f64",
        ),
        (lambda: nn.conv2d(x, packed, stride=2), ArgumentError, "stride 1, not 2"),
        (lambda: nn.conv2d(x, packed, layout="NHWC"), ArgumentError, "for NCHW"),
        (lambda: nn.conv2d(x, packed, tolerance=1e-5), ArgumentError, "winograd43 nee"),
        (lambda: nn.conv2d(x[:, :16], packed), ShapeError, "20 channels, not 16"),
        (lambda: nn.conv2d(x[:, :19], packed), ShapeError, "20 channels, not 19"),
        (lambda: nn.conv2d(images(1, 21, 6, 6), packed), ShapeError, "20 channels"),
        (lambda: nn.conv2d(images(1, 30, 6, 6), packed), ShapeError, "20 channels"),
        (lambda: nn.conv2d(x[0], packed), ShapeError, "do not go with images"),
        (
            lambda: nn.conv2d(x.astype(np.float64), packed),
            DTypeError,
            "x is an array of f32, not of f64",
        ),
    )
    for call, kind, words in calls:
        with pytest.raises(kind, match=words):
            call()


def test_weights_that_are_not_transformed_have_no_definition():
    shapes = ((1, 16, 8, 8), (1, 9, 17, 32))
    made = nn.conv2d_winograd.workload(*shapes, outputs=32)
    with pytest.raises(ShapeError, match=r"\(1, 9, 17, 32\), packed for 32 outputs"):
        nn.conv2d_winograd.function(made)


def test_arguments_in_another_order_are_said_briefly(windows):
    with pytest.raises(ArgumentError, match=r"^ndarray takes no packed weight; nn"):
        nn.prepack(windows, nn.conv2d)
