"""Files of strangers: PyTorch's exports, data outside of the file, what we have not."""

import numpy as np
import pytest

from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    ShapeError,
    TensorlangError,
    WeightError,
)
from tensorlang.layers import SGD, Model
from tensorlang.ops import nn, random

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")

RNG = np.random.default_rng(4)


def network(torch):
    layers = torch.nn
    torch.manual_seed(0)
    return layers.Sequential(
        layers.Conv2d(1, 6, 5, padding=2),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.BatchNorm2d(6),
        layers.Conv2d(6, 4, 3, stride=2),
        layers.GELU(),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Linear(36, 12),
        layers.LayerNorm(12),
        layers.Linear(12, 3),
        layers.Softmax(dim=1),
    )


@pytest.mark.parametrize("dynamo", [False, True])
def test_what_pytorch_exports_runs_on_our_operators(tmp_path, dynamo) -> None:
    torch = pytest.importorskip("torch")
    if dynamo:
        pytest.importorskip("onnxscript")
    made = network(torch).eval()
    x = torch.randn(4, 1, 16, 16)
    path = tmp_path / "net.onnx"
    sizes = {"input": {0: "batch"}}
    given = {"dynamic_axes": sizes, "input_names": ["input"]}
    if dynamo:
        batch = torch.export.Dim("batch", min=2, max=64)
        given = {"dynamic_shapes": ({0: batch},), "external_data": True}
    torch.onnx.export(made, (x,), str(path), dynamo=dynamo, **given)
    model = Model.load(path)
    for batch in (4, 7):
        x = torch.randn(batch, 1, 16, 16)
        with torch.no_grad():
            wanted = made(x).numpy()
        np.testing.assert_allclose(model(x.numpy()), wanted, rtol=1e-4, atol=1e-6)


