"""Batch norms of frozen networks are part of the convolutions before them."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.graph import Context, Graph, Network, TensorSpec, cond, loop, trace
from tensorlang.graph.networks.leaves import Weight
from tensorlang.graph.passes.norm_folding import fold_norms
from tensorlang.layers import BatchNorm, Conv2D, Layer, Model
from tensorlang.ops import math, nn

RNG = np.random.default_rng(11)


def weight(path: str, *shape: int) -> Weight:
    array = RNG.uniform(0.5, 1.5, shape).astype(np.float32)
    array *= RNG.choice([-1, 1], shape) if len(shape) > 1 else 1
    return Weight(TensorSpec(shape, "float32"), path, lambda *_: array)


def network(
    layout: str = "NCHW", *, bias: bool = True, affine: bool = True, uses: int = 1
) -> Network:
    w, b = weight("w", 20, 6, 3, 3), weight("b", 20) if bias else None
    mean, var = weight("mean", 20), weight("var", 20)
    more = (weight("scale", 20), weight("shift", 20)) if affine else ()
    axis = 1 if layout == "NCHW" else -1

    def apply(x):
        y = nn.conv2d(x, w, b, padding=1, layout=layout)
        z = nn.batch_norm(y, mean, var, *more, eps=1e-3, axis=axis)
        return nn.relu(z) if uses == 1 else math.add(z, y)

    return Network(apply, TensorSpec(("batch", *_size(layout))))


def _size(layout: str) -> tuple[int, ...]:
    return (6, 9, 9) if layout == "NCHW" else (9, 9, 6)


def ids(net: Network) -> list[str]:
    return [node.id for node in Context(net, 3).bound.nodes]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_frozen_network_runs_one_convolution(layout, bias, affine) -> None:
    net = network(layout, bias=bias, affine=affine)
    x = RNG.normal(size=(3, *_size(layout))).astype(np.float32)
    wanted = net(x)
    assert "nn.batch_norm" in ids(net)  # its weights may change
    net.freeze()
    assert not {"nn.batch_norm", "nn.relu"} & {*ids(net)}
    np.testing.assert_allclose(net(x), wanted, rtol=1e-5, atol=1e-5)
    net.set_weights({k: 2 * v for k, v in net.weights.items()})
    again = network(layout, bias=bias, affine=affine)
    again.set_weights(net.get_weights())
    wanted = again(x)
    np.testing.assert_allclose(net(x), wanted, rtol=1e-5, atol=1e-6 * wanted.max())


class Residual(Layer):
    """A residual block of layers, whose batch norms have running moments."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = [Conv2D(16, (3, 3), padding=1) for _ in range(2)]
        self.norms = [BatchNorm(axis=1) for _ in range(2)]

    def apply(self, x):
        (first, second), (one, two) = self.convolutions, self.norms
        y = two(second(nn.relu(one(first(x)))))
        return nn.relu(y + x)


def test_running_moments_of_frozen_networks_are_folded_too(tmp_path) -> None:
    x = RNG.normal(size=(3, 16, 9, 9)).astype(np.float32)
    model = Model(Residual()).compile(TensorSpec(("batch", 16, 9, 9)), loss="mse")
    for _ in range(3):
        model.train_one_batch(x, x + 1)
    wanted = model(x)
    model.save(tmp_path / "net.onnx")
    loaded = Model.load(tmp_path / "net.onnx", train=False)
    made = [each for each in ids(loaded.network) if each != "nn.transpose"]
    assert made == ["nn.conv2d", "nn.conv2d"]
    np.testing.assert_allclose(loaded(x), wanted, rtol=1e-4, atol=1e-4)
    changed = {k: 2 * v + 1 for k, v in model.network.get_states().items()}
    for net in (model.network, loaded.network):
        net.set_states(changed)
    np.testing.assert_allclose(loaded(x), model(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="read-only"):
        next(iter(loaded.network.states.values()))[...] = 0


def test_a_result_that_is_used_twice_stays() -> None:
    net = network(uses=2)
    net.freeze()
    assert "nn.batch_norm" in ids(net)


def all_ids(graph: Graph) -> list[str]:
    """The ids of a program's nodes and of those in its nested programs."""
    nested = (each for node in graph.nodes for each in node.graphs)
    own = [node.id for node in graph.nodes]
    return own + [name for each in nested for name in all_ids(each)]


W, MEAN, VAR = weight("w", 20, 6, 3, 3), weight("mean", 20), weight("var", 20)


def convolved(x):
    return nn.conv2d(x, W, padding=1)


def normed(y):
    return nn.batch_norm(y, MEAN, VAR)


def once_in_a_branch(x):
    return cond(
        math.sum(x) > 0.0, lambda: normed(convolved(x)), lambda: convolved(x) * 2.0
    )


def twice_in_a_branch(x):
    def then():
        y = convolved(x)
        return normed(y) + y

    return cond(math.sum(x) > 0.0, then, lambda: convolved(x) * 2.0)


def output_of_a_branch(x):
    def then():
        y = convolved(x)
        return normed(y), y

    return cond(math.sum(x) > 0.0, then, lambda: (convolved(x), convolved(x)))


def in_two_branches(x):
    y = convolved(x)
    return cond(math.sum(x) > 0.0, lambda: normed(y), lambda: y * 2.0)


def in_a_loop(x):
    y = convolved(x)  # computed once, not in each turn
    return loop(3, lambda _, total: total + math.sum(normed(y)), math.sum(x))


def in_the_branch_and_outside(x):
    y = convolved(x)
    return normed(y) + cond(math.sum(x) > 0.0, lambda: y * 3.0, lambda: y * 2.0)


@pytest.mark.parametrize(
    ("function", "folds"),
    [
        (once_in_a_branch, True),
        (twice_in_a_branch, False),
        (output_of_a_branch, False),
        (in_two_branches, False),
        (in_a_loop, False),
        (in_the_branch_and_outside, False),
    ],
)
def test_uses_in_branches_count(function, folds) -> None:
    program = trace(function, [TensorSpec((3, 6, 9, 9))])
    made, _ = fold_norms(program, {W, MEAN, VAR})
    wanted, found = all_ids(program), all_ids(made)
    assert found.count("nn.conv2d") == wanted.count("nn.conv2d")
    assert ("nn.batch_norm" not in found) == folds
