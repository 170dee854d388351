"""LSTM and GRU against PyTorch: results, training steps, lengths, and saved files."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph import TensorSpec
from tensorlang.layers import GRU, LSTM, SGD, Dense, Layer, Model, Sequential
from tensorlang.ops import find, nn

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(8)
KINDS = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU}


class WithLengths(Layer):
    """A layer of inputs and their lengths."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def apply(self, x, lengths):
        return self.inner(x, lengths)


def normal(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


def in_torch(kind, model, path, width, size, **options):
    """PyTorch's layer with the weights of ours."""
    made = KINDS[kind](width, size, batch_first=True, **options)
    weights = model.get_params()
    for name, value in made.named_parameters():
        value.data = torch.tensor(weights[path + name.replace("_l0", "")])
    return made


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "length"), [(3, 5), (1, 1), (2, 30)])
def test_of_sequences_of_several_lengths(kind, two, batch, length) -> None:
    layer = WithLengths(kind(6, bidirectional=two))
    specs = TensorSpec(("b", length, 4)), TensorSpec(("b",), "int64")
    model = Model(layer).compile(*specs, train=False)
    theirs = in_torch(kind, model, "inner.", 4, 6, bidirectional=two)
    x, lengths = normal(batch, length, 4), RNG.integers(1, length + 1, batch)
    pack, unpack = (
        torch.nn.utils.rnn.pack_padded_sequence,
        torch.nn.utils.rnn.pad_packed_sequence,
    )
    packed = pack(torch.tensor(x), torch.tensor(lengths), True, enforce_sorted=False)
    wanted, _ = unpack(theirs(packed)[0], batch_first=True, total_length=length)
    np.testing.assert_allclose(
        model(x, lengths), wanted.detach().numpy(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("returns", ["all", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_steps_and_files(kind, returns, tmp_path) -> None:
    layers = Sequential(kind(6, bidirectional=True, returns=returns), Dense(3))
    model = Model(layers).compile(
        TensorSpec(("batch", 7, 4)), loss="mse", optimizer=SGD(lr=0.1)
    )
    theirs = in_torch(kind, model, "0.", 4, 6, bidirectional=True)
    head = torch.nn.Linear(12, 3)
    for name, value in head.named_parameters():
        value.data = torch.tensor(model.get_params()[f"1.{name}"])
    steps = torch.optim.SGD([*theirs.parameters(), *head.parameters()], lr=0.1)
    for batch in (5, 2, 5):
        x = normal(batch, 7, 4)
        hidden, last = theirs(torch.tensor(x))
        if returns == "last":
            ends = last[0] if kind is LSTM else last
            hidden = torch.cat([*ends], -1)
        y = head(hidden)
        truth = normal(*y.shape)
        loss = model.train_one_batch(x, truth)
        wanted = torch.nn.functional.mse_loss(y, torch.tensor(truth))
        steps.zero_grad()
        wanted.backward()
        steps.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-5)
    for name, value in theirs.named_parameters():
        mine = model.get_params()["0." + name.replace("_l0", "")]
        np.testing.assert_allclose(mine, value.detach().numpy(), rtol=0, atol=1e-6)
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    model.save(tmp_path / "m.onnx")
    again = Model.load(tmp_path / "m.onnx", train=False)
    np.testing.assert_array_equal(again(x), model(x))
    runtime = pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    given = {session.get_inputs()[0].name: x}
    np.testing.assert_allclose(session.run(None, given)[0], model(x), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_options_that_do_not_fit(kind) -> None:
    with pytest.raises(ArgumentError, match="'all' or 'last'"):
        kind(3, returns="first")
    with pytest.raises(ArgumentError, match="size of"):
        kind(0)
    with pytest.raises(ShapeError, match="batch, length, in"):
        Model(kind(3)).compile(TensorSpec(("b", 4)))


@pytest.mark.parametrize("kind", KINDS)
def test_any_length(kind) -> None:
    varying = TensorSpec(("b", "n", 4))
    model = Model(kind(3)).compile(varying, loss="mse", optimizer=SGD(lr=0.1))
    theirs = in_torch(kind, model, "", 4, 3)
    steps = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for length in (2, 5):
        x, truth = normal(2, length, 4), normal(2, length, 3)
        wanted, _ = theirs(torch.tensor(x))
        np.testing.assert_allclose(model(x), wanted.detach().numpy(), atol=1e-6)
        loss = torch.nn.functional.mse_loss(wanted, torch.tensor(truth))
        assert model.train_one_batch(x, truth) == pytest.approx(loss.item(), rel=1e-5)
        steps.zero_grad()
        loss.backward()
        steps.step()
    for name, value in theirs.named_parameters():
        mine = model.get_params()[name.replace("_l0", "")]
        np.testing.assert_allclose(mine, value.detach().numpy(), rtol=0, atol=1e-6)


def test_narrow_products_take_a_known_length() -> None:
    model = Model(LSTM(3)).compile(
        TensorSpec(("b", "n", 4)),
        loss="mse",
        optimizer=SGD(lr=0.1),
        autocast="bfloat16",
    )
    with pytest.raises(ShapeError, match="known length"):
        model.train_one_batch(normal(2, 5, 4), normal(2, 5, 3))


@pytest.mark.parametrize("order", ["ifgo", "iofg"])
@pytest.mark.parametrize("peeps", [False, True])
@pytest.mark.parametrize(
    ("dtype", "epsilon"), [("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2)]
)
def test_an_lstm_cell(dtype, epsilon, peeps, order) -> None:
    for rows, size in ((3, 5), (0, 4), (2, 64)):
        arrays = [normal(rows, 4 * size, dtype=dtype), normal(rows, size, dtype=dtype)]
        arrays += [normal(3 * size, dtype=dtype)] if peeps else []
        wide = [torch.tensor(a.astype(float), requires_grad=True) for a in arrays]
        gate = dict(zip(order, wide[0].split(size, 1), strict=True))
        p = dict(zip("iof", wide[2].split(size) if peeps else (0, 0, 0), strict=True))
        state = (gate["f"] + p["f"] * wide[1]).sigmoid() * wide[1]
        state = state + (gate["i"] + p["i"] * wide[1]).sigmoid() * gate["g"].tanh()
        h = (gate["o"] + p["o"] * state).sigmoid() * state.tanh()
        dys = [normal(rows, size, dtype=dtype) for _ in range(2)]
        torch.autograd.backward(
            [h, state], [torch.tensor(d.astype(float)) for d in dys]
        )
        options = {} if peeps else {"peepholes": None}
        made = nn.lstm_cell(*arrays, order=order)
        slopes = find("nn.lstm_cell_grad")(*dys, *arrays, **options, order=order)
        wanted = [h.detach(), state.detach(), *(w.grad for w in wide)]
        for mine, right in zip((*made, *slopes), wanted, strict=True):
            assert mine.dtype == dtype
            np.testing.assert_allclose(
                mine.astype(float), right.numpy(), rtol=0, atol=4 * epsilon
            )
    with pytest.raises(ShapeError, match=r"\[batch, 4 \* size\]"):
        nn.lstm_cell(arrays[1], arrays[1])
    with pytest.raises(ShapeError, match="peepholes have shape"):
        nn.lstm_cell(*arrays[:2], arrays[1][0])