def written(tmp_path, text):
    from onnx import parser

    model = parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)
    onnx.save(model, str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


TWO = """main (float[N, 4] x) => (float[N, 4] y) {
  rate = Constant <value_float = 0.5> ()
  on = Constant <value = bool {1}> ()
  a = Dropout(x, rate, on)
  b = Relu(a)
  y = Dropout(b, rate, on)
}"""


def test_a_dropout_gets_keys_by_splitting_one_that_is_held(tmp_path) -> None:
    model = Model.load(written(tmp_path, TWO), train=True, loss="mse")
    x = RNG.normal(size=(40, 4)).astype(np.float32)
    np.testing.assert_array_equal(model(x), np.maximum(x, 0))  # in use, nothing drops
    words = model.network.states["generator"].copy()
    outputs = model.trainer.train_minibatch(x, x)[1].copy()
    held, first = random.split(random.wrap_key_data(words, impl="threefry2x32"))
    held, second = random.split(held)
    wanted = nn.dropout(nn.relu(nn.dropout(x, 0.5, key=first)), 0.5, key=second)
    np.testing.assert_array_equal(outputs, wanted)
    np.testing.assert_array_equal(
        model.network.states["generator"], random.key_data(held)
    )


def test_a_strangers_dropout_is_saved_and_trains_on_the_same(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 2)
    )
    torch.onnx.export(
        net.train(),
        (torch.randn(3, 4),),
        str(tmp_path / "net.onnx"),
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    model = Model.load(tmp_path / "net.onnx", train=True, optimizer=SGD(lr=0.1))
    x = RNG.normal(size=(32, 4)).astype(np.float32)
    t = np.arange(32) % 2
    model.train_one_batch(x, t)
    assert "generator" in model.network.states
    model.save(tmp_path / "own.onnx")
    again = Model.load(tmp_path / "own.onnx", train=True, optimizer=SGD(lr=0.1))
    np.testing.assert_array_equal(again(x), model(x))
    for _ in range(3):  # each draws another mask
        assert again.train_one_batch(x, t) == model.train_one_batch(x, t)
    for name, state in model.get_states().items():
        np.testing.assert_array_equal(again.get_states()[name], state, name)


def test_a_strangers_model_learns(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    made = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    )
    path = str(tmp_path / "net.onnx")
    torch.onnx.export(
        made,
        (torch.randn(3, 4),),
        path,
        dynamo=False,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    model = Model.load(path, train=True, optimizer=SGD(lr=0.5))
    x = RNG.normal(size=(64, 4)).astype(np.float32)
    t = (x[:, 0] > 0).astype(np.int64)
    losses = [model.train_one_batch(x, t) for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]
    assert set(model.get_params()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_operators_that_we_have_not_are_named(tmp_path) -> None:
    path = written(
        tmp_path,
        "m (float[N] x) => (float[N] y) { a = Det(x) b = Multinomial(a) y = Abs(b) }",
    )
    with pytest.raises(GraphError, match=r"unsupported operators: Det, Multinomial"):
        Model.load(path)


def test_no_model(tmp_path) -> None:
    with pytest.raises(ArgumentError, match=r"there is no such file"):
        Model.load(tmp_path / "none.onnx")
    (tmp_path / "net.onnx").write_bytes(b"\x08\xff nothing")
    with pytest.raises(ArgumentError, match=r"is not an ONNX model"):
        Model.load(tmp_path / "net.onnx")


@pytest.mark.parametrize("name", [b"Relu", b"batch", b"weight", b"result", b"outer"])
def test_names_that_are_no_text(tmp_path, name) -> None:
    path = written(
        tmp_path,
        "outer (float[batch, 4] x) => (float[batch, 4] result) "
        "<float[4] weight = {1, 2, 3, 4}> { y = Mul(x, weight) result = Relu(y) }",
    )
    data = path.read_bytes()
    assert name in data
    path.write_bytes(data.replace(name, b"\x80" + name[1:]))
    with pytest.raises(TensorlangError, match=r"not UTF-8: b'\\x80|decode byte 0x80"):
        Model.load(path)


def test_an_empty_input_of_no_memory(tmp_path) -> None:
    path = written(
        tmp_path, "m (float[0, 9223372036854775807] x) => (float[N] y) { y = Sign(x) }"
    )
    with pytest.raises(ShapeError, match=r"no memory holds .* input 'x' of shape"):
        Model.load(path)


@pytest.mark.parametrize("of", ["x", "s"])
def test_more_dimensions_than_arrays_have(tmp_path, of) -> None:
    ones = ", ".join(["1"] * 65)
    path = written(
        tmp_path,
        f"m (float[{ones if of == 'x' else 4}] x) => (float[N] y) "
        f"<int64[65] s = {{{ones}}}> {{ e = Expand(x, s) y = Abs(e) }}",
    )
    with pytest.raises(ShapeError, match=r"6[56] dimensions"):
        Model.load(path)


def outside(tmp_path, location, length=16):
    """A model whose weight says that it stands in another file."""
    folder = tmp_path / "model"
    folder.mkdir()
    path = written(
        folder,
        "m (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> "
        "{ y = Mul(x, w) }",
    )
    model = onnx.load(str(path))
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    said = {"location": location, "offset": "4", "length": str(length)}
    del tensor.external_data[:]
    for key, value in said.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


DATA = np.arange(5, dtype=np.float32).tobytes()


def test_data_beside_the_file_is_read(tmp_path) -> None:
    path = outside(tmp_path, "data.bin")
    (path.parent / "data.bin").write_bytes(DATA)
    found = Model.load(path)(np.ones((1, 4), np.float32))
    assert found.tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("path", [5, b"net.onnx", ["net.onnx"], "n" * 5000])
def test_what_is_no_path(path) -> None:
    with pytest.raises(ArgumentError, match=r"is not a file path"):
        Model.load(path)


@pytest.mark.parametrize("largest", [0, -1, "5", 1.5])
def test_what_is_no_limit(tmp_path, largest) -> None:
    with pytest.raises(ArgumentError, match=r"is not a number of bytes"):
        Model.load(tmp_path / "net.onnx", largest=largest)


@pytest.mark.parametrize("location", ["../data.bin", "a/../../data.bin", "/", ""])
def test_data_never_leaves_the_folder(tmp_path, location) -> None:
    path = outside(tmp_path, location)
    (tmp_path / "data.bin").write_bytes(DATA)
    with pytest.raises((WeightError, ArgumentError)):
        Model.load(path)


def test_data_behind_a_link_is_not_read(tmp_path) -> None:
    path = outside(tmp_path, "data.bin")
    (tmp_path / "secret").write_bytes(DATA)
    (path.parent / "data.bin").symlink_to(tmp_path / "secret")
    with pytest.raises((WeightError, ArgumentError), match=r"not a regular file"):
        Model.load(path)
    (path.parent / "data.bin").unlink()
    (path.parent / "real.bin").write_bytes(DATA)
    (path.parent / "data.bin").symlink_to(path.parent / "real.bin")
    with pytest.raises(WeightError, match=r"not a regular file"):
        Model.load(path)


def test_data_is_named_from_the_folder(tmp_path) -> None:
    place = tmp_path / "model" / "data.bin"
    path = outside(tmp_path, str(place))
    place.write_bytes(DATA)
    with pytest.raises(WeightError, match=r"not a regular file"):
        Model.load(path)


def test_data_that_ends_before_is_refused(tmp_path) -> None:
    path = outside(tmp_path, "data.bin", length=20)
    (path.parent / "data.bin").write_bytes(DATA)
    with pytest.raises(WeightError, match=r"which ends before"):
        Model.load(path)


@pytest.mark.parametrize("dynamo", [False, True])
def test_states_of_an_open_batch_and_masks_of_attention(tmp_path, dynamo) -> None:
    torch = pytest.importorskip("torch")
    if dynamo:
        pytest.importorskip("onnxscript")

    class Net(torch.nn.Module):
        def forward(self, x):
            held = torch.zeros(x.shape[0], 4), torch.ones(x.shape[0], 4)
            for at in range(3):
                held = torch.tanh(x[:, at] + held[0]), held[1] + held[0]
            seen, heads = torch.nn.functional.scaled_dot_product_attention, x[:, None]
            found = seen(heads, heads, heads, is_causal=True)
            return held[0] * held[1] + found[:, 0, 1]

    made, x, path = Net(), torch.randn(5, 3, 4), tmp_path / "net.onnx"
    given = {"input_names": ["input"], "dynamic_axes": {"input": {0: "batch"}}}
    if dynamo:
        given = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
    torch.onnx.export(made, (x,), str(path), dynamo=dynamo, **given)
    model = Model.load(path)
    for rows in (5, 2):
        wanted = made(x[:rows]).numpy()
        np.testing.assert_allclose(model(x[:rows].numpy()), wanted, 1e-4, 1e-6)


def test_a_strangers_batch_norms_train_as_they_did(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8),
        torch.nn.BatchNorm1d(8, momentum=0.2, eps=1e-3),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 2),
        torch.nn.BatchNorm1d(2),
    )
    path = str(tmp_path / "net.onnx")
    torch.onnx.export(
        net.train(),
        (torch.randn(5, 4),),
        path,
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    started = {name: v.clone() for name, v in net.state_dict().items()}
    model = Model.load(path, train=True, loss="mse", optimizer=SGD(lr=0.1))
    x = RNG.normal(size=(32, 4)).astype(np.float32)
    t = RNG.normal(size=(32, 2)).astype(np.float32)
    net.load_state_dict(started)
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        loss = torch.nn.functional.mse_loss(
            net(torch.from_numpy(x)), torch.from_numpy(t)
        )
        steps.zero_grad()
        loss.backward()
        steps.step()
        np.testing.assert_allclose(model.train_one_batch(x, t), loss.item(), rtol=1e-4)
    for name in ("1.running_mean", "1.running_var", "4.running_mean"):
        theirs = net.state_dict()[name].numpy()
        np.testing.assert_allclose(model.network.states[name], theirs, rtol=1e-4)
        assert name not in model.get_params()
    wanted = net.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "own.onnx")
    again = Model.load(tmp_path / "own.onnx", train=True, optimizer=SGD(lr=0.1))
    np.testing.assert_array_equal(again(x), model(x))
    assert again.train_one_batch(x, t) == model.train_one_batch(x, t)


def test_moments_that_are_computed_are_refused(tmp_path) -> None:
    path = written(
        tmp_path,
        """m (float[N, 3] x, float[3] m) => (float[N, 3] y)
        <float[3] w = {1, 1, 1}, float[3] b = {0, 0, 0}> {
          v = Abs(m)
          y = BatchNormalization<training_mode = 1>(x, w, b, m, v)
        }""",
    )
    with pytest.raises(GraphError, match=r"moments must be initializers"):
        Model.load(path, train=True)


def of_a_size(tmp_path, lines):
    return written(
        tmp_path,
        f"""m (float[N, 4] x, int64 k) => (float[N, 4] y) {{
          zero = Constant <value = int64 {{0}}> ()
          two = Constant <value = int64 {{2}}> ()
          four = Constant <value = int64[1] {{4}}> ()
          s = Shape(x)  n = Gather(s, zero)
          {lines}
        }}""",
    )


@pytest.mark.parametrize(
    "lines",
    [
        "m = Mul(n, two)  size = Div(m, two)",
        "m = Sub(two, n)  size = Sub(two, m)",
        "same = Equal(n, n)  size = Where(same, n, two)",
    ],
)
def test_a_size_is_computed_with_as_a_number(tmp_path, lines) -> None:
    lines += """
    row = Unsqueeze(size, zero)  shape = Concat<axis = 0>(row, four)
    y = Reshape(x, shape)"""
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(Model.load(of_a_size(tmp_path, lines))(x, 1), x)


@pytest.mark.parametrize("line", ["z = Div(n, k)", "z = Equal(k, n)"])
def test_an_open_size_beside_data_is_known_at_calls(tmp_path, line) -> None:
    path = of_a_size(tmp_path, f"{line}  y = Relu(x)")
    with pytest.raises(GraphError, match=r"symbolic size is combined with data"):
        Model.load(path, train=True)
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(Model.load(path)(x, 1), np.maximum(x, 0))


def test_images_of_any_size_through_strides(tmp_path) -> None:
    path = written(
        tmp_path,
        """m (float[N, 1, "?", "?"] x) => (float[N, 1, H, W] y)
        <float[1, 1, 1, 1] w = {2}> { y = Conv<strides = [2, 2]>(x, w) }""",
    )
    model = Model.load(path)
    for shape in ((2, 1, 7, 4), (1, 1, 1, 9), (2, 1, 7, 4)):
        x = RNG.normal(size=shape).astype(np.float32)
        np.testing.assert_array_equal(model(x), 2 * x[:, :, ::2, ::2])
    model.set_params({"w": np.full((1, 1, 1, 1), 3, np.float32)})
    x = RNG.normal(size=(1, 1, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(model(x), 3 * x[:, :, ::2, ::2], rtol=1e-6)
    with pytest.raises(DTypeError, match="input 'x' is"):
        model(x[0])


def test_a_node_that_fits_no_size_is_refused_at_once(tmp_path) -> None:
    path = written(
        tmp_path,
        """m (float[N, 1, H, W] x) => (float[N, 1, H, W] y)
        <float[1, 2, 1, 1] w = {2, 2}> { y = Conv<strides = [2, 2]>(x, w) }""",
    )
    with pytest.raises(ShapeError, match="Conv"):
        Model.load(path)


def test_a_range_begins_at_a_weight_of_one_number(tmp_path) -> None:
    path = written(
        tmp_path,
        """m (float[4] x) => (float[4] y) <float[1] w = {1}> {
          limit = Constant <value = float {5}> ()
          delta = Constant <value = float {1}> ()
          z = Range(w, limit, delta)  y = Mul(x, z)
        }""",
    )
    y = Model.load(path)(np.ones(4, np.float32))
    np.testing.assert_array_equal(y, np.arange(1, 5, dtype=np.float32))
