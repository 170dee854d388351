"""Channels last within networks: where it pays, and with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import graph, targets
from tensorlang.graph import Context, Network, TensorSpec
from tensorlang.graph.execution.binding import bind
from tensorlang.graph.execution.constant_values import constants_of
from tensorlang.graph.networks.leaves import Weight
from tensorlang.graph.passes.layouts import ChannelsLast, channels_last
from tensorlang.ops import math, nn

RNG = np.random.default_rng(3)
CPU = targets.get("llvm")


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def weight(*shape: int) -> Weight:
    array = floats(*shape)
    path = f"w{next(COUNT)}"
    return Weight(TensorSpec(array.shape, "float32"), path, lambda *_: array)


COUNT = iter(range(1000))


def everywhere(net: Network, x: np.ndarray) -> tuple[np.ndarray, graph.Graph]:
    """The result with all nodes that may in channels last, and the program."""
    program = net.program
    own = ("nn.transpose", "nn.layer_norm", "nn.dense")
    images = [n for n in program.nodes if n.results[0].ndim == 4 and n.id not in own]
    moved = ChannelsLast(set(images))
    again = moved.graph(program)
    known = {v: net.weights[v.path] for v in program.weights}
    bound = bind(again, {"batch": len(x)}, known)
    np.copyto(bound.inputs[0], x)
    bound()
    return bound.outputs[0].copy(), again


def counts(program: graph.Graph) -> dict[str, int]:
    ids = [node.id for node in program.nodes]
    return {each: ids.count(each) for each in ids}


def block(channels: int, size: int) -> Network:
    """A residual block with what networks have between convolutions."""
    a, b = weight(channels, channels, 3, 3), weight(channels, channels, 1, 1)
    c, d = weight(channels, 1, 3, 3), weight(channels)
    m, v = weight(channels), weight(channels)

    def apply(x):
        y = nn.conv2d(x, a, d, padding=1, activation="relu")
        y = nn.batch_norm(y, m, math.square(v) + 1.0, d, m)
        y = math.multiply(nn.conv2d(y, c, padding=1, groups=channels), 0.5)
        z = nn.conv2d(nn.max_pool2d(y, 3, stride=1, padding=1), b, addend=x)
        gate = nn.sigmoid(nn.global_avg_pool(z))
        z = math.multiply(z, gate)
        return nn.avg_pool2d(z, 2)

    return Network(apply, TensorSpec(("batch", channels, size, size)))


@pytest.mark.parametrize(("channels", "size"), [(20, 7), (3, 5), (48, 4), (1, 6)])
@pytest.mark.parametrize("batch", [1, 3])
def test_all_that_may_change_gives_the_same(channels, size, batch):
    net, x = block(channels, size), floats(batch, channels, size, size)
    wanted = net(x)
    got, program = everywhere(net, x)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    layouts = {n.kwargs.get("layout") for n in program.nodes if "conv2d" in n.id}
    assert layouts == {"NHWC"}
    if channels > 1:
        moved = counts(program)["nn.transpose"]
        assert moved == 2  # of the input, and of the result


def joined(channels: int, size: int) -> Network:
    """Branches that are joined and rescaled by the means of their channels."""
    a, b = weight(channels, channels, 1, 1), weight(5, channels, 3, 3)

    def apply(x):
        y = nn.relu(nn.conv2d(x, a))
        pooled = nn.avg_pool2d(y, 3, stride=1, padding=1)
        y = nn.concatenate([y, nn.conv2d(y, b, padding=1), pooled], 1)
        y = math.multiply(y, math.mean(y, (2, -1), keepdims=True))
        y = math.subtract(y, math.max(y, 1, keepdims=True))
        return nn.concatenate([y, y], -2)

    return Network(apply, TensorSpec(("batch", channels, size, size)))


@pytest.mark.parametrize(("channels", "size"), [(20, 7), (3, 5), (48, 4)])
def test_joins_and_reductions_change_with_what_they_read(channels, size):
    net, x = joined(channels, size), floats(2, channels, size, size)
    wanted = net(x)
    got, program = everywhere(net, x)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    assert counts(program)["nn.transpose"] == 2  # of the input, and of the result


def test_reductions_without_kept_dimensions_stay():
    w = weight(64, 64, 1, 1)
    net = Network(lambda x: math.sum(nn.conv2d(x, w), 1), TensorSpec((1, 64, 7, 7)))
    net.freeze()
    x = floats(1, 64, 7, 7)
    wanted = np.einsum("bchw,oc->bhw", x, net.weights[w.path][:, :, 0, 0])
    np.testing.assert_allclose(net(x), wanted, rtol=1e-3, atol=1e-3)
    conv, total = net.program.nodes
    fixed = constants_of(net.program, net.program.weights)
    moved = channels_last(net.program, fixed, {}, CPU)
    assert total not in moved.chosen
    again = ChannelsLast({conv}).graph(net.program)
    *_, back, stayed = again.nodes
    assert (back.id, stayed.id) == ("nn.transpose", "math.sum")
    assert (stayed.args, stayed.kwargs) == ((back.results[0], 1), total.kwargs)


@pytest.mark.parametrize("axis", [1, -3])
def test_axes_that_are_numbers_of_numpy(axis):
    w, p = weight(20, 20, 1, 1), weight(20)
    one = np.int64(axis)

    def apply(x):
        y = nn.batch_norm(nn.conv2d(x, w), p, math.square(p) + 1.0, axis=one)
        y = math.subtract(y, math.mean(y, one, keepdims=True))
        y = math.subtract(y, math.max(y, (np.int8(2), np.int64(-1)), keepdims=True))
        return nn.concatenate([y, nn.relu(y)], one)

    net, x = Network(apply, TensorSpec(("batch", 20, 20, 20))), floats(2, 20, 20, 20)
    for node in net.program.nodes:
        axes = node.kwargs.get("axis", node.args[-1])
        held = axes if isinstance(axes, tuple) else [axes]
        assert not any(isinstance(each, np.generic) for each in held)
    got, program = everywhere(net, x)
    np.testing.assert_allclose(got, net(x), rtol=2e-4, atol=2e-4)
    assert counts(program)["nn.transpose"] == 2  # of the input, and of the result


def test_joins_of_an_input_and_of_a_result_of_the_network():
    w = weight(20, 20, 3, 3)

    def apply(x):
        y = nn.relu(nn.conv2d(x, w, padding=1))
        return nn.concatenate([x, y, x], 1), y

    net, x = Network(apply, TensorSpec(("batch", 20, 5, 5))), floats(2, 20, 5, 5)
    wanted, y = net(x)
    got, program = everywhere(net, x)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    assert counts(program)["nn.transpose"] == 3  # of the input, and of both results
    net.freeze()
    for made, want in zip(net(x), (wanted, y), strict=True):
        np.testing.assert_allclose(made, want, rtol=2e-4, atol=2e-4)


def mixed(channels: int, size: int) -> Network:
    """A block that works with channels last between its own transposes."""
    w, d, e = weight(channels, 1, 3, 3), weight(channels, channels), weight(channels)
    scale = weight(channels, 1, 1)

    def apply(x):
        y = nn.transpose(nn.conv2d(x, w, padding=1, groups=channels), (0, 2, 3, 1))
        y = nn.dense(nn.layer_norm(y, e, e), d, activation="gelu")
        y = math.multiply(nn.transpose(y, (0, 3, 1, 2)), scale)
        return nn.avg_pool2d(math.add(x, y), 2)

    return Network(apply, TensorSpec(("batch", channels, size, size)))


@pytest.mark.parametrize(("channels", "size"), [(20, 6), (3, 8), (48, 4)])
def test_transposes_of_the_program_are_left_out(channels, size):
    net, x = mixed(channels, size), floats(2, channels, size, size)
    wanted = net(x)
    got, program = everywhere(net, x)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    assert counts(program)["nn.transpose"] == 2  # of the input, and of the result
    net.freeze()
    context = Context(net, 2)
    np.testing.assert_allclose(context(x), wanted, rtol=2e-4, atol=2e-4)
    assert [node.id for node in context.bound.nodes].count("nn.transpose") == 2


def test_weights_that_are_images():
    w, b = weight(16, 4, 3, 3), weight(1, 16, 5, 5)
    net = Network(
        lambda x: math.add(nn.conv2d(x, w, padding=1), b), TensorSpec((1, 4, 5, 5))
    )
    x = floats(1, 4, 5, 5)
    program = net.program
    moved = ChannelsLast({n for n in program.nodes if n.results[0].ndim == 4})
    again = moved.graph(program)
    known = {moved[v]: net.weights[v.path] for v in program.weights}
    assert set(known) == set(program.weights)
    bound = bind(again, {}, known)
    np.copyto(bound.inputs[0], x)
    bound()
    np.testing.assert_allclose(bound.outputs[0], net(x), rtol=2e-4, atol=2e-4)


def test_frozen_networks_of_few_pixels_have_channels_last() -> None:
    net, x = block(64, 7), floats(2, 64, 7, 7)
    wanted = net(x)
    context = Context(net, 2)
    assert not any(_last(node) for node in context.bound.nodes)
    net.freeze()
    context = Context(net, 2)
    assert all(_last(n) for n in context.bound.nodes if n.id == "nn.conv2d")
    np.testing.assert_allclose(context(x), wanted, rtol=2e-4, atol=2e-4)
    net.set_weights({path: -array for path, array in net.weights.items()})
    fresh = context(x)
    np.testing.assert_allclose(fresh, net(x), rtol=1e-6)
    assert not np.allclose(fresh, wanted)


def test_a_batch_of_no_images() -> None:
    w = weight(64, 64, 3, 3)
    net = Network(
        lambda x: nn.relu(nn.conv2d(x, w, padding=1)), TensorSpec(("batch", 64, 7, 7))
    )
    net.freeze()
    assert net(floats(0, 64, 7, 7)).shape == (0, 64, 7, 7)


def _last(node) -> bool:
    return node.kwargs.get("layout") == "NHWC"


@pytest.mark.parametrize(
    ("shape", "window", "options", "moves"),
    [
        ((256, 7, 7), (256, 256, 1, 1), {}, True),
        ((256, 7, 7), (256, 256, 1, 1), {"layout": "NHWC"}, False),
        ((64, 8, 8), (3, 64, 3, 3), {}, False),  # few outputs
    ],
)
def test_the_prediction_decides(shape, window, options, moves):
    w = weight(*window)
    given = (*shape[1:], shape[0]) if "layout" in options else shape
    net = Network(lambda x: nn.conv2d(x, w, **options), TensorSpec((1, *given)))
    fixed = constants_of(net.program, net.program.weights)
    assert bool(channels_last(net.program, fixed, {}, CPU).chosen) == moves
    assert not channels_last(net.program, set(), {}, CPU).chosen  # packed at each run
    gpu = targets.get("cuda:sm_90a")
    assert not channels_last(net.program, fixed, {}, gpu).chosen


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank):
    size = (5, 6, 4)[:rank]
    w = weight(24, 20, *[2] * rank)
    conv = getattr(nn, f"conv{rank}d")
    net = Network(lambda x: nn.relu(conv(x, w)), TensorSpec(("batch", 20, *size)))
    x = floats(2, 20, *size)
    wanted = net(x)
    moved = ChannelsLast(set(net.program.nodes))
    again = moved.graph(net.program)
    known = {v: net.weights[v.path] for v in net.program.weights}
    bound = bind(again, {"batch": 2}, known)
    np.copyto(bound.inputs[0], x)
    bound()
    np.testing.assert_allclose(bound.outputs[0], wanted, rtol=1e-4, atol=1e-5)


def test_images_that_programs_within_read_are_moved_outside_of_them() -> None:
    w = weight(64, 64, 1, 1)

    def apply(x):
        y = nn.conv2d(x, w)
        z = graph.cond(math.sum(x) > 0.0, lambda: y + 1.0, lambda: y * 2.0)
        return z + math.sum(y, (2, 3), keepdims=True)

    net, x = Network(apply, TensorSpec((1, 64, 7, 7))), floats(1, 64, 7, 7)
    wanted = net(x), net(-x)
    net.freeze()
    for got, want in zip((net(x), net(-x)), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
