"""Networks on an OpenCL device: use, training, and the loss alone there."""

import numpy as np
import pytest

from tensorlang.graph import Context, TensorSpec
from tensorlang.layers import (
    SGD,
    AvgPool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Model,
    Sequential,
)
from tensorlang.ops import random

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 1, 12, 12)).astype(np.float32)
T = np.arange(6) % 3


def model(target=None):
    layers = Sequential(
        Conv2D(4, 3, padding="same", activation="relu"),
        AvgPool2D(2),
        Flatten(),
        Dense(16, "relu"),
        Dropout(0.4),
        Dense(3),
    )
    spec = TensorSpec(("batch", 1, 12, 12))
    return Model(layers).compile(
        spec, optimizer=SGD(lr=0.1, momentum=0.9), key=random.key(2), target=target
    )


def places(bound):
    """Where the kernels of a bound program are, by their names."""
    found = {}
    for launch, _ in bound.steps:
        inner = getattr(launch, "kernel", launch)  # of what explains its faults
        owner = getattr(inner, "__self__", None)
        name = getattr(owner, "name", None) or getattr(inner, "__name__", "")
        found.setdefault(name, getattr(getattr(owner, "target", None), "kind", "llvm"))
    return found


def test_a_context_there() -> None:
    made = model()
    there = Context(made.network, len(X), target="opencl")
    np.testing.assert_allclose(there(X), made(X), rtol=1e-5, atol=1e-6)
    kinds = places(there.bound)
    assert kinds["nn_conv2d"] == kinds["nn_dense"] == "opencl"
    made.train_one_batch(X, T)  # it sees the weights change
    np.testing.assert_allclose(there(X), made(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["opencl", {"loss": "opencl"}])
def test_training_there(target) -> None:
    here, there = model(), model(target)
    for _ in range(3):
        loss = there.train_one_batch(X, T)
        assert loss == pytest.approx(here.train_one_batch(X, T), rel=1e-5)
    for name, array in here.get_params().items():
        np.testing.assert_allclose(there.get_params()[name], array, atol=1e-5)
    np.testing.assert_array_equal(  # the same masks were drawn
        here.network.states["generator"], there.network.states["generator"]
    )
    kinds = places(there.trainer.context(X, T, outputs=False).bound)
    alone = target != "opencl"
    assert kinds["nn_conv2d"] == ("llvm" if alone else "opencl")
    assert kinds["nn_cross_entropy"] == "opencl"
