"""Networks that are exported compute the same bits as in Python."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ArgumentError, GraphError
from tensorlang.export import export_graph, export_network, machines
from tensorlang.graph.specs import KeySpec, TensorSpec
from tensorlang.layers import LSTM, Conv2D, Dense, Flatten, Model, Sequential
from tensorlang.ops import math, nn, random


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def exported(lenet, tmp_path_factory):
    return lenet.export(tmp_path_factory.mktemp("lenet"), batch=[1, 24], name="lenet")


def test_lenet_is_one_function(lenet, exported, loaded, in_order):
    function = loaded(exported)
    for batch in (24, 1):
        x, y = normal(batch, 1, 28, 28), np.empty((batch, 10), np.float32)
        for threads in (None, in_order(2), in_order(5)):
            y[:] = np.nan
            assert function((batch,), x, y, threads=threads) == 0
            np.testing.assert_array_equal(y, lenet(x))
    x, y = normal(19, 1, 28, 28), np.empty((19, 10), np.float32)
    assert function((19,), x, y) == 0  # with the kernels for 24
    np.testing.assert_allclose(y, lenet(x), rtol=1e-4, atol=1e-5)
    for batch in (0, -1, 25, 1 << 40):
        assert function((batch,), x, y) == -1
    assert function.workspace(25) == function.workspace(-1) == (1 << 64) - 1


def test_lenet_in_c(lenet, exported, program):
    x, y = normal(24, 1, 28, 28), np.zeros((24, 10), np.float32)
    for threads, sanitized in ((1, False), (2, True)):
        _, found = program(exported, threads, x, y, sanitized=sanitized)
        np.testing.assert_array_equal(found, lenet(x))
    header = (exported.folder / "lenet.h").read_text()
    assert "or where batch >= 16 && batch <= 24" in header


def test_weights_are_those_of_the_export(lenet, exported, loaded):
    before = lenet.get_params()
    x, y = normal(24, 1, 28, 28), np.empty((24, 10), np.float32)
    expected = lenet(x)
    lenet.set_params({name: w * 2 for name, w in before.items()})
    try:
        assert loaded(exported)((24,), x, y) == 0
        np.testing.assert_array_equal(y, expected)
    finally:
        lenet.set_params(before)


def test_a_transformer_block(reader, loaded, in_order, tmp_path):
    model, ids = reader
    function = loaded(model.export(tmp_path, batch=[16], name="reader"))
    expected = model(ids)
    y = np.empty_like(expected)
    for threads in (None, in_order(2)):
        assert function((16,), ids, y, threads=threads) == 0
        np.testing.assert_array_equal(y, expected)
    assert function((16,), ids + 10**6, y) > 0  # the check of the embedding


def test_a_recurrent_layer(loaded, in_order, tmp_path):
    model = Model(Sequential(LSTM(6), Dense(3)))
    model.compile(TensorSpec(("batch", 5, 4)), train=False, key=random.key(1))
    function = loaded(model.export(tmp_path, batch=[2]))
    x = normal(2, 5, 4)
    y = np.empty_like(model(x))
    for threads in (None, in_order(2)):
        assert function((2,), x, y, threads=threads) == 0
        np.testing.assert_array_equal(y, model(x))


def test_every_batch_from_1_on(loaded, tmp_path):
    model = Model(Sequential(Dense(20, "relu"), Dense(3)))
    model.compile(TensorSpec(("batch", 7)), train=False, key=random.key(2))
    function = loaded(model.export(tmp_path, batch=40))
    for batch in (1, 2, 8, 9, 39, 40):
        x, y = normal(batch, 7), np.empty((batch, 3), np.float32)
        assert function((batch,), x, y) == 0
        np.testing.assert_allclose(y, model(x), rtol=1e-4, atol=1e-5)


def test_a_trained_model_without_frozen_weights(loaded, tmp_path):
    model = Model(Sequential(Dense(20, "relu"), Dense(3)))
    model.compile(TensorSpec(("batch", 7)), key=random.key(2))
    x = normal(16, 7)
    model.train_one_batch(x, np.zeros(16, np.int64))
    function, y = loaded(model.export(tmp_path, batch=[16])), np.empty((16, 3), "f4")
    assert function((16,), x, y) == 0
    np.testing.assert_array_equal(y, model(x))


def test_a_program_with_keys(loaded, in_order, tmp_path):
    def noisy(key, x):
        left, right = random.split(key)
        y = nn.dropout(x, 0.25, key=left)
        return y + random.normal(right, (4, 300)), math.exp(x)

    specs = (KeySpec(), TensorSpec((4, 300)))
    program = graph.trace(noisy, specs)
    function = loaded(export_graph(program, tmp_path, name="noisy"))
    x, key = normal(4, 300), random.key(11)
    words = np.array(key.words)
    expected = program(key, x)
    for threads in (None, in_order(3)):
        found = [np.empty((4, 300), np.float32) for _ in range(2)]
        assert function((), words, x, *found, threads=threads) == 0
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_levels_share_a_function(loaded, in_order, tmp_path):
    model = Model(Sequential(Conv2D(8, 3, "relu"), Flatten(), Dense(3)))
    model.compile(TensorSpec(("batch", 2, 8, 8)), train=False, key=random.key(2))
    on = machines(("x86-64-v3", "x86-64-v2"))
    function = loaded(model.export(tmp_path, batch=[5], on=on))
    x, y = normal(5, 2, 8, 8), np.empty((5, 3), np.float32)
    assert function((5,), x, y, threads=in_order(2)) == 0
    np.testing.assert_allclose(y, model(x), rtol=1e-4, atol=1e-5)


def test_mistakes_are_sentences(lenet, tmp_path):
    for batch in ((), 0, [4, -1]):
        with pytest.raises(ArgumentError, match="the largest batch"):
            lenet.export(tmp_path, batch=batch)
    with pytest.raises(ArgumentError, match="begins the names"):
        lenet.export(tmp_path, batch=1, name="no name")

    def counting(x):
        return graph.loop(3, lambda _, y: y + x, x)

    looping = graph.trace(counting, (TensorSpec((4,)),))
    with pytest.raises(GraphError, match="has no export: 'for' is not a kernel; loops"):
        export_graph(looping, tmp_path)
    assert import_module("tensorlang.export").export_network is export_network
