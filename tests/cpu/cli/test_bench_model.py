"""`tlang bench --model`: the whole network, and its layers."""

import re

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("safetensors", reason="the extra onnx is not installed")

from tensorlang.graph import TensorSpec
from tensorlang.graph.execution.layer_times import layer_times
from tensorlang.graph.networks.context import Context
from tensorlang.layers import Dense, Embedding, Model, Sequential


@pytest.fixture
def path(tmp_path):
    model = Model(Sequential(Dense(9, "relu"), Dense(9, "relu"), Dense(3)))
    model.compile(TensorSpec(("batch", 9)), train=False)
    model.save(tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_layers_that_are_equal_are_counted_together(tlang, path) -> None:
    result = tlang("bench", "--model", path, "--batch", "5", "--rounds", "2")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    rows = [re.split(" {2,}", line) for line in lines if line.startswith("nn.dense")]
    counts = {row[0]: row[1] for row in rows}
    assert counts == {
        "nn.dense f32[batch, 9], f32[9, 9], f32[9], relu": "2",
        "nn.dense f32[batch, 9], f32[3, 9], f32[3]": "1",
    }
    assert any(line.startswith("tensorlang") for line in lines)


def test_beside_onnxruntime(tlang, path) -> None:
    pytest.importorskip("onnxruntime")
    args = ("--batch", "2", "--rounds", "2", "--threads", "1", "--vs", "onnxruntime")
    result = tlang("bench", "--model", path, *args)
    assert result.exit_code == 0, result.output
    assert "results differ by at most" in result.stdout
    assert "onnxruntime  " in result.stdout


def test_beside_pytorch(tlang, path) -> None:
    torch = pytest.importorskip("torch")
    args = ("bench", "--model", path, "--batch", "2", "--rounds", "2", "--vs", "torch")
    missing = tlang(*args)
    assert missing.exit_code == 2
    assert "PyTorch reads no ONNX files" in missing.stderr
    weights = Model.load(path, train=False).get_params()
    layers = []
    for n in range(3):
        weight, bias = weights[f"{n}.weight"], weights[f"{n}.bias"]
        layers += [torch.nn.Linear(*weight.shape[::-1]), torch.nn.ReLU()]
        layers[-2].weight.data = torch.from_numpy(weight)
        layers[-2].bias.data = torch.from_numpy(bias)
    module = torch.nn.Sequential(*layers[:-1]).eval()
    exported = torch.export.export(module, (torch.zeros(2, 9),))
    torch.export.save(exported, path.with_suffix(".pt2"))
    result = tlang(*args)
    assert result.exit_code == 0, result.output
    (said,) = (x for x in result.stdout.splitlines() if x.startswith("torch: "))
    assert float(said.split("at most ")[1].split()[0]) < 1e-5
    assert "load and first call" in result.stdout


def test_integers_are_indices_of_any_table(tlang, tmp_path) -> None:
    model = Model(Embedding(2, 4))
    model.compile(TensorSpec(("batch", 3), "i32"), train=False)
    model.save(tmp_path / "net.onnx")
    result = tlang("bench", "--model", tmp_path / "net.onnx", "--batch", 2)
    assert result.exit_code == 0, result.output
    assert "nn.embedding" in result.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "batch is symbolic; give --batch"),
        (("--batch", "0"), "at least one is needed"),
        (
            ("--batch", "2", "--vs", "jax"),
            "compared with onnxruntime, torch",
        ),
        (("dense", "--batch", "2"), "leave out OP"),
        (("--batch", "2", "--dtype", "f16"), "leave out OP"),
    ],
)
def test_mistakes(tlang, path, args, said) -> None:
    result = tlang("bench", "--model", path, *args)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_neither_an_operator_nor_a_model(tlang) -> None:
    result = tlang("bench")
    assert result.exit_code == 2
    assert "name an operator to measure" in result.stderr


def test_each_step_has_its_node() -> None:
    model = Model(Sequential(Dense(4, "relu"), Dense(2)))
    model.compile(TensorSpec(("batch", 3)), train=False)
    bound = Context(model.network, 2).bound
    np.copyto(bound.inputs[0], 1.0)
    found = layer_times(bound, 3)
    assert [each.node.id for each in found] == ["nn.dense", "nn.dense"]
    assert all(each.seconds > 0 for each in found)
