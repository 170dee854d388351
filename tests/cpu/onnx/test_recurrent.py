"""LSTM, GRU and RNN of PyTorch's exports and of ONNX's options, against onnxruntime."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.graph import Network, TensorSpec
from tensorlang.graph.networks.leaves import constant
from tensorlang.layers import Model
from tensorlang.ops import nn

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
RNG = np.random.default_rng(9)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def model_of(kind, *, direction, lengths, states, **attributes):
    """A file of one node, with weights of its own, and inputs for it."""
    count, size = 1 + (direction == "bidirectional"), 5
    helper, shape = onnx.helper, (6, 3, 4)
    rows = GATES[kind] * size
    weights = {
        "w": (count, rows, 4),
        "r": (count, rows, size),
        "b": (count, 2 * rows),
    }
    names = ["x", *weights, "lengths" if lengths else ""]
    given = {"x": RNG.normal(size=shape).astype(np.float32)}
    if lengths:
        given["lengths"] = np.array([6, 1, 4], np.int32)
    for name in ("h", "c")[: 1 + (kind == "LSTM")] if states else ():
        given[name] = RNG.normal(size=(count, 3, size)).astype(np.float32)
        names.append(name)
    outputs = ["y", "y_h", "y_c"][: 2 + (kind == "LSTM")]
    node = helper.make_node(
        kind, names, outputs, direction=direction, hidden_size=size, **attributes
    )
    types = helper.np_dtype_to_tensor_dtype
    ends = [
        [
            helper.make_tensor_value_info(n, types(a.dtype), a.shape)
            for n, a in given.items()
        ],
        [
            helper.make_tensor_value_info(n, 1, list("abcd"[: 4 if n == "y" else 3]))
            for n in outputs
        ],
    ]
    held = [
        onnx.numpy_helper.from_array(RNG.normal(size=s).astype(np.float32), n)
        for n, s in weights.items()
    ]
    made = helper.make_graph([node], "g", *ends, held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(made, opset_imports=opsets, ir_version=8), given


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize(
    "of",
    [
        ("LSTM", {}),
        ("GRU", {"linear_before_reset": 0}),
        ("GRU", {"linear_before_reset": 1}),
        ("RNN", {}),
    ],
)
def test_as_onnxruntime(tmp_path, of, direction, lengths, states) -> None:
    kind, attributes = of
    given = {"direction": direction, "lengths": lengths, "states": states}
    made, inputs = model_of(kind, **given, **attributes)
    onnx.save(made, tmp_path / "m.onnx")
    found = Model.load(tmp_path / "m.onnx", train=False)(*inputs.values())
    wanted = runtime.InferenceSession(tmp_path / "m.onnx").run(None, inputs)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, strict=True)


def test_weights_whose_size_is_open_are_packed_once() -> None:
    shapes = (2, 32, 2048), (2048, 512), (32, 512)
    x, r, first = (RNG.normal(size=s).astype(np.float32) / 64 for s in shapes)
    network = Network(
        lambda gates: nn.lstm(gates, constant(r), first, first)[0], TensorSpec(x.shape)
    )
    wanted, *_ = nn.lstm(x, r, first, first)
    np.testing.assert_allclose(network(x), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"]}),
        ("LSTM", {"input_forget": 1}),
        ("GRU", {"clip": 2.0}),
        ("RNN", {"activations": ["Affine"]}),
    ],
)
def test_what_is_refused(tmp_path, kind, attributes) -> None:
    given = {"direction": "forward", "lengths": False, "states": False}
    made, inputs = model_of(kind, **given, **attributes)
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(TensorlangError, match=f"{kind}.*is not supported"):
        Model.load(tmp_path / "m.onnx", train=False)(*inputs.values())
