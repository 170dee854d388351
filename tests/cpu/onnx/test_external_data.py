"""External weights: written atomically, named by their content."""

import os

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, WeightError
from tensorlang.layers import Adam, BatchNorm, Dense, Dropout, Model, Sequential
from tensorlang.onnx import external_data
from tensorlang.ops import random

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("safetensors", reason="the extra onnx is not installed")

X = np.random.default_rng(0).normal(size=(8, 40)).astype(np.float32)
T = np.arange(8) % 3


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """As if a message held 4000 bytes."""
    monkeypatch.setattr(
        external_data.save, "__kwdefaults__", {"note": None, "limit": 4000}
    )


def model(seed=0):
    layers = Sequential(Dense(30, "relu"), BatchNorm(), Dropout(0.5), Dense(3))
    made = Model(layers).compile(("batch", 40), optimizer=Adam(), key=random.key(seed))
    made.train_one_batch(X, T)
    return made


def beside(folder):
    return sorted(path.name for path in folder.glob("*.data"))


def test_it_comes_back_and_runs_elsewhere(tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    made, path = model(), tmp_path / "net.onnx"
    made.save(path)
    assert len(beside(tmp_path)) == 1
    assert path.stat().st_size < made.get_params()["0.weight"].nbytes + 16_000
    proto = onnx.load(str(path), load_external_data=False)
    told = {t.name: t.data_location for t in proto.graph.initializer}
    assert told["0.weight"] == onnx.TensorProto.EXTERNAL
    assert told["0.bias"] == onnx.TensorProto.DEFAULT  # which is small
    again = Model.load(path)
    np.testing.assert_array_equal(again(X), made(X))
    assert again.train_one_batch(X, T) == made.train_one_batch(X, T)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options)
    wanted = Model.load(path, train=False)(X)
    np.testing.assert_allclose(session.run(["y0"], {"x0": X})[0], wanted, atol=1e-5)


def test_the_file_of_before_goes_when_the_new_one_stands(tmp_path) -> None:
    other = tmp_path / "net.more.onnx"
    model(1).save(other)
    kept = beside(tmp_path)
    made, path = model(), tmp_path / "net.onnx"
    made.save(path)
    first = beside(tmp_path)
    made.train_one_batch(X, T)
    made.save(path)
    assert len(beside(tmp_path)) == 2
    assert beside(tmp_path) != first
    assert set(kept) < set(beside(tmp_path))  # that of another model
    np.testing.assert_array_equal(Model.load(path)(X), made(X))
    Model.load(other)


@pytest.mark.parametrize("stage", [0, 1])
def test_a_save_that_fails_leaves_the_model_of_before(
    tmp_path, monkeypatch, stage
) -> None:
    made, path = model(), tmp_path / "net.onnx"
    made.save(path)
    wanted = made(X)
    made.train_one_batch(X, T)
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) > stage:
            raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        made.save(path)
    monkeypatch.undo()
    np.testing.assert_array_equal(Model.load(path)(X), wanted)


def test_another_length_is_refused(tmp_path) -> None:
    path = tmp_path / "net.onnx"
    model().save(path)
    proto = onnx.load(str(path), load_external_data=False)
    tensor = next(t for t in proto.graph.initializer if t.name == "0.weight")
    tensor.dims[0] = 20
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "net.safetensors").unlink()
    with pytest.raises(
        WeightError, match=r"'0.weight' is float32\[20, 40\], which are"
    ):
        Model.load(path)


def stored(tmp_path, *weights):
    """A file of a product with weights, which may be no model."""
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 40])
        for name in "xy"
    )
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], initializer=weights)
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("beside", [True, False])
def test_weights_of_one_name_are_refused(tmp_path, factor, large, beside) -> None:
    w = np.ones((40, 40) if large else (4, 4), np.float32)
    weights = [onnx.numpy_helper.from_array(n * w, "w") for n in (1, factor)]
    if beside:
        (tmp_path / "w.bin").write_bytes(w.tobytes())
        onnx.external_data_helper.set_external_data(weights[0], "w.bin")
        weights[0].ClearField("raw_data")
    with pytest.raises(ArgumentError, match="w initializer name is not unique"):
        Model.load(stored(tmp_path, *weights))


def length(weight):
    weight.raw_data = weight.raw_data[:-4]


def twice(weight):
    weight.float_data.extend([2.0] * 1600)


@pytest.mark.parametrize(
    ("harm", "said"),
    [(length, r"raw_data size \(6396 bytes\) is too small"), (twice, "only one value")],
)
def test_a_large_weight_whose_data_is_wrong(tmp_path, harm, said) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((40, 40), np.float32), "w")
    harm(weight)
    with pytest.raises(ArgumentError, match=f"is not an ONNX model: .*{said}"):
        Model.load(stored(tmp_path, weight))
