"""Convolutions of sizes that suit no tile: prime channels, short lines."""

import re

import numpy as np
import pytest

from tensorlang.ops import find, nn


def reference(x, w, stride, padding, groups):
    """The direct sum in f64."""
    x = np.pad(x.astype("f8"), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    made = [
        np.einsum(
            "bchwyx,ocyx->bohw",
            windows[:, g * inputs : (g + 1) * inputs],
            w[g * outputs : (g + 1) * outputs].astype("f8"),
        )
        for g in range(groups)
    ]
    return np.concatenate(made, axis=1)


def drawn(*shape):
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("outputs", "groups"), [(17, 1), (37, 1), (38, 2), (113, 1)])
def test_forward(batch, window, stride, outputs, groups):
    x, w = drawn(batch, 6, 13, 19), drawn(outputs, 6 // groups, window, window)
    how = {"stride": stride, "padding": window // 2}
    expected = reference(x, w, **how, groups=groups)
    made = nn.conv2d(x, w, **how, groups=groups)
    np.testing.assert_allclose(made, expected, atol=1e-4)


@pytest.mark.parametrize("channels", [17, 53])
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients(channels, stride):
    x, w = drawn(2, channels, 12, 11), drawn(19, channels, 3, 3)
    how = {"stride": stride, "padding": 1}
    y = reference(x, w, **how, groups=1)
    dy, step, other = drawn(*y.shape), drawn(*x.shape, 1)[..., 0], drawn(*w.shape, 1)
    # <dy, conv(step, w)> is <conv's gradient by images, step>, and so for weights
    by_images = nn.conv2d_grad_data(dy, w, x.shape[2:], **how)
    by_weights = nn.conv2d_grad_weight(dy, x, w.shape[2:], **how)
    images = np.sum(dy * reference(step, w, **how, groups=1))
    weights = np.sum(dy * reference(x, other[..., 0], **how, groups=1))
    assert np.sum(by_images * step) == pytest.approx(images, rel=1e-4, abs=1e-2)
    assert np.sum(by_weights * other[..., 0]) == pytest.approx(
        weights, rel=1e-4, abs=1e-2
    )


def test_tiles_of_several_outputs_and_a_remainder():
    op = find("nn.conv2d")
    workload = op.workload((1, 64, 28, 28), (113, 64, 3, 3), padding=1)
    text = str(op.build(workload).ir)
    tiles = re.findall(r'f32\[1, (\d+), \d+\], scope="register"', text)
    assert {113 % int(tiles[0]), int(tiles[0])} == {*map(int, tiles)}
    assert int(tiles[0]) > 3


@pytest.mark.parametrize("side", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_short_lines_are_copied_in_vectors(side, stride):
    x, w = drawn(2, 5, side, side), drawn(8, 5, 3, 3)
    expected = reference(x, w, stride, 1, 1)
    made = nn.conv2d(x, w, stride=stride, padding=1)
    np.testing.assert_allclose(made, expected, atol=1e-4)
