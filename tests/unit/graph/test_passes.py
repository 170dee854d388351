"""Passes: less work, the same draws."""

import numpy as np

from tensorlang import graph
from tensorlang.graph import (
    KeySpec,
    TensorSpec,
    fold,
    fuse,
    gradients,
    inline,
    without_dead,
    without_doubles,
)
from tensorlang.ops import math, nn, random

X = TensorSpec(("batch", 4))
W = TensorSpec((4, 4))
B = TensorSpec((4,))


def ids(program):
    return [node.id for node in program.nodes]


def test_what_is_computed_twice_is_computed_once() -> None:
    def body(x):
        return math.sin(x) + math.sin(x) * math.sum(math.sin(x), 0)

    made = without_doubles(graph.trace(body, (X,)))
    assert ids(made).count("math.sin") == 1


def test_b_two_dropouts_are_never_merged() -> None:
    def body(x, key):
        left, right = random.split(key)
        a, b = nn.dropout(x, 0.5, key=left), nn.dropout(x, 0.5, key=right)
        return a + b, random.normal(graph.constant(random.key(0)), (3,))

    made = without_doubles(fold(graph.trace(body, (X, KeySpec()))))
    assert ids(made).count("nn.dropout") == 2


def test_a_draw_in_a_branch_is_not_that_of_the_other() -> None:
    def body(x, key):
        return graph.cond(
            math.sum(x),
            lambda: nn.dropout(math.sin(x), 0.5, key=key),
            lambda: nn.dropout(math.sin(x), 0.5, key=key),
        )

    (_, node) = without_doubles(graph.trace(body, (X, KeySpec()))).nodes
    assert [ids(branch) for branch in node.graphs] == [["math.sin", "nn.dropout"]] * 2


def test_constants_are_computed_beforehand_and_keys_never() -> None:
    def body(x):
        two = math.add(graph.constant(np.ones(4, np.float32)), np.ones(4, np.float32))
        noise = random.normal(graph.constant(random.key(0)), (4,))
        return x * math.multiply(two, 3.0) + noise

    made = fold(graph.trace(body, (X,)))
    assert ids(made) == ["random.normal", "math.multiply", "math.add"]
    np.testing.assert_array_equal(made.nodes[1].args[1].data, [6, 6, 6, 6])


def test_a_constant_condition_chooses() -> None:
    never, some = np.zeros((3, 1), bool), np.array([[True], [False], [True]])

    def body(x):
        kept = math.where(never, np.float32(0), math.exp(x))
        mixed = math.where(some, kept, x)
        return math.where(~never, mixed, 0.5), math.where(~never, np.float32(0), x)

    made = fold(graph.trace(body, (graph.TensorSpec((3, 4), "f32"),)))
    assert [node.id for node in made.nodes] == ["math.exp", *["math.where"] * 2]


def test_dead_code_goes() -> None:
    def body(x):
        math.sin(x)
        a, _ = graph.loop(2, lambda _, a, b: (math.cos(a), b), x, x)
        return a

    assert ids(without_dead(graph.trace(body, (X,)))) == ["for"]


def test_functions_are_written_out() -> None:
    @graph.function
    def twice(x):
        return x + x

    @graph.checkpoint
    def kept(x):
        return twice(x)

    made = inline(graph.trace(lambda x: kept(twice(x)), (X,)))
    assert ids(made) == ["math.add", "call"]


def layer(x, w, b, key):
    h = nn.relu(nn.dense(x, w) + b)
    return nn.dropout(h, 0.5, key=key) + x


def test_bias_activation_dropout_and_residual_become_one_kernel(golden) -> None:
    golden(f"{fuse(graph.trace(layer, (X, W, B, KeySpec())))}\n")


def test_a_product_that_is_broadcast_takes_no_residual() -> None:
    def body(row, w, x):
        return nn.dense(row, w) + x

    row, w, x = TensorSpec((1, 8)), TensorSpec((8, 8)), TensorSpec(("batch", 8))
    made = fuse(graph.trace(body, (row, w, x)))
    assert ids(made) == ["nn.dense", "math.add"]
    assert ids(fuse(graph.trace(body, (x, w, x)))) == ["nn.dense"]


IMAGES = TensorSpec(("batch", 4, 5, 5))
WINDOWS = TensorSpec((4, 4, 1, 1))


def test_a_shortcut_and_its_activation_become_part_of_a_convolution() -> None:
    def block(x, w):
        return nn.relu(nn.conv2d(x, w) + x)

    (made,) = fuse(graph.trace(block, (IMAGES, WINDOWS))).nodes
    assert (made.id, made.kwargs["activation"]) == ("nn.conv2d", "relu")
    assert isinstance(made.kwargs["addend"], graph.Tensor)
    both = fuse(
        graph.trace(lambda x, w: nn.conv2d(x, w) + nn.conv2d(x, w), (IMAGES, WINDOWS))
    )
    assert ids(both) == ["nn.conv2d", "nn.conv2d"]


def test_a_shortcut_after_the_activation_stays() -> None:
    def block(x, w):
        return nn.relu(nn.conv2d(x, w)) + x

    made = fuse(graph.trace(block, (IMAGES, WINDOWS)))
    assert ids(made) == ["nn.conv2d", "math.add"]


def test_a_broadcast_shortcut_stays() -> None:
    def block(x, w, row):
        return nn.conv2d(x, w) + row

    made = fuse(graph.trace(block, (IMAGES, WINDOWS, TensorSpec((5,)))))
    assert ids(made) == ["nn.conv2d", "math.add"]


def test_only_a_clip_from_0_to_6_becomes_an_activation() -> None:
    def block(x, w, high):
        return math.clip(nn.conv2d(x, w), 0.0, high)

    for high, wanted in ((6.0, ["nn.conv2d"]), (5.0, ["nn.conv2d", "math.clip"])):
        made = fuse(graph.trace(lambda x, w, n=high: block(x, w, n), (IMAGES, WINDOWS)))
        assert ids(made) == wanted


def test_in_training_too(golden) -> None:
    def body(x, w, b, key):
        h = nn.relu(nn.dense(x, w, b))
        y, after = nn.dropout_train(h, key, 0.5)
        return (after, *gradients(math.sum(y * y), [w, b]))

    golden(f"{fuse(graph.trace(body, (X, W, B, KeySpec())))}\n")


def test_what_is_needed_elsewhere_stays() -> None:
    def body(x, w):
        h = nn.dense(x, w)
        y = nn.gelu(h)
        return tuple(gradients(math.sum(y), [w]))  # gelu's gradient reads h

    assert "nn.gelu_grad" in ids(fuse(graph.trace(body, (X, W))))
    shown = graph.trace(lambda x, w: (nn.dense(x, w), nn.relu(nn.dense(x, w))), (X, W))
    assert ids(fuse(without_doubles(shown))) == ["nn.dense", "nn.relu"]


def test_a_convolution_takes_its_activation() -> None:
    def body(x, w):
        return nn.tanh(nn.conv2d(x, w, padding=1))

    made = fuse(graph.trace(body, (TensorSpec((1, 3, 8, 8)), TensorSpec((2, 3, 3, 3)))))
    assert ids(made) == ["nn.conv2d"]
    assert made.nodes[0].kwargs["activation"] == "tanh"


def test_of_two_sums_of_one_product_none_is_taken_in() -> None:
    made = fuse(graph.trace(lambda x, w: nn.dense(x, w) + nn.dense(x, w), (X, W)))
    assert ids(made) == ["nn.dense", "nn.dense"]
