"""Gradients of `nn.scatter`: against differences, at ties and at zeros."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.graph import TensorSpec, gradients
from tensorlang.ops import math, nn

RNG = np.random.default_rng(2)


def program(reduction, *arrays):
    """The weighted sum of a result, and its gradients."""

    def whole(ids, x, updates, weights):
        y = nn.scatter(ids, x, updates, reduction)
        loss = math.sum(y * weights)
        return (loss, *gradients(loss, (x, updates)))

    return graph.trace(whole, [TensorSpec(a.shape, a.dtype) for a in arrays])


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("rows", "count", "width"), [(7, (20,), 3), (4, (2, 3), 1), (3, (0,), 2)]
)
def test_against_differences(reduction, rows, count, width) -> None:
    arrays = [
        RNG.integers(0, rows, count),
        RNG.uniform(0.5, 2, (rows, width)),
        RNG.uniform(0.5, 2, (*count, width)),
        RNG.normal(size=(rows, width)),
    ]
    made = program(reduction, *arrays)
    _, *found = made(*arrays)
    for n, dx in enumerate(found, 1):
        way = RNG.normal(size=arrays[n].shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [a + step * way if at == n else a for at, a in enumerate(arrays)]
            ends.append(float(made(*moved)[0]))
        slope = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(np.sum(dx * way), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("reduction", "x", "updates", "dx", "du"),
    [
        # the last update of a row stays
        ("none", [2, 2, 2], [2, 2, 2, 2], [0, 1, 0], [0, 0, 1, 1]),
        # several zeros in row 0, one in row 2
        ("mul", [0, 3, 5], [0, 7, 2, 0], [0, 1, 0], [0, 0, 0, 5]),
        ("max", [2, 3, 1], [2, 2, 1, 1], [1 / 3, 1, 0.5], [1 / 3, 1 / 3, 0, 0.5]),
        ("min", [2, 3, 1], [2, 2, 4, 1], [1 / 3, 1, 0.5], [1 / 3, 1 / 3, 0, 0.5]),
    ],
)
def test_of_ties_and_zeros(reduction, x, updates, dx, du) -> None:
    columns = [np.array(each, np.float32)[:, None] for each in (x, updates)]
    arrays = (np.array([0, 0, 0, 2]), *columns, np.ones((3, 1), np.float32))
    _, *found = program(reduction, *arrays)(*arrays)
    for mine, wanted in zip(found, (dx, du), strict=True):
        np.testing.assert_allclose(mine[:, 0], wanted, rtol=1e-6)
