"""Planned memory of a training step, beside what PyTorch's profiler sees of the same.

Counted is the most that lives at one time of what a step computes: activations, their
gradients, the gradients of the weights. Not counted, on either side: weights, what the
optimizer keeps, the data, and what a kernel or a library needs while it runs, which the
profiler does not see.
"""

import numpy as np
import pytest

from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    AvgPool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Model,
    Sequential,
)

torch = pytest.importorskip("torch", reason="the extra bench is not installed")


def mlp():
    nn = torch.nn
    ours = Sequential(
        Dense(512, "relu"), Dropout(0.5), Dense(512, "relu"), Dropout(0.2), Dense(10)
    )
    theirs = nn.Sequential(
        *(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.2)),
        nn.Linear(512, 10),
    )
    return ours, theirs, (128, 784)


def lenet():
    nn = torch.nn
    ours = Sequential(
        *(Conv2D(6, 5, padding="same", activation="relu"), AvgPool2D(2)),
        *(Conv2D(16, 5, activation="relu"), AvgPool2D(2), Flatten()),
        *(Dense(120, "relu"), Dropout(0.5), Dense(84, "relu"), Dense(10)),
    )
    theirs = nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    return ours, theirs, (64, 1, 28, 28)


def seen(step):
    """The most bytes that PyTorch's allocator holds of a step, by its profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = profiled.profiler.kineto_results.events()
    told = sorted(
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]"
    )
    return int(np.cumsum([size for _, size in told]).max())


@pytest.mark.parametrize("make", [mlp, lenet])
def test_no_more_than_pytorchs_profiler_reports(make) -> None:
    ours, theirs, shape = make()
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    t = rng.integers(0, 10, shape[0])
    model = Model(ours).compile(TensorSpec(("batch", *shape[1:])))
    model.train_one_batch(x, t)
    context = model.trainer.context(x, t, outputs=False)
    adam = torch.optim.Adam(theirs.parameters(), fused=True)
    data, labels = torch.from_numpy(x), torch.from_numpy(t)

    def step():
        adam.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(theirs(data), labels).backward()
        adam.step()

    step()  # which makes the optimizer's moments
    adam.zero_grad(set_to_none=True)
    gradients = sum(array.nbytes for array in context.gradients.values())
    assert gradients < context.workspace <= seen(step)


def test_one_batch_keeps_no_outputs_and_gives_the_same_bits() -> None:
    layers, _, shape = mlp()
    rng = np.random.default_rng(1)
    x = rng.normal(size=shape).astype(np.float32)
    t = rng.integers(0, 10, shape[0])
    made = [Model(layers).compile(TensorSpec(("batch", 784))) for _ in range(2)]
    for _ in range(3):
        loss, outputs = made[0].trainer.train_minibatch(x, t)
        assert made[1].train_one_batch(x, t) == loss
    first, second = (model.get_states() for model in made)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    lean = made[1].trainer.context(x, t, outputs=False)
    whole = made[0].trainer.context(x, t)
    assert lean.outputs == ()
    assert whole.workspace - lean.workspace == outputs.nbytes
