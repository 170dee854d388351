"""Models as ONNX files: the same numbers in onnxruntime, the same bits when loaded."""

import json

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, GraphError, WeightError
from tensorlang.graph import TensorSpec, trace
from tensorlang.graph.networks.network import training
from tensorlang.layers import (
    SGD,
    Adam,
    AvgPool2D,
    BatchNorm,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    LayerNorm,
    MaxPool2D,
    Model,
    RMSNorm,
    Sequential,
)
from tensorlang.layers.initializers import HeNormal
from tensorlang.ops import math, nn, random

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("safetensors", reason="the extra onnx is not installed")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(16, 2, 12, 12)).astype(np.float32)
T = np.arange(16) % 10


def lenet(**options):
    layers = Sequential(
        Conv2D(6, 5, padding="same", activation="relu"),
        AvgPool2D(2),
        BatchNorm(),
        Conv2D(4, 3, "tanh", stride=2, padding=1),
        MaxPool2D(2, 1),
        Flatten(),
        Dropout(0.5),
        Dense(10, "gelu"),
        Dropout(0.2),
        LayerNorm(),
        Dense(10),
    )
    spec = TensorSpec(("batch", 2, 12, 12))
    return Model(layers).compile(spec, **({"optimizer": Adam(lr=0.01)} | options))


def session(path):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options)


def test_e_the_file_runs_in_onnxruntime(tmp_path) -> None:
    model = lenet()
    model.train_one_batch(X, T)
    model.save(tmp_path / "net.onnx")
    found = session(tmp_path / "net.onnx").run(["y0"], {"x0": X})[0]
    np.testing.assert_allclose(found, model(X), rtol=1e-4, atol=1e-5)


class Mixed(Layer):
    """Operators of arrays of different types, and a function of whole numbers."""

    def apply(self, x, ids):
        share = math.multiply(x, ids)
        chosen = math.where(math.greater(ids, 0), share, 0.5)
        return math.add(math.exp(math.negative(ids)), chosen)


def test_conversions_of_mixed_types_are_written(tmp_path) -> None:
    specs = TensorSpec(("batch", 3)), TensorSpec((3,), "i32")
    model = Model(Mixed()).compile(*specs, train=False)
    model.save(tmp_path / "net.onnx")
    x, ids = RNG.normal(size=(4, 3)).astype("f"), np.arange(3, dtype="i")
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"), full_check=True)
    found = session(tmp_path / "net.onnx").run(["y0"], {"x0": x, "x1": ids})[0]
    np.testing.assert_allclose(found, model(x, ids), rtol=1e-5)
    wanted = np.exp(-ids) + np.where(ids > 0, x * ids, 0.5)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


