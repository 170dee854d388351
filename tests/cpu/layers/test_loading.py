"""Loaders, accumulated gradients, checkpoints, autocast, and what files keep."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, GraphError, ShapeError
from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    SGD,
    Adam,
    Checkpoint,
    Conv2D,
    Dense,
    Embedding,
    Flatten,
    Loader,
    Model,
    Sequential,
)
from tensorlang.layers.fitting import accuracy
from tensorlang.ops import nn, random

RNG = np.random.default_rng(5)
X = RNG.normal(size=(70, 8)).astype(np.float32)
T = (X[:, :4].sum(1) > 0).astype(np.int64)


def model(**options):
    layers = Sequential(Dense(16, "relu"), Dense(2))
    return Model(layers).compile(("batch", 8), key=random.key(0), **options)


class Squares:
    """A data set of numbers and their squares."""

    def __init__(self, count=10, slow=()) -> None:
        self.count, self.slow = count, slow

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        if at in self.slow:
            time.sleep(0.02)
        return float(at), at * at


def test_arrays_in_order() -> None:
    loader = Loader(X, T, batch=32)
    parts = list(loader)
    assert len(loader) == len(parts) == 3
    np.testing.assert_array_equal(np.concatenate([x for x, _ in parts]), X)
    np.testing.assert_array_equal(np.concatenate([t for _, t in parts]), T)
    assert [len(t) for _, t in parts] == [32, 32, 6]


def test_each_pass_is_shuffled_anew_and_again_the_same() -> None:
    first, second = (Loader(X, T, key=random.key(3)) for _ in range(2))
    passes = [np.concatenate([x for x, _ in first]) for _ in range(2)]
    assert not np.array_equal(*passes)
    np.testing.assert_array_equal(np.sort(passes[0], 0), np.sort(X, 0))
    for wanted in passes:
        np.testing.assert_array_equal(np.concatenate([x for x, _ in second]), wanted)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_data_set_is_stacked_in_order(threads) -> None:
    loader = Loader(Squares(10, slow=(0, 4)), batch=4, threads=threads)
    for _ in range(2):
        parts = list(loader)
        assert [x.shape for x, _ in parts] == [(4,), (4,), (2,)]
        assert parts[0][0].dtype == np.float32
        assert parts[0][1].dtype == np.int64
        np.testing.assert_array_equal(
            np.concatenate([t for _, t in parts]), np.arange(10) ** 2
        )


def test_a_pass_may_be_left_early() -> None:
    loader = Loader(Squares(1000), batch=1, threads=2)
    assert next(iter(loader))[1] == 0
    assert len(list(loader)) == 1000


def test_errors_of_a_data_set_reach_the_caller() -> None:
    class Faulty(Squares):
        def __getitem__(self, at):
            if at == 5:
                raise OSError("no such image")
            return super().__getitem__(at)

    with pytest.raises(OSError, match="no such image"):
        list(Loader(Faulty(), batch=2, threads=2))


def test_data_that_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match="as many inputs as targets"):
        Loader(X, T[:3])
    with pytest.raises(ArgumentError, match="at least one, not"):
        Loader(X[:0], T[:0])
    with pytest.raises(ArgumentError, match="batch of a Loader is an integer of at"):
        Loader(X, T, batch=0)
    with pytest.raises(ArgumentError, match="threads of a Loader is an integer of at"):
        Loader(X, T, threads=-1)
    with pytest.raises(ArgumentError, match="a data set with a length"):
        Loader(iter([1, 2]))
    with pytest.raises(ArgumentError, match="examples cannot be stacked"):
        list(Loader([np.ones(2), np.ones(3)]))
    with pytest.raises(ArgumentError, match="there are no batches"):
        model().fit(iter([]), progress=False)


def test_fitting_a_loader_is_fitting_its_arrays() -> None:
    one, two = model(), model()
    wanted = one.fit(
        X,
        T,
        epochs=3,
        batch=32,
        validation=(X, T),
        metrics=["accuracy"],
        progress=False,
        seed=4,
    )
    loader = Loader(X, T, batch=32, key=random.key(4))
    found = two.fit(
        loader, epochs=3, validation=Loader(X, T), metrics=["accuracy"], progress=False
    )
    assert [each.loss for each in found] == [each.loss for each in wanted]
    assert found[-1].metrics == pytest.approx(wanted[-1].metrics)


def test_data_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(T))
    wanted = model().fit(X, T, batch=10, shuffle=False, progress=False)[0].loss
    theirs = torch.utils.data.DataLoader(data, batch_size=10)
    for loader in (Loader(data, batch=10, threads=2), theirs):
        assert model().fit(loader, progress=False)[0].loss == wanted


def test_accumulated_batches_are_one_large_batch() -> None:
    whole, parts = (model(optimizer=SGD(lr=0.1), accumulate=n) for n in (1, 4))
    for _ in range(3):
        whole.train_one_batch(X[:40], T[:40])
        before = parts.get_params()
        for n in range(0, 40, 10):
            np.testing.assert_equal(parts.get_params(), before)
            parts.train_one_batch(X[n : n + 10], T[n : n + 10])
        for path, wanted in whole.get_params().items():
            np.testing.assert_allclose(parts.get_params()[path], wanted, atol=1e-6)
    assert whole.trainer.step == parts.trainer.step == 3
    parts.train_one_batch(X[:10], T[:10])
    parts.set_states(parts.get_states())  # without the batch so far
    for n in range(0, 40, 10):
        parts.train_one_batch(X[n : n + 10], T[n : n + 10])
    assert parts.trainer.step == 4
    with pytest.raises(ArgumentError, match="accumulate of a trainer is an integer"):
        model(accumulate=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_keeps_weights_and_losses_wide(dtype) -> None:
    layers = Sequential(
        Conv2D(4, 3, "relu", padding="same"), Flatten(), Dense(32, "gelu"), Dense(2)
    )
    x = RNG.normal(size=(64, 1, 6, 6)).astype(np.float32)
    t = (x[:, 0, 0].sum(1) > 0).astype(np.int64)
    made = [
        Model(layers).compile(
            ("batch", *x.shape[1:]),
            optimizer=SGD(lr=0.05),
            key=random.key(0),
            autocast=each,
        )
        for each in (None, dtype)
    ]
    losses = [[each.train_one_batch(x, t) for _ in range(20)] for each in made]
    np.testing.assert_allclose(*losses, rtol=3e-2)
    assert losses[0] != losses[1]
    assert losses[1][-1] < losses[1][0]
    assert {w.dtype.name for w in made[1].get_params().values()} == {"float32"}
    y, wanted = made[1](x), made[0](x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, wanted, atol=0.05 * abs(wanted).max())
    text = str(made[1].network.program)
    assert text.count("nn.dense") == 2
    assert "cast" in text
    with pytest.raises(ArgumentError, match="autocast is bfloat16 or float16, not"):
        model(autocast="int8")


def test_classes_last() -> None:
    ids = RNG.integers(0, 9, (4, 6))
    made = Model(Sequential(Embedding(9, 16), Dense(9))).compile(
        TensorSpec(("batch", "time"), "int64"), loss="cross_entropy_last"
    )
    wanted = float(nn.cross_entropy(made(ids).reshape(-1, 9), ids.reshape(-1)))
    assert made.train_one_batch(ids, ids) == pytest.approx(wanted, rel=1e-5)
    right = np.mean(np.argmax(made(ids), -1) == ids)
    metrics = ["accuracy_last"]
    (epoch,) = made.fit(ids, ids, batch=4, metrics=metrics, progress=False)
    assert epoch.metrics == {"accuracy_last": pytest.approx(right)}


def test_accuracy_is_of_classes_or_of_shares() -> None:
    outputs, truths = RNG.normal(size=(3, 3)), np.array([0, 2, 1])
    right = np.mean(np.argmax(outputs, 1) == truths)
    assert accuracy(outputs, truths) == right
    assert accuracy(outputs, np.eye(3)[truths]) == right
    with pytest.raises(ShapeError, match=r"targets of shape \(3,\) or \(3, 3\), not"):
        accuracy(outputs, truths[:, None])


def test_checkpoints_are_those_of_epochs(tmp_path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    path = tmp_path / "model.onnx"
    made = model(accumulate=2, autocast="bfloat16")
    made.fit(X, T, epochs=2, callbacks=[Checkpoint(made, path)], progress=False)
    loaded = Model.load(path)
    assert loaded.extras["epoch"] == 2
    assert loaded.trainer.accumulate == 2
    assert loaded.network.autocast == made.network.autocast
    np.testing.assert_equal(loaded.get_states(), made.get_states())
    best = Checkpoint(made, tmp_path / "best.onnx", watch="loss")
    made.fit(X, T, epochs=2, callbacks=[best], progress=False)
    saved = Model.load(tmp_path / "best.onnx").extras["epoch"]
    best.best = -1.0  # no loss is less
    made.fit(X, T, epochs=1, callbacks=[best], progress=False)
    assert Model.load(tmp_path / "best.onnx").extras["epoch"] == saved
    for wrong, said in (
        (Checkpoint(made, path, watch="acuracy"), "there is no 'acuracy' to watch"),
        (Checkpoint(model(), path), "another model is trained"),
    ):
        with pytest.raises(ArgumentError, match=said):
            made.fit(X, T, callbacks=[wrong], progress=False)


def test_loading_for_inference_needs_no_function(tmp_path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")

    def rate(step: int) -> float:
        return 0.1 / (1 + step)

    def loss(y, t):
        return nn.cross_entropy(y, t) * 2.0

    made = model(loss=loss, optimizer=Adam(lr=rate))
    made.save(tmp_path / "model.onnx")
    loaded = Model.load(tmp_path / "model.onnx")
    np.testing.assert_array_equal(loaded(X), made(X))
    with pytest.raises(GraphError, match=r"Model.load\(..., train=True\)"):
        loaded.train_one_batch(X, T)
    with pytest.raises(ArgumentError, match="trained with a loss that is a function"):
        Model.load(tmp_path / "model.onnx", train=True)
    again = Model.load(tmp_path / "model.onnx", loss=loss, optimizer=Adam(lr=rate))
    assert again.train_one_batch(X, T) == made.train_one_batch(X, T)
