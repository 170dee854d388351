"""A network in an ONNX file: its workloads, what they cost, and tuning them."""

from pathlib import Path

import pytest

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph import TensorSpec, loop
from tensorlang.layers import (
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Model,
    RMSNorm,
    Sequential,
)
from tensorlang.ops import nn
from tensorlang.tuner.model_tuning import ranked, tune_model
from tensorlang.tuner.onnx_model import Found, workloads

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'tensorlang[onnx]'")


def saved(folder: Path, nodes, inputs, weights, outputs=("y",)) -> Path:
    """A model with these nodes; a size given as text is open."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [
            helper.make_tensor(n, kind, shape, b"\0" * 4 * _size(shape), raw=True)
            for n, shape in weights.items()
        ],
    )
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph), path)
    return path


def _size(shape) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def small_network(folder: Path) -> Path:
    node = onnx.helper.make_node
    return saved(
        folder,
        [
            node("Conv", ["x", "w1"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
            node("Relu", ["a"], ["b"]),
            node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["c"], ["d"]),
            node("Gemm", ["d", "w2", "b2"], ["e"], transB=1),
            node("Gemm", ["e", "w3"], ["f"]),
            node("Softmax", ["f"], ["g"], axis=1),
            node("Round", ["g"], ["y"]),
        ],
        {"x": ["batch", 1, 8, 8]},
        {"w1": (4, 1, 3, 3), "w2": (10, 64), "b2": (10,), "w3": (10, 10)},
    )


def test_workloads_of_a_network(tmp_path):
    found, others = workloads(small_network(tmp_path), 3)
    assert dict(others) == {"Round": 1}
    assert [str(one).partition("(")[0] for one in found] == [
        "nn.conv2d",
        "nn.relu",
        "nn.max_pool2d",
        "nn.dense",
        "nn.dense",
        "nn.softmax",
    ]
    assert Found("nn.dense", ((3, 64), (10, 64)), "f32", (("layout", "oi"),)) in found
    assert Found("nn.dense", ((3, 10), (10, 10)), "f32", (("layout", "io"),)) in found


def test_an_open_size_needs_a_batch(tmp_path):
    with pytest.raises(ShapeError, match=r"shape of 'x' at a Conv.*give --batch"):
        workloads(small_network(tmp_path), None)


def test_data_beside_the_file_is_not_opened(tmp_path):
    path = small_network(tmp_path)
    model = onnx.load(path)
    for weight in model.graph.initializer:
        onnx.external_data_helper.set_external_data(weight, "../../etc/passwd")
        weight.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    assert len(workloads(path, 2)[0]) == 6


@pytest.mark.parametrize("content", [b"", b"no model", None])
def test_files_that_are_no_models(tmp_path, content):
    path = tmp_path / "x.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"x\.onnx"):
        ranked(path, 1)


def test_the_dearest_are_tuned_within_the_budget(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path / "records"))
    rows, others = ranked(small_network(tmp_path), 2)
    assert others == {"Round": 1}
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert [row.share for row in rows] == sorted((r.share for r in rows), reverse=True)
    begun = []
    reports = tune_model(
        rows,
        budget=7.0,
        begun=begun.append,
        storage=f"sqlite:///{tmp_path / 'trials.db'}",
    )
    assert 1 <= len(reports) == len(begun) < len(rows)
    assert begun == rows[: len(begun)]


def test_a_model_that_we_saved(tmp_path):
    pytest.importorskip("safetensors", reason="needs safetensors")
    own = Sequential(
        Embedding(50, 32),
        Dense(64, "gelu"),
        RMSNorm(),
        Dropout(0.1),
        lambda x: loop(2, lambda _, c: nn.silu(c), x),
        Dense(16),
        Flatten(),
        Dense(5),
    )
    made = Model(own).compile(TensorSpec(("batch", 7), "int64"))
    made.save(tmp_path / "own.onnx")
    found, others = workloads(tmp_path / "own.onnx", 4)
    assert dict(others) == {"Gather": 1}
    assert {str(each) for each in found} == {
        "nn.dense(f32 28x32, 64x32, layout=oi)",
        "nn.gelu(f32 4x7x64)",
        "nn.rms_norm(f32 4x7x64, 64)",
        "nn.silu(f32 4x7x64)",
        "nn.dense(f32 28x64, 16x64, layout=oi)",
        "nn.dense(f32 4x112, 5x112, layout=oi)",
    }
    rows, _ = ranked(tmp_path / "own.onnx", 4)
    assert len(rows) == 6
    assert all(row.seconds > 0 for row in rows)
