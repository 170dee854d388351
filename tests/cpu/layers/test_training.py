"""Models and trainers: steps, epochs, callbacks, states to the bit (E)."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, GraphError, KeyReuseError, WeightError
from tensorlang.graph import TensorSpec
from tensorlang.layers import (
    SGD,
    Adam,
    AdamW,
    BatchNorm,
    Dense,
    Dropout,
    EarlyStop,
    Embedding,
    Layer,
    Model,
    RMSProp,
    Sequential,
)
from tensorlang.layers.initializers import Constant
from tensorlang.ops import nn, random

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 8)).astype(np.float32)
T = (X[:, :4].sum(1) > 0).astype(np.int64)


def model(optimizer=None, seed=0, **options):
    layers = Sequential(Dense(16, "relu"), BatchNorm(), Dropout(0.2), Dense(2))
    return Model(layers).compile(
        TensorSpec(("batch", 8)), optimizer=optimizer, key=random.key(seed), **options
    )


def steps(made, count):
    return [made.train_one_batch(X[n : n + 32], T[n : n + 32]) for n in range(count)]


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(lr=0.1, momentum=0.9, nesterov=True),
        Adam(amsgrad=True, clip=0.5),
        AdamW(),
        RMSProp(momentum=0.9, centered=True),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop"],
)
def test_e_loading_goes_on_with_the_same_bits(optimizer) -> None:
    first = model(optimizer)
    steps(first, 10)
    states = first.get_states()
    wanted = steps(first, 10)
    second = model(optimizer, seed=9)
    second.set_states(states)
    assert steps(second, 10) == wanted
    for path, array in first.get_params().items():
        np.testing.assert_array_equal(array, second.get_params()[path])


def test_two_runs_with_one_seed_are_one() -> None:
    first, second, third = model(), model(), model(seed=1)
    assert steps(first, 100) == steps(second, 100)
    for path, array in first.get_params().items():
        np.testing.assert_array_equal(array, second.get_params()[path])
    assert steps(third, 1) != steps(model(), 1)


def test_e_names_are_dotted() -> None:
    made = model()
    assert list(made.get_params()) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "3.weight",
        "3.bias",
    ]
    states = made.get_states()
    assert {"step", "state.generator", "state.1.running_mean"} <= set(states)
    assert "optimizer.m.0.weight" in states


def test_states_that_do_not_fit() -> None:
    made = model()
    states = made.get_states()
    del states["optimizer.m.0.weight"]
    with pytest.raises(WeightError, match=r"state 'optimizer.m.0.weight' is missing"):
        made.set_states(states)


def test_fit_reports_and_improves(capsys) -> None:
    made = model(Adam(lr=1e-2))
    seen = []
    history = made.fit(
        X,
        T,
        epochs=8,
        batch=64,  # the last batch of an epoch has 8
        validation=(X[:50], T[:50]),
        metrics=["accuracy"],
        callbacks=[seen.append],
    )
    assert seen == history
    assert [epoch.number for epoch in history] == list(range(1, 9))
    assert history[-1].loss < 0.7 * history[0].loss
    assert history[-1].metrics["validation_accuracy"] > 0.9
    assert "epoch 8/8" in capsys.readouterr().out


def test_early_stop_restores_the_best() -> None:
    made = model(SGD(lr=0.0))
    stop = EarlyStop("loss", patience=2)
    history = made.fit(X, T, epochs=50, callbacks=[stop], progress=False)
    assert len(history) < 50
    assert stop.best == min(epoch.loss for epoch in history)
    with pytest.raises(ArgumentError, match=r"there is no 'validation_loss' to watch"):
        made.fit(X, T, callbacks=[EarlyStop()], progress=False)


def test_early_stop_brings_back_the_running_moments_too() -> None:
    made = model(SGD(lr=0.5))
    stop = EarlyStop("validation_loss", patience=2)
    truths = RNG.integers(0, 2, 200)  # which nothing can learn
    given = {"batch": 50, "validation": (X, truths), "progress": False}
    history = made.fit(X, T, epochs=60, callbacks=[stop], **given)
    assert history[-1].stop
    assert history[-1].metrics["validation_loss"] > stop.best
    assert float(nn.cross_entropy(made(X), truths)) == pytest.approx(stop.best, 1e-5)


def test_weight_decay_and_clipping_are_the_optimizers_own() -> None:
    weight, gradient = np.ones(4, np.float32), np.full(4, 3.0, np.float32)
    SGD(lr=1.0, clip=1.0).update([weight], [gradient], {}, 1)
    np.testing.assert_allclose(weight, 0.5, rtol=1e-5)
    weight = np.ones(4, np.float32)
    adam = AdamW(lr=0.1, weight_decay=0.5)
    adam.update([weight], [np.zeros(4, np.float32)], adam.begin([weight]), 1)
    np.testing.assert_allclose(weight, 0.95, rtol=1e-6)


def test_a_loss_of_ones_own() -> None:
    def loss(y, t):
        return nn.mse(y, t) * 2.0

    made = Model(Dense(1)).compile(
        TensorSpec(("batch", 8)), loss=loss, optimizer=SGD(lr=0.05)
    )
    t = X[:, :1].copy()
    losses = [made.train_one_batch(X, t) for _ in range(100)]
    assert losses[-1] < 0.01 * losses[0]


def test_a_weight_that_is_the_loss_itself_is_trained() -> None:
    class Alone(Layer):
        def apply(self, _):
            return self.weight("w", (1,), Constant(1.0))

    model = Model(Alone())
    model.compile(TensorSpec(("batch", 4)), loss=lambda y, _: y, optimizer=SGD(lr=0.5))
    x = np.ones((2, 4), np.float32)
    assert model.train_one_batch(x, x) == 1.0
    assert model.get_params()["w"] == 0.5


def test_a_key_compiles_one_model() -> None:
    key = random.key(0)
    Model(Dense(1)).compile(TensorSpec(("batch", 8)), key=key)
    with pytest.raises(KeyReuseError):
        Model(Dense(1)).compile(TensorSpec(("batch", 8)), key=key)


def test_what_was_not_compiled_is_not_trained() -> None:
    made = Model(Dense(1)).compile(TensorSpec(("batch", 8)), train=False)
    with pytest.raises(GraphError, match=r"not compiled for training"):
        made.train_one_batch(X, T)
    with pytest.raises(ArgumentError, match=r"there is no loss 'msa'"):
        Model(Dense(1)).compile(TensorSpec(("batch", 8)), loss="msa")
    with pytest.raises(ArgumentError, match=r"no metric 'acuracy'"):
        model().fit(X, T, metrics=["acuracy"], progress=False)


def test_sequences_of_any_length() -> None:
    made = Model(Sequential(Embedding(9, 16), Dense(9))).compile(
        TensorSpec(("batch", "time"), "int64"),
        loss=lambda y, t: nn.cross_entropy(
            nn.reshape(y, (-1, 9)), nn.reshape(t, (-1,))
        ),
    )
    for shape in ((2, 5), (3, 7), (2, 5)):
        ids = RNG.integers(0, 9, shape)
        assert np.isfinite(made.train_one_batch(ids, ids))
    assert len(made.trainer._programs) == 1
