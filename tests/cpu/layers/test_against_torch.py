"""The same network in PyTorch, of the same weights, data and masks: the same losses.

The rates are small: where a unit of relu stands at 0 to the last bit, the two may
differ in whether it has a gradient, and large steps would make much of it.
"""

import numpy as np
import pytest

from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    SGD,
    Adam,
    AvgPool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPool2D,
    Model,
    Sequential,
)
from tensorlang.ops import nn, random

torch = pytest.importorskip("torch")
F = torch.nn.functional


def mask(shape, state, rate):
    """The mask that a Dropout layer draws from a state, and the state after it."""
    after, key = random.split(state)
    return torch.tensor(nn.dropout(np.ones(shape, np.float32), rate, key=key)), after


def mlp():
    return Sequential(
        Dense(512, "relu"), Dropout(0.5), Dense(512, "relu"), Dropout(0.2), Dense(10)
    )


def mlp_in_torch(w, x, state):
    h = F.relu(F.linear(x, w["0.weight"], w["0.bias"]))
    drawn, state = mask(h.shape, state, 0.5)
    h = F.relu(F.linear(h * drawn, w["2.weight"], w["2.bias"]))
    drawn, state = mask(h.shape, state, 0.2)
    return F.linear(h * drawn, w["4.weight"], w["4.bias"]), state


def lenet():
    return Sequential(
        Conv2D(6, 5, padding="same", activation="relu"),
        AvgPool2D(2),
        Conv2D(16, 5, activation="tanh"),
        MaxPool2D(2),
        Flatten(),
        Dense(120, "gelu"),
        Dropout(0.5),
        Dense(10),
    )


def lenet_in_torch(w, x, state):
    h = F.relu(F.conv2d(x, w["0.weight"], w["0.bias"], padding=2))
    h = torch.tanh(F.conv2d(F.avg_pool2d(h, 2), w["2.weight"], w["2.bias"]))
    h = F.max_pool2d(h, 2).flatten(1)
    h = F.gelu(F.linear(h, w["5.weight"], w["5.bias"]))
    drawn, state = mask(h.shape, state, 0.5)
    return F.linear(h * drawn, w["7.weight"], w["7.bias"]), state


@pytest.mark.parametrize(
    ("layers", "theirs", "shape", "ours", "other"),
    [
        (mlp, mlp_in_torch, (128, 784), SGD(lr=0.002, momentum=0.9), "SGD"),
        (lenet, lenet_in_torch, (64, 1, 28, 28), Adam(lr=1e-4), "Adam"),
    ],
    ids=["mlp", "lenet"],
)
def test_100_steps(layers, theirs, shape, ours, other) -> None:
    model = Model(layers()).compile(
        TensorSpec(("batch", *shape[1:])), optimizer=ours, key=random.key(3)
    )
    w = {k: torch.tensor(v, requires_grad=True) for k, v in model.get_params().items()}
    state = random.wrap_key_data(model.network.states["generator"].copy())
    options = {"lr": ours.lr} | ({"momentum": 0.9} if other == "SGD" else {})
    optimizer = getattr(torch.optim, other)(list(w.values()), **options)
    rng = np.random.default_rng(0)
    for _ in range(100):
        x = rng.normal(size=shape).astype(np.float32)
        t = (x.reshape(len(x), -1)[:, :10] + 0.1).argmax(1)
        loss = model.train_one_batch(x, t)
        y, state = theirs(w, torch.tensor(x), state)
        wanted = F.cross_entropy(y, torch.tensor(t))
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-4, abs=1e-4)
