"""Training steps of whole networks, from the data to the updated weights.

Forward, loss, backward and Adam, with new dropout masks in each step; peers do the same
on the same data, with masks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.work import Call, Peer, Work, Works
from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    Adam,
    AvgPool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    Model,
    Sequential,
)
from tensorlang.ops import random

_EAGER, _COMPILED, _JAX = 1.5, 1.2, 1.2  # minimum ratios with two threads
_RATE: Final = 1e-3


def works(threads: int) -> Works:
    """The rows: an MLP and LeNet."""
    yield "training step, MLP 784-512-512-10, batch 128", partial(_mlp, threads)
    yield "training step, LeNet 28x28, batch 64", partial(_lenet, threads)


def _mlp(threads: int) -> Work:
    ours = Sequential(
        Dense(512, "relu"), Dropout(0.5), Dense(512, "relu"), Dropout(0.2), Dense(10)
    )
    return _work(threads, ours, _torch_mlp, _jax_mlp, (128, 784))


def _lenet(threads: int) -> Work:
    ours = Sequential(
        Conv2D(6, 5, padding="same", activation="relu"),
        AvgPool2D(2),
        Conv2D(16, 5, activation="relu"),
        AvgPool2D(2),
        Flatten(),
        Dense(120, "relu"),
        Dropout(0.5),
        Dense(84, "relu"),
        Dense(10),
    )
    return _work(threads, ours, _torch_lenet, _jax_lenet, (64, 1, 28, 28))


def _work(
    threads: int,
    layers: Layer,
    torch_net: Callable[[Any], Any],
    jax_net: Callable[..., Any],
    shape: tuple[int, ...],
) -> Work:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, np.float32)
    t = rng.integers(0, 10, shape[0])
    model = Model(layers).compile(
        TensorSpec(("batch", *shape[1:]), "float32"),
        train=True,
        optimizer=Adam(lr=_RATE),
        loss="cross_entropy",
        key=random.key(0),
    )
    weights = [value.copy() for value in model.get_params().values()]
    return Work(
        "training",
        partial(model.train_one_batch, x, t),
        None,
        (
            Peer("torch", partial(_torch, threads, torch_net, x, t), floor=_EAGER),
            Peer(
                "torch.compile",
                partial(_torch, threads, torch_net, x, t, compiled=True),
                floor=_COMPILED,
            ),
            Peer("jax", partial(_jax, jax_net, weights, x, t), floor=_JAX),
        ),
        memory=partial(_memory, model, torch_net, x, t),
    )


def _memory(
    model: Model,
    torch_net: Callable[[Any], Any],
    x: np.ndarray[Any, Any],
    t: np.ndarray[Any, Any],
) -> dict[str, int]:
    """Peak bytes of a step: as planned, and as reported by PyTorch's profiler.

    On both sides activations, their gradients and weight gradients, without weights,
    data and optimizer state.
    """
    planned = model.trainer.context(x, t, outputs=False).workspace
    return {"planned": planned, "torch": _profiled(torch_net, x, t)}


def _profiled(
    network: Callable[[Any], Any], x: np.ndarray[Any, Any], t: np.ndarray[Any, Any]
) -> int:
    """Peak bytes of PyTorch's allocator during a step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    net = network(torch.nn)
    step = _step(net, net, x, t)
    step()  # creates the optimizer state
    net.zero_grad(set_to_none=True)  # the profiler does not see earlier allocations
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    told = sorted(
        (event.start_ns(), event.nbytes())
        for event in profiled.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    return int(np.cumsum([size for _, size in told]).max())


# ----------------------------------------------------------------------- PyTorch


def _torch(
    threads: int,
    network: Callable[[Any], Any],
    x: np.ndarray[Any, Any],
    t: np.ndarray[Any, Any],
    *,
    compiled: bool = False,
) -> Call:
    import torch

    torch.set_num_threads(threads)
    net = network(torch.nn)
    return _step(net, torch.compile(net) if compiled else net, x, t)


def _step(
    net: Any, chosen: Any, x: np.ndarray[Any, Any], t: np.ndarray[Any, Any]
) -> Call:
    """A training step of a network, eager or compiled."""
    import torch

    adam = torch.optim.Adam(net.parameters(), lr=_RATE, fused=True)
    data, labels = torch.from_numpy(x), torch.from_numpy(t)

    def step() -> float:
        adam.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(chosen(data), labels)
        loss.backward()
        adam.step()
        return float(loss.detach())

    return step


def _torch_mlp(nn: Any) -> Any:
    return nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(512, 10),
    )


def _torch_lenet(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


# --------------------------------------------------------------------------- JAX


def _jax(
    network: Callable[..., Any],
    weights: Sequence[np.ndarray[Any, Any]],
    x: np.ndarray[Any, Any],
    t: np.ndarray[Any, Any],
) -> Call:
    import jax
    from jax import numpy as jnp

    params = [jnp.asarray(w) for w in weights]
    data, labels = jnp.asarray(x), jnp.asarray(t)
    zeros = [jnp.zeros_like(w) for w in params]

    def loss(given: Any, key: Any) -> Any:
        logits = network(jax, given, data, key)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean()

    @jax.jit
    def step(state: Any) -> Any:
        params, m, v, n, key = state
        key, own = jax.random.split(key)
        value, grads = jax.value_and_grad(loss)(params, own)
        n = n + 1
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads, strict=True)]
        rate = _RATE * jnp.sqrt(1 - 0.999**n) / (1 - 0.9**n)
        params = [
            p - rate * a / (jnp.sqrt(b) + 1e-8)
            for p, a, b in zip(params, m, v, strict=True)
        ]
        return (params, m, v, n, key), value

    held = [(params, zeros, zeros, 0.0, jax.random.key(0))]

    def call() -> float:
        held[0], value = step(held[0])
        return float(value)

    return call


def _dropped(jax: Any, h: Any, rate: float, key: Any) -> Any:
    keep = jax.random.bernoulli(key, 1 - rate, h.shape)
    return jax.numpy.where(keep, h / (1 - rate), 0)


def _jax_mlp(jax: Any, w: Any, x: Any, key: Any) -> Any:
    first, second = jax.random.split(key)
    h = _dropped(jax, jax.nn.relu(x @ w[0].T + w[1]), 0.5, first)
    h = _dropped(jax, jax.nn.relu(h @ w[2].T + w[3]), 0.2, second)
    return h @ w[4].T + w[5]


def _jax_lenet(jax: Any, w: Any, x: Any, key: Any) -> Any:
    def conv(h: Any, w: Any, b: Any, pad: int) -> Any:
        sides = [(pad, pad)] * 2
        made = jax.lax.conv_general_dilated(h, w, (1, 1), sides)
        return jax.nn.relu(made + b[:, None, None])

    def pooled(h: Any) -> Any:
        shape = (*h.shape[:2], h.shape[2] // 2, 2, h.shape[3] // 2, 2)
        return h.reshape(shape).mean((3, 5))

    h = pooled(conv(x, w[0], w[1], 2))
    h = pooled(conv(h, w[2], w[3], 0)).reshape(len(x), -1)
    h = _dropped(jax, jax.nn.relu(h @ w[4].T + w[5]), 0.5, key)
    h = jax.nn.relu(h @ w[6].T + w[7])
    return h @ w[8].T + w[9]
