"""Networks whose products may be approximate: Winograd's algorithms, within bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.graph import Context, Network, TensorSpec
from tensorlang.graph.networks.leaves import Weight
from tensorlang.layers import Conv2D, Layer, Model, Sequential
from tensorlang.ops import nn, random

TOLERANCE = 2.0**-12


class Block(Layer):
    """A residual block, and a convolution that has no such algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Conv2D(64, (3, 3), padding=1, activation="relu")
        self.second = Conv2D(64, (3, 3), padding=1)
        self.last = Conv2D(8, (1, 1))

    def apply(self, x):
        first = self.first(x)
        return self.last(nn.relu(self.second(first) + first))


def network(tolerance: float | None, spec: TensorSpec | None = None) -> Network:
    given = spec or TensorSpec(("batch", 64, 28, 28))
    return Network(Block(), given, key=random.key(3), tolerance=tolerance)


def images(batch: int = 2) -> np.ndarray:
    size = (batch, 64, 28, 28)
    return np.random.default_rng(0).standard_normal(size).astype(np.float32)


def ids(net: Network, batch: int = 2) -> list[str]:
    """The operators that run at each call."""
    return [node.id for node in Context(net, batch).bound.nodes]


def of_size(net: Network, size: int) -> list[np.ndarray]:
    """The arrays of so many bytes that programs keep of frozen weights."""
    return [a for kept in net.edition.kept.values() for a in kept if a.nbytes == size]


def test_constant_windows_are_transformed_once() -> None:
    exact, fast = network(None), network(TOLERANCE)
    for net in (exact, fast):
        net.freeze()
    made = ids(fast)
    assert made.count("nn.conv2d_winograd") == 2
    assert "nn.conv2d_winograd_weight" not in made
    assert "nn.relu" not in made
    assert "math.add" not in made
    assert "nn.conv2d_winograd" not in ids(exact)
    x = images()
    wanted, found = exact(x), fast(x)
    error = np.abs(found - wanted).max()
    assert 0 < error <= TOLERANCE * np.abs(wanted).max()


def test_new_weights_are_transformed_anew() -> None:
    exact, fast, x = network(None), network(TOLERANCE), images()
    fast.freeze()
    context = Context(fast, 2)
    context(x)
    changed = {name: -2 * array for name, array in fast.get_weights().items()}
    for net in (exact, fast):
        net.set_weights(changed)
    wanted = exact(x)
    for found in (context(x), fast(x)):
        assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


def test_transformed_windows_are_shared_by_contexts_and_convolutions() -> None:
    size = 4 * 36 * 2 * 65 * 32  # F(4, 3): points, strips of outputs, padded inputs
    net = network(TOLERANCE)
    net.freeze()
    first, second = Context(net, 2), Context(net, 7)
    assert first.kept >= 2 * size
    assert len(of_size(net, size)) == 2
    x = images(7)
    np.testing.assert_array_equal(second(x)[:2], first(x[:2]))

    windows = np.random.default_rng(1).standard_normal((64, 64, 3, 3), np.float32)
    w = Weight(TensorSpec(windows.shape), "w", lambda *_: windows)

    def twice(x):
        y = nn.conv2d(x, w, padding=1)
        return nn.conv2d(y, w, padding=1)

    shared = Network(twice, TensorSpec(("batch", 64, 28, 28)), tolerance=TOLERANCE)
    shared.freeze()
    Context(shared, 2)
    assert len(of_size(shared, size)) == 1


@pytest.mark.parametrize("tolerance", [0.0, 2.0**-20])
def test_a_small_tolerance_changes_nothing(tolerance) -> None:
    exact, fast, x = network(None), network(tolerance), images()
    for net in (exact, fast):
        net.freeze()
    assert ids(fast) == ids(exact)
    np.testing.assert_array_equal(fast(x), exact(x))


def test_weights_that_change_and_other_types_stay_exact() -> None:
    assert "nn.conv2d_winograd" not in ids(network(TOLERANCE))
    wide = TensorSpec(("batch", 64, 28, 28), "float64")
    double = network(TOLERANCE, wide)
    double.freeze()
    assert "nn.conv2d_winograd" not in ids(double)


@pytest.mark.parametrize("wrong", [-1e-3, math.nan, math.inf, "high", True, [1e-3]])
def test_what_is_no_error_is_refused(wrong) -> None:
    said = r"tolerance is None or a relative error"
    with pytest.raises(ArgumentError, match=said):
        network(wrong)
    with pytest.raises(ArgumentError, match=said):
        Model.load("net.onnx", tolerance=wrong)


def test_files_keep_it_and_callers_override_it(tmp_path) -> None:
    layer = Sequential(Conv2D(64, (3, 3), padding=1))
    model = Model(layer).compile(
        TensorSpec(("batch", 64, 28, 28)), train=False, tolerance=TOLERANCE
    )
    model.save(tmp_path / "net.onnx")
    assert Model.load(tmp_path / "net.onnx").network.tolerance == TOLERANCE
    exact = Model.load(tmp_path / "net.onnx", tolerance=0.0)
    assert exact.network.tolerance == 0.0
    x = images()
    error = np.abs(model(x) - exact(x)).max()
    assert 0 < error <= TOLERANCE * np.abs(exact(x)).max()
