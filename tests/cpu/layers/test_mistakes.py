"""What a new user does wrong: a typed error that says where, and what to do."""

import threading

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    KernelError,
    LossError,
    ShapeError,
    TargetError,
    WeightError,
)
from tensorlang.graph import Context, TensorSpec
from tensorlang.layers import BatchNorm, Dense, Dropout, Layer, Model, Sequential
from tensorlang.ops import math, nn, random

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 8)).astype(np.float32)
T = RNG.integers(0, 3, 20)


def model(*layers, **options):
    made = Sequential(*(layers or (Dense(3),)))
    return Model(made).compile(("batch", 8), key=random.key(0), **options)


class Dict(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.heads = {"left": Dense(2), "right": Dense(3)}

    def apply(self, x):
        return self.heads["right"](self.heads["left"](x))


class Itself(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = self

    def apply(self, x):
        return self.inner(x)


WRONG = {
    "a class for a layer": (
        lambda: Sequential(Dense),
        ArgumentError,
        r"Dense at 0 is a class; write Dense\(\.\.\.\)",
    ),
    "no whole number of units": (
        lambda: Dense(2.5),
        ArgumentError,
        "units of Dense is an integer of at least 0, not 2.5",
    ),
    "an activation that there is not": (
        lambda: model(Dense(4), Dense(3, "rleu")),
        ArgumentError,
        r"layer '1' \(.*test_mistakes.py:\d+\): there is no activation 'rleu'",
    ),
    "a function among layers": (
        lambda: model(Dense(4), lambda x: math.matmul(x, np.ones((5, 5), "f4"))),
        ShapeError,
        "layer '1'",
    ),
    "an initialiser of another shape": (
        lambda: model(Dense(3, weight=lambda _, __, dtype: np.zeros(2, dtype))),
        WeightError,
        r"weight '0.weight' is f32\[3, 8\], and its initialiser makes float32\[2\]",
    ),
    "a bias that is false": (
        lambda: model(Dense(3, bias=False)),
        ArgumentError,
        r"layer '0' .*: the bias of Dense is .* or left out by None, not False",
    ),
    "an activation that is none": (
        lambda: model(Dense(4, 3)),
        ArgumentError,
        r"layer '0' \(.*test_mistakes.py:\d+\): there is no activation 3",
    ),
    "channels that are not there": (
        lambda: model(BatchNorm(axis=4)),
        ShapeError,
        r"layer '0' .*BatchNorm has its channels in axis 4, which f32\[batch, 8\]",
    ),
    "a layer in itself": (
        lambda: Model(Itself()).compile(("batch", 8)),
        GraphError,
        r"layer 'inner.inner.inner' \(.*test_mistakes.py:\d+\): .* a part of itself",
    ),
    "weights that are none": (
        lambda: model().set_params([1]),
        WeightError,
        r"weights are given as a dictionary of arrays by path, not \[1\]",
    ),
    "a word for a spec": (
        lambda: Model(Dense(3)).compile("batch"),
        ArgumentError,
        r"an input is a TensorSpec, or a shape such as .*, not 'batch'",
    ),
    "validation without truths": (
        lambda: model().fit(X, T, validation=[X], progress=False),
        ArgumentError,
        "validation takes 1 inputs, then targets; got 1",
    ),
    "no spec": (
        lambda: Model(Dense(3)).compile(),
        ArgumentError,
        "compile takes the spec of each input",
    ),
    "another type": (
        lambda: model()(X.astype(np.float64)),
        DTypeError,
        r"x0 is f32\[batch, 8\], not float64; cast it",
    ),
    "another fixed batch": (
        lambda: (
            Model(Dense(3)).compile(TensorSpec((20, 8))).train_one_batch(X[:3], T[:3])
        ),
        ShapeError,
        r"training: x0 is f32\[20, 8\], not of shape \(3, 8\)",
    ),
    "an empty batch": (
        lambda: model().train_one_batch(X[:0], T[:0]),
        ArgumentError,
        "training needs at least one example",
    ),
    "a label too high": (
        lambda: model().train_one_batch(X, T + 3),
        KernelError,
        "a label is .*; 3 classes are counted from 0",
    ),
    "a loss that gives nothing": (
        lambda: model(loss=lambda _, __: None).train_one_batch(X, T),
        ArgumentError,
        "layer 'loss'.*|the loss returns None; it must return one tensor",
    ),
    "a loss of no weight": (
        lambda: model(loss=lambda _, t: math.sum(t)).train_one_batch(X, X),
        GraphError,
        r"the loss depends on none of the weights \(0.bias, ...\)",
    ),
    "a target of no layer": (
        lambda: model(target={"lss": "opencl"}).train_one_batch(X, T),
        TargetError,
        "a target is given for 'lss', which is not a layer; there is 0, loss",
    ),
    "a batch of 0": (
        lambda: model().fit(X, T, batch=0),
        ArgumentError,
        "fit takes integers, a batch of at least 1 .*, not batch=0",
    ),
    "data that are no numbers": (
        lambda: model().fit(X * np.nan, T, batch=10, epochs=2, progress=False),
        LossError,
        r"fit: epoch 1 of 2, step 1: the loss is nan; check the data for such numbers",
    ),
    "a context without its batch": (
        lambda: Context(model().network),
        ShapeError,
        "the size batch is not known; give it, as in sizes={'batch': 32}",
    ),
    "a batch that is no number": (
        lambda: Context(model().network, "a"),
        ArgumentError,
        "sizes are non-negative integers, not {'batch': 'a'}",
    ),
    "an optimizer by name": (
        lambda: model(optimizer="adam"),
        ArgumentError,
        r"an optimizer is one of tensorlang.layers, such as .*, not 'adam'",
    ),
    "several keys": (
        lambda: Model(Dense(3)).compile(("batch", 8), key=random.split(random.key(0))),
        ArgumentError,
        "a network is initialised with one key",
    ),
    "an array for a symbolic tensor": (
        lambda: Dense(3)(X),
        ArgumentError,
        r"py:\d+: a layer takes symbolic tensors, .* Dense\(3\) got ndarray; .*Model\(",
    ),
    "an array for layers": (
        lambda: Sequential(Dense(4), Dense(3))(X),
        ArgumentError,
        r"a layer takes symbolic tensors, and Sequential\(Dense\(4\), Dense\(3\)\) got",
    ),
    "two inputs of a layer of one": (
        lambda: Model(Dense(3)).compile(("batch", 8), ("batch", 8)),
        ArgumentError,
        r"test_mistakes.py:\d+: Dense takes 1 input \(x\), got 2",
    ),
    "two inputs of layers": (
        lambda: Model(Sequential(Dense(3))).compile(("batch", 8), ("batch", 8)),
        ArgumentError,
        r"layer '0' \(.*test_mistakes.py:\d+\): Dense takes 1 input \(x\), got 2",
    ),
    "half a batch": (
        lambda: model().fit(X, T, batch=2.5),
        ArgumentError,
        r"fit takes integers, .* not batch=2.5, epochs=1",
    ),
    "half an epoch": (
        lambda: model().fit(X, T, epochs=1.5),
        ArgumentError,
        r"fit takes integers, .* not batch=32, epochs=1.5",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_sentence_that_says_where(what) -> None:
    act, error, said = WRONG[what]
    with pytest.raises(error, match=said) as caught:
        act()
    assert "\n" not in str(caught.value)


def test_a_layer_meets_arrays_within_a_program() -> None:
    class Moved(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Dense(3)

        def apply(self, x):
            return self.inner(np.ones((1, 3), np.float32)) * x

    y = Moved()(graph.input(("batch", 3)))
    assert str(y.spec) == "f32[batch, 3]"
    assert Model(Moved()).compile(("batch", 3))(X[:, :3]).shape == (20, 3)
    assert str(Dense(3)(graph.constant(X)).spec) == "f32[20, 3]"
    with pytest.raises(ArgumentError, match="a layer takes symbolic tensors"):
        Moved()(X)  # also after another was applied


def test_inputs_as_they_come() -> None:
    made = model(Dense(16, "relu"), Dense(3))
    wanted = made(X)
    np.testing.assert_allclose(made(X[:1]), wanted[:1], rtol=1e-5)
    assert made(X[:0]).shape == (0, 3)
    np.testing.assert_array_equal(made(X.tolist()), wanted)
    np.testing.assert_array_equal(made(np.asfortranarray(X)), wanted)
    np.testing.assert_array_equal(made(X[::2]), wanted[::2])
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(made(frozen), wanted)


def test_fit_takes_lists_and_a_batch_that_does_not_divide() -> None:
    made = [model() for _ in range(2)]
    given = {"epochs": 2, "batch": 7, "progress": False}
    first = made[0].fit(X, T, **given)
    again = made[1].fit(X.tolist(), T.tolist(), **given)
    assert [epoch.loss for epoch in first] == [epoch.loss for epoch in again]


def test_layers_in_a_dictionary_have_names() -> None:
    names = Model(Dict()).compile(("batch", 8)).get_params()
    assert list(names) == [
        f"heads.{side}.{what}"
        for side in ("left", "right")
        for what in ("weight", "bias")
    ]


def test_steps_of_several_threads_are_made_one_after_the_other() -> None:
    alone, shared = (model(Dense(16, "relu"), Dropout(0.2), Dense(3)) for _ in "ab")
    for _ in range(60):
        alone.train_one_batch(X, T)
    threads = [
        threading.Thread(
            target=lambda: [shared.train_one_batch(X, T) for _ in range(20)]
        )
        for _ in range(3)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    first, second = alone.get_states(), shared.get_states()
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_summary_of_one_layer_alone() -> None:
    assert "27" in Model(Dense(3)).summary(("batch", 8))


def test_validation_of_several_outputs() -> None:
    class Two(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.head = Dense(3)

        def apply(self, x):
            y = self.head(x)
            return y, abs(y)

    made = Model(Two()).compile(
        ("batch", 8), loss=lambda y, size, t: nn.cross_entropy(y, t) + math.mean(size)
    )
    (epoch,) = made.fit(X, T, validation=(X, T), batch=20, progress=False)
    assert epoch.metrics["validation_loss"] < epoch.loss


def test_validation_of_several_truths() -> None:
    made = Model(Dense(3)).compile(
        ("batch", 8), loss=lambda y, t, u: nn.cross_entropy(y, t) + nn.mse(y, u)
    )
    data = (X, T, np.ones((20, 3), np.float32))
    (epoch,) = made.fit(*data, validation=data, batch=20, progress=False)
    assert epoch.metrics["validation_loss"] < epoch.loss


def test_a_folder_that_is_not_there(tmp_path):
    pytest.importorskip("onnx", reason="models are saved through onnx")
    pytest.importorskip("safetensors", reason="states are saved through safetensors")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        model().save(tmp_path / "nowhere" / "all.onnx")