class Padded(Layer):
    """Padding with elements of the array, and negative padding."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def apply(self, x):
        whole = nn.pad(x, ((0, 0), (2, 1), (3, 0)), mode=self.mode)
        return nn.pad(whole, ((0, 0), (-1, 2), (1, -2)), 0.5)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_in_each_mode(tmp_path, mode) -> None:
    model = Model(Padded(mode)).compile(TensorSpec(("batch", 4, 5)), train=False)
    model.save(tmp_path / "net.onnx")
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    found = session(tmp_path / "net.onnx").run(["y0"], {"x0": x})[0]
    np.testing.assert_array_equal(found, model(x))


class Alone(Layer):
    """A convolution of one image."""

    def apply(self, x):
        return nn.conv2d(x, math.multiply(nn.reshape(x, (1, 1, 4, 5)), 0.5), padding=2)


def test_what_onnx_has_not_is_refused(tmp_path) -> None:
    model = Model(Padded("circular")).compile(TensorSpec((2, 4, 5)), train=False)
    with pytest.raises(GraphError, match="padding in mode 'circular' is not written"):
        model.save(tmp_path / "net.onnx")
    model = Model(Alone()).compile(TensorSpec((1, 4, 5)), train=False)
    with pytest.raises(GraphError, match="batches of images, not an image of shape"):
        model.save(tmp_path / "net.onnx")


class Masks(Layer):
    """Two dropouts and nothing else."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Dropout(0.3), Dropout(0.9)

    def apply(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_e_training_dropout_is_exact_to_the_bit(tmp_path, engine) -> None:
    model = Model(Masks()).compile(TensorSpec(("batch", 7)), train=False)
    model.save(tmp_path / "net.onnx")
    x = RNG.normal(size=(501, 7)).astype(np.float32)
    given = {
        "x0": x,
        "generator": np.asarray(random.key_data(random.key(5))),
        "training": np.array(True),
    }
    if engine == "onnxruntime":
        run = session(tmp_path / "net.onnx").run
    else:
        import onnx.reference

        run = onnx.reference.ReferenceEvaluator(str(tmp_path / "net.onnx")).run
    y, after = run(None, given)
    wanted, state = nn.dropout_train(x, random.key(5), 0.3)
    wanted, state = nn.dropout_train(wanted, state, 0.9)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(after, random.key_data(state))


def test_e_the_hash_is_plain_opset_18() -> None:
    from tensorlang.onnx.functions import functions

    (made,) = functions({"threefry2x32"})
    kinds = {node.op_type for node in made.node}
    assert kinds == {"Add", "BitShift", "BitwiseXor", "Constant", "Gather"}
    assert sum(node.op_type != "Constant" for node in made.node) == 122
    assert ("", 18) in [(o.domain, o.version) for o in made.opset_import]


def test_e_loading_goes_on_with_the_same_bits(tmp_path) -> None:
    first = lenet()
    for _ in range(10):
        first.train_one_batch(X, T)
    first.save(tmp_path / "net.onnx", extras={"epoch": 3, "best": [0.5, 0.25]})
    second = Model.load(tmp_path / "net.onnx")
    assert second.extras["epoch"] == 3
    assert second.extras["best"].tolist() == [0.5, 0.25]
    np.testing.assert_array_equal(first(X), second(X))
    wanted = [first.train_one_batch(X, T) for _ in range(5)]
    assert [second.train_one_batch(X, T) for _ in range(5)] == wanted
    states = second.get_states()
    for name, array in first.get_states().items():
        np.testing.assert_array_equal(array, states[name])


def test_100_steps_resumed_from_a_save_at_50_have_the_same_bits(tmp_path) -> None:
    layers = Sequential(Dense(16, "relu"), BatchNorm(), Dropout(0.3), Dense(10))
    x = X.reshape(16, -1)
    whole = Model(layers).compile(("batch", 288), optimizer=Adam(clip=1.0))
    for _ in range(50):
        whole.train_one_batch(x, T)
    whole.save(tmp_path / "net.onnx")
    for _ in range(50):
        whole.train_one_batch(x, T)
    resumed = Model.load(tmp_path / "net.onnx")
    for _ in range(50):
        resumed.train_one_batch(x, T)
    states = resumed.get_states()
    assert states["step"] == 100
    for name, array in whole.get_states().items():
        np.testing.assert_array_equal(array, states[name])


class Words(Layer):
    """What the other models have not."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = Embedding(9, 8), RMSNorm()
        self.inner = Dense(8, "silu", bias=None)

    def apply(self, ids):
        x = self.norm(self.table(ids))
        x = math.add(self.inner(x), x)
        scores = math.matmul(x, x, transpose_b=True)
        mixed = math.einsum("bij,bjk->bik", nn.softmax(math.multiply(scores, 0.5)), x)
        x = math.einsum("bij->bij", x)
        return math.mean(nn.concatenate([mixed, x], 2), 1)


def test_a_model_of_words_comes_back(tmp_path) -> None:
    model = Model(Words()).compile(TensorSpec(("batch", 5), "int64"), train=False)
    ids = RNG.integers(0, 9, (4, 5))
    model.save(tmp_path / "net.onnx")
    found = session(tmp_path / "net.onnx").run(None, {"x0": ids})[0]
    np.testing.assert_allclose(found, model(ids), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(Model.load(tmp_path / "net.onnx")(ids), model(ids))


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ((2, 6, 6), {}, r"not an image of shape \(2, 6, 6\)"),
        (("batch", 2, 6, 6), {"return_indices": True}, "without return_indices"),
    ],
)
def test_pooling_that_onnx_lacks_cannot_be_saved(
    tmp_path, images, options, message
) -> None:
    class Own(Layer):
        def apply(self, x):
            return nn.max_pool2d(x, 2, **options)

    model = Model(Own()).compile(TensorSpec(images), train=False)
    with pytest.raises(GraphError, match=message):
        model.save(tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_einsum_of_different_ellipses_cannot_be_saved(tmp_path) -> None:
    class Own(Layer):
        def apply(self, x, y):
            return math.einsum("...ij,...jk", x, y)

    model = Model(Own()).compile(TensorSpec((3, 4)), TensorSpec((2, 4, 5)), train=False)
    with pytest.raises(GraphError, match=r"'...' of 0 dimensions with '...' of 1"):
        model.save(tmp_path / "net.onnx")


def test_a_function_is_given_again(tmp_path) -> None:
    model = lenet(optimizer=SGD(lr=lambda step: 0.1 / (step + 1)))
    model.save(tmp_path / "net.onnx")
    with pytest.raises(ArgumentError, match=r"an? optimizer that is a function"):
        Model.load(tmp_path / "net.onnx", train=True)
    np.testing.assert_array_equal(Model.load(tmp_path / "net.onnx")(X), model(X))
    again = Model.load(tmp_path / "net.onnx", optimizer=SGD(lr=0.1))
    assert again.train_one_batch(X, T) == model.train_one_batch(X, T)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss", 5),
        ("loss", ["mse"]),
        ("optimizer", "sgd"),
        ("optimizer", [["name"]]),
        ("optimizer", {"name": "Optimizer"}),
        ("optimizer", {"name": "SGD", "rate": 1}),
        ("accumulate", "x"),
        ("autocast", ["int8"]),
        ("weights", 5),
        ("states", {"generator": 5}),
    ],
)
def test_a_note_that_is_damaged_is_refused(tmp_path, key, value) -> None:
    path = tmp_path / "net.onnx"
    Model(Dense(2)).compile(("batch", 3), optimizer=SGD()).save(path)
    saved = onnx.load(str(path))
    (note,) = saved.metadata_props
    note.value = json.dumps(json.loads(note.value) | {key: value})
    path.with_suffix(".safetensors").unlink()
    onnx.save(saved, str(path))
    said = r"net.onnx|there is no loss|accumulate of a trainer|autocast is"
    with pytest.raises((ArgumentError, GraphError), match=said):
        Model.load(path)


def without_weights(path):
    """The file alone, as it is given away: what it begins with stands in it, too."""
    path.with_suffix(".safetensors").unlink()
    return onnx.load(str(path))


def test_a_file_alone_goes_on_with_the_same_masks(tmp_path) -> None:
    path = tmp_path / "net.onnx"
    layers = Sequential(Dense(8), Dropout(0.5), Dense(10))
    first = Model(layers).compile(("batch", 288), optimizer=SGD(lr=0.1))
    x = X.reshape(16, -1)
    for _ in range(3):
        first.train_one_batch(x, T)
    first.save(path)
    without_weights(path)
    second = Model.load(path, train=True, optimizer=SGD(lr=0.1))
    np.testing.assert_array_equal(
        second.get_states()["state.generator"], first.get_states()["state.generator"]
    )
    wanted = [first.train_one_batch(x, T) for _ in range(3)]
    assert [second.train_one_batch(x, T) for _ in range(3)] == wanted


@pytest.mark.parametrize("words", [np.zeros(2, np.float32), np.zeros(3, np.uint32)])
def test_a_key_of_other_words_is_refused(tmp_path, words) -> None:
    path = tmp_path / "net.onnx"
    Model(Masks()).compile(("batch", 3), train=False).save(path)
    saved = without_weights(path)
    (held,) = (each for each in saved.graph.initializer if each.name == "generator")
    held.CopyFrom(onnx.numpy_helper.from_array(words, "generator"))
    onnx.save(saved, str(path))
    with pytest.raises(GraphError, match=r"'generator' is .*; a key has two words"):
        Model.load(path)


@pytest.mark.parametrize(
    ("name", "value"), [("keep", "half"), ("rate", "half"), ("limit", 3)]
)
def test_a_rate_that_is_damaged_is_refused(tmp_path, name, value) -> None:
    path = tmp_path / "net.onnx"
    Model(Masks()).compile(("batch", 3), train=False).save(path)
    saved = without_weights(path)
    node = next(each for each in saved.graph.node if each.op_type == "dropout_train")
    (old,) = (each for each in node.attribute if each.name == name)
    old.CopyFrom(onnx.helper.make_attribute(name, value))
    onnx.save(saved, str(path))
    with pytest.raises(GraphError, match=r"not a number|are not those of rate"):
        Model.load(path)


def test_the_sign_of_nan_is_saved_as_it_is(tmp_path) -> None:
    class Signs(Layer):
        def apply(self, x):
            return math.sign(x)

    path = tmp_path / "net.onnx"
    model = Model(Signs()).compile(("batch", 3), train=False)
    model.save(path)
    x = np.array([[np.nan, -2.0, 0.0]], np.float32)
    np.testing.assert_array_equal(session(path).run(None, {"x0": x})[0], model(x))
    np.testing.assert_array_equal(Model.load(path)(x), model(x))


@pytest.mark.parametrize("given", [{}, {"__metadata__": None}])
def test_states_that_do_not_say_of_which_save_they_are_are_refused(
    tmp_path, given
) -> None:
    lenet().save(tmp_path / "net.onnx")
    beside = tmp_path / "net.safetensors"
    data = beside.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    del head["__metadata__"]
    text = json.dumps(head | given).encode()
    beside.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    with pytest.raises(WeightError, match=r"another save|not a training state file"):
        Model.load(tmp_path / "net.onnx")


def test_states_of_another_save_are_refused(tmp_path) -> None:
    model = lenet()
    model.save(tmp_path / "a.onnx")
    model.train_one_batch(X, T)
    model.save(tmp_path / "b.onnx")
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(WeightError, match=r"belongs to another save"):
        Model.load(tmp_path / "a.onnx")


def test_states_that_do_not_fit_are_named(tmp_path) -> None:
    model = lenet()
    model.save(tmp_path / "net.onnx")
    with pytest.raises(WeightError, match=r"'optimizer.velocity.0.weight' is missing"):
        Model.load(tmp_path / "net.onnx", optimizer=SGD(momentum=0.9))


def test_nothing_is_written_by_halves(tmp_path, monkeypatch) -> None:
    from tensorlang.onnx import files

    model = lenet()
    model.save(tmp_path / "net.onnx")
    before = (tmp_path / "net.onnx").read_bytes()
    model.train_one_batch(X, T)

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        model.save(tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx").read_bytes() == before
    once = iter([None])
    monkeypatch.setattr(files.os, "fsync", lambda _: next(once))
    with pytest.raises(StopIteration):  # the second of two files
        model.save(tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx").read_bytes() == before
    Model.load(tmp_path / "net.onnx")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["net.onnx", "net.safetensors"]


def test_what_onnx_has_not_is_named(tmp_path) -> None:
    sorted_ = Model(math.sort).compile(TensorSpec(("batch", 3)), train=False)
    with pytest.raises(GraphError, match=r"has math.sort, which cannot be written"):
        sorted_.save(tmp_path / "net.onnx")

    other = Model(lambda x: x * 2.0 if training() else x)
    other.compile(TensorSpec(("batch", 3)), train=False)
    with pytest.raises(GraphError, match=r"training differs from inference"):
        other.save(tmp_path / "net.onnx")
    with pytest.raises(ArgumentError, match=r"saved as a file.onnx"):
        other.save(tmp_path / "net.pt")


def bent(x):
    """What is written with attributes and inputs of its own."""
    y = math.clip(nn.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), 0.5), -0.5, None)
    least = math.argmin(nn.batch_flatten(x), 1, True)
    inside = math.logical_and(math.greater(x, 0.0), math.less(x, 1.0))
    kept = math.where(math.logical_or(inside, math.isnan(x)), x, x * 0.1)
    return y, math.argmax(x, -1), least, kept, nn.global_max_pool(x)


def test_these_operators_come_back_and_run_elsewhere(tmp_path) -> None:
    made = Model(bent).compile(TensorSpec(("batch", 2, 12, 12)), train=False)
    made.save(tmp_path / "net.onnx")
    wanted = made(X)
    found = session(tmp_path / "net.onnx").run(None, {"x0": X})
    again = Model.load(tmp_path / "net.onnx")(X)
    for each, there, here in zip(wanted, found, again, strict=True):
        np.testing.assert_allclose(there, each, rtol=1e-6)
        np.testing.assert_array_equal(here, each)


def test_a_transposed_convolution_comes_back(tmp_path) -> None:
    class Enlarged(Layer):
        def apply(self, x):
            w = self.weight("weight", (2, 3, 3, 3), HeNormal())
            return nn.conv2d_transpose(x, w, None, 2, 1, 1, activation="relu")

    made = Model(Enlarged()).compile(TensorSpec(("batch", 2, 12, 12)), train=False)
    made.save(tmp_path / "net.onnx")
    wanted = made(X)
    assert wanted.shape == (16, 3, 24, 24)
    np.testing.assert_array_equal(Model.load(tmp_path / "net.onnx")(X), wanted)
    found = session(tmp_path / "net.onnx").run(None, {"x0": X})[0]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_states_of_bfloat16_come_back(tmp_path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model = Model(Sequential(Dense(8, "relu"), BatchNorm(), Dense(10))).compile(
        TensorSpec(("batch", 6), "bfloat16"), optimizer=Adam()
    )
    x = RNG.normal(size=(16, 6)).astype(ml_dtypes.bfloat16)
    model.train_one_batch(x, T)
    model.save(tmp_path / "net.onnx")
    again = Model.load(tmp_path / "net.onnx")
    assert again.train_one_batch(x, T) == model.train_one_batch(x, T)
    states = again.get_states()
    for name, array in model.get_states().items():
        np.testing.assert_array_equal(array, states[name])


def test_a_summary_of_a_file_counts_its_weights(tmp_path) -> None:
    model = lenet()
    model.save(tmp_path / "net.onnx")
    again = Model.load(tmp_path / "net.onnx").summary()
    total = f"{sum(array.size for array in model.get_params().values()):,}"
    assert total in again
    assert total in model.summary()
    assert all(path.rpartition(".")[0] in again for path in model.get_params())


def cut(x):
    """Slices of all kinds: from both ends, of open sizes, backwards and in steps."""
    return x[:, 0], x[:, -1, 1:], x[:, 1:-1], x[:, ::-1, ::3], x[..., None, 5:1:-2]


@pytest.mark.parametrize("extent", [5, "time"])
def test_slices_come_back_and_run_elsewhere(tmp_path, extent) -> None:
    made = Model(cut).compile(TensorSpec(("batch", extent, 8)), train=False)
    made.save(tmp_path / "net.onnx")
    x = RNG.normal(size=(3, 5, 8)).astype(np.float32)
    found = session(tmp_path / "net.onnx").run(None, {"x0": x})
    again = Model.load(tmp_path / "net.onnx")(x)
    for wanted, there, here in zip(cut(x), found, again, strict=True):
        np.testing.assert_array_equal(there, wanted)
        np.testing.assert_array_equal(here, wanted)


def joined(x):
    """Parts and stacks."""
    first, second, _ = nn.split(x, (2, 5, 1), -1)
    return first, nn.stack([second, second * 2.0], 1), *nn.split(x, 1, 2)


def test_parts_and_stacks_come_back_and_run_elsewhere(tmp_path) -> None:
    made = Model(joined).compile(TensorSpec(("batch", 5, 8)), train=False)
    made.save(tmp_path / "net.onnx")
    x = RNG.normal(size=(3, 5, 8)).astype(np.float32)
    found = session(tmp_path / "net.onnx").run(None, {"x0": x})
    again = Model.load(tmp_path / "net.onnx")(x)
    for wanted, there, here in zip(made(x), found, again, strict=True):
        np.testing.assert_array_equal(there, wanted)
        np.testing.assert_array_equal(here, wanted)


def test_the_gradient_of_a_slice_is_a_pad_in_a_file(tmp_path) -> None:
    def back(x):
        return nn.slice_grad(x[:, 1:-1, 2:], x, (None, 1, 2), (None, -1))

    made = Model(back).compile(TensorSpec((3, 5, 8)), train=False)
    made.save(tmp_path / "net.onnx")
    x = RNG.normal(size=(3, 5, 8)).astype(np.float32)
    found = session(tmp_path / "net.onnx").run(None, {"x0": x})[0]
    np.testing.assert_array_equal(found, made(x))
    assert (found[:, 1:-1, 2:] == x[:, 1:-1, 2:]).all()


def test_slices_whose_bounds_depend_on_data_are_refused(tmp_path) -> None:
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[4] x, int64[2, 2] all) => (float[n] y) {
        start = ReduceMax <axes = [0, 1], keepdims = 0> (all)
        end = Constant <value = int64[1] {4}> ()
        y = Slice(x, start, end)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    with pytest.raises(GraphError, match=r"'starts' depends on data; make it const"):
        Model.load(tmp_path / "net.onnx")


class Deep(Layer):
    def apply(self, x):
        for _ in range(400):
            x = math.negative(x)
        return x


def test_a_deep_network_is_saved(tmp_path) -> None:
    model, path = Model(Deep()).compile(("batch", 3), train=False), tmp_path / "m.onnx"
    model.save(path)
    x = X[0, 0, :, :3]
    np.testing.assert_array_equal(Model.load(path)(x), x)


@pytest.mark.parametrize("value", [None, 3, nn.relu, "graph"])
def test_what_is_no_network_is_not_written(value, tmp_path):
    from tensorlang.onnx import model_of, save

    if value == "graph":
        value = trace(nn.relu, [TensorSpec((2, 3), "float32")])
    for write in (model_of, lambda it: save(it, tmp_path / "net.onnx")):
        with pytest.raises(
            GraphError, match=r"a graph\.Network is written as ONNX, not"
        ):
            write(value)


@pytest.mark.parametrize("activation", [None, "relu", "relu6"])
def test_a_convolution_with_an_addend_is_written_as_three_nodes(
    tmp_path, activation
) -> None:
    specs = [TensorSpec((2, 3, 5, 5)), TensorSpec((2, 4, 5, 5))]
    w = np.random.default_rng(1).normal(size=(4, 3, 1, 1)).astype(np.float32)

    def block(x, more):
        return nn.conv2d(x, w, activation=activation, addend=more)

    model = Model(block).compile(*specs, train=False)
    arrays = [
        4 * np.random.default_rng(1).normal(size=spec.shape).astype(np.float32)
        for spec in specs
    ]
    model.save(tmp_path / "net.onnx")
    again = Model.load(tmp_path / "net.onnx")(*arrays)
    np.testing.assert_allclose(again, model(*arrays), atol=1e-5)
