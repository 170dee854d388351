"""A network in an ONNX file: its workloads, what they cost, and tuning them."""

import dataclasses
import types
from pathlib import Path

import pytest

from tensorlang import targets
from tensorlang.cli import tune_network
from tensorlang.cli.tune_network import program
from tensorlang.errors import (
    ArgumentError,
    GraphError,
    KernelError,
    ShapeError,
    TuningError,
)
from tensorlang.graph import (
    TensorSpec,
    loop,
    trace,
    workloads,
)
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
from tensorlang.ops.operator import Operator
from tensorlang.tuner import model_tuning
from tensorlang.tuner.measurement.rounds import Ratio
from tensorlang.tuner.model_tuning import _in_turn, ranked, tune_model
from tensorlang.tuner.progress import Report
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.storage.studies import ENOUGH
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.protocol import OK, Candidate, Outcome

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'tensorlang[onnx]'")


def saved(folder: Path, nodes, inputs, weights, outputs) -> Path:
    """A model with these nodes; a size given as text is open."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, kind, shape) for n, shape in outputs.items()],
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
            node("Sqrt", ["g"], ["y"]),
        ],
        {"x": ["batch", 1, 8, 8]},
        {"w1": (4, 1, 3, 3), "w2": (10, 64), "b2": (10,), "w3": (10, 10)},
        {"y": ["batch", 10]},
    )


def names(path, batch, tolerance=None):
    """The workloads of a file, as people read them, and how often each stands there."""
    counted = workloads(*program(path, batch, tolerance=tolerance))
    return {op.described(workload): n for (op, workload), n in counted.items()}


def test_workloads_of_a_network_are_those_that_run(tmp_path):
    found = names(small_network(tmp_path), 3)
    conv, *rest = found.items()
    assert conv[0].startswith(
        "nn.conv2d(f32[3, 1, 8, 8], f32[4, 1, 3, 3], activation=relu"
    )
    assert [each.partition(", dilation")[0] for each, _ in rest] == [
        "nn.max_pool2d(f32[3, 4, 8, 8]",
        "nn.dense(f32[3, 64], f32[10, 64], f32[10])",
        "nn.dense(f32[3, 10], f32[10, 10], layout=io)",
        "nn.softmax(f32[3, 10], axis=1)",
        "math.sqrt(f32[3, 10])",
    ]
    assert {*found.values()} == {1}


def test_what_depends_on_weights_alone_does_not_count(tmp_path):
    node = onnx.helper.make_node
    norm = dict.fromkeys(("scale", "shift", "mean", "var"), (64,))
    path = saved(
        tmp_path,
        [
            node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
            node("BatchNormalization", ["a", *norm], ["b"]),
            node("Relu", ["b"], ["y"]),
        ],
        {"x": ["batch", 64, 56, 56]},
        {"w": (64, 64, 3, 3), **norm},
        {"y": ["batch", 64, 56, 56]},
    )
    for tolerance, id in ((None, "nn.conv2d"), (2**-12, "nn.conv2d_winograd")):
        found = names(path, 3, tolerance)
        (each,) = [name for name in found if name.startswith(f"{id}(")]
        assert "activation=relu" in each
        others = {name.partition("(")[0] for name in found} - {id}
        assert others <= {"nn.transpose"}, "of channels last"


def test_an_open_size_needs_a_batch(tmp_path):
    with pytest.raises(ArgumentError, match=r"batch is symbolic; give --batch"):
        program(small_network(tmp_path), None)
    path = saved(
        tmp_path,
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        {"x": ["batch", "width"]},
        {},
        {"y": ["batch", "width"]},
    )
    with pytest.raises(ArgumentError, match=r"width is symbolic; .* with fixed sizes"):
        program(path, 3)


def test_operators_that_are_not_supported_are_named(tmp_path):
    nodes = [onnx.helper.make_node("Det", ["x"], ["y"])]
    path = saved(tmp_path, nodes, {"x": [2, 3, 3]}, {}, {"y": [2]})
    with pytest.raises(GraphError, match="unsupported operators: Det"):
        program(path, None)


def test_calls_and_bodies_of_loops_count():
    def body(x):
        x = nn.silu(nn.silu(x))
        return loop(5, lambda _, c: nn.silu(c), x)

    made = workloads(trace(body, [TensorSpec(("n", 4))]), {"n": 3})
    assert [(op.id, work.shapes, n) for (op, work), n in made.items()] == [
        ("nn.silu", ((3, 4),), 3)
    ]
    with pytest.raises(ShapeError, match="n is symbolic"):
        workloads(trace(body, [TensorSpec(("n", 4))]))


def test_data_beside_the_file_is_not_opened(tmp_path):
    path = small_network(tmp_path)
    model = onnx.load(path)
    for weight in model.graph.initializer:
        onnx.external_data_helper.set_external_data(weight, "../../etc/passwd")
        weight.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    assert len(names(path, 2)) == 6


@pytest.mark.parametrize("content", [b"", b"no model", None])
def test_files_that_are_no_models(tmp_path, content):
    path = tmp_path / "x.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"x\.onnx"):
        program(path, 1)


def test_the_dearest_are_tuned_within_the_budget(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path / "records"))
    rows = ranked(workloads(*program(small_network(tmp_path), 2)))
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


def test_a_workload_that_cannot_be_tuned_is_skipped(tmp_path, monkeypatch):
    rows = ranked(workloads(*program(small_network(tmp_path), 2)))
    tuned = []

    def tune(op, **_):
        if op is rows[0].op:
            raise TuningError("the default configuration is itself wrong")
        tuned.append(op)
        return [types.SimpleNamespace(interrupted=False)]

    monkeypatch.setattr(model_tuning, "tune", tune)
    skipped = []
    trials = {"storage": f"sqlite:///{tmp_path / 'trials.db'}"}
    reports = tune_model(
        rows, budget=60.0, skipped=lambda *why: skipped.append(why), **trials
    )
    left_out = [row for row in rows if row.op is rows[0].op]
    assert [each[:2] for each in skipped] == [(r.op, r.workload) for r in left_out]
    assert all("itself wrong" in str(problem) for *_, problem in skipped)
    assert len(reports) == len(tuned) == len(rows) - len(left_out)
    with pytest.raises(TuningError, match="itself wrong"):
        tune_model(rows, budget=60.0, **trials)


def test_a_workload_whose_default_does_not_run_is_left_out_and_said(
    tmp_path, monkeypatch
):
    counted = workloads(*program(small_network(tmp_path), 2))
    build = Operator.build

    def refuse(op, *given):
        if op.id == "nn.max_pool2d":
            raise KernelError("the kernel does not compile")
        return build(op, *given)

    monkeypatch.setattr(Operator, "build", refuse)
    refused = []
    rows = ranked(counted, refused=lambda *why: refused.append(why))
    assert len(rows) == len(counted) - 1
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert [(op.id, str(why)) for op, _, why in refused] == [
        ("nn.max_pool2d", "the kernel does not compile")
    ]
    with pytest.raises(KernelError):
        ranked(counted)
    only = {called: n for called, n in counted.items() if called[0] is refused[0][0]}
    with pytest.raises(TuningError, match="no workload of the network runs"):
        ranked(only, refused=lambda *_: None)


def test_the_dearest_is_tuned_until_it_is_done(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    rows = ranked(workloads(*program(small_network(tmp_path), 2)))
    here = targets.host()
    first = dataclasses.replace(rows[0].workload, threads=here.threads)
    storage = Trials(url, Run(rows[0].op, first, here).study)
    for number in range(ENOUGH):
        candidate = Candidate("direct", {"at": number})
        storage.add(Row.of(candidate, Outcome(OK, seconds=1.0), {}))
    assert _in_turn(rows, storage=url) == rows
    storage.reach(whole=False, won=False)
    storage.close()
    assert _in_turn(rows, storage=url) == [*rows[1:], rows[0]]
    begun = []

    def tune(_, **__):
        if len(begun) == 3:
            raise KeyboardInterrupt
        return [types.SimpleNamespace(interrupted=False)]

    monkeypatch.setattr(model_tuning, "tune", tune)
    reports = tune_model(rows, budget=60.0, storage=url, begun=begun.append)
    assert begun == rows[1:4]
    assert len(reports) == 2  # Ctrl-C in the third


def test_the_report_of_a_network_says_what_it_gains(tmp_path, monkeypatch, capsys):
    def tune(rows, **_):
        made = []
        for row, ratio in zip(rows[:2], (Ratio(2.0, 1.5, 2.5, 11), None), strict=True):
            made.append(
                Report(
                    row.op.id, row.workload, "", 3e-3, Candidate("direct"), 1e-3, 0.0,
                    ratio, 5, {}, {},
                )
            )  # fmt: skip
        return made

    monkeypatch.setattr(tune_network, "tune_model", tune)
    how = {"target": targets.host()}
    tune_network.tune_network(small_network(tmp_path), 2, 9.0, how, lambda *_: None)
    said = capsys.readouterr().out
    assert "in all" in said
    assert said.splitlines()[-2].split()[-5:] == ["6", "ms", "4.5", "ms", "1.33x"]
    assert "reached 2 of 6 workloads; later runs go on with the others" in said
    assert max(map(len, said.splitlines())) <= 80


def test_all_that_computes_counts_and_the_stem_of_a_resnet_has_a_space(tmp_path):
    node = onnx.helper.make_node
    path = saved(
        tmp_path,
        [
            node("Conv", ["x", "w"], ["a"], kernel_shape=[7, 7], pads=[3] * 4,
                 strides=[2, 2]),
            node("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1]),
            node("Add", ["b", "b"], ["c"]),
            node("Gather", ["c", "ids"], ["y"], axis=1),
        ],
        {"x": ["batch", 3, 32, 32]},
        {"w": (64, 3, 7, 7)},
        {"y": ["batch", 2, 16, 64]},
    )  # fmt: skip
    model = onnx.load(path)
    ids = onnx.helper.make_tensor("ids", onnx.TensorProto.INT64, [2], [3, 1])
    model.graph.initializer.append(ids)
    onnx.save(model, path)
    counted = workloads(*program(path, 1))
    found = {op.id for op, _ in counted}
    assert {"nn.conv2d", "nn.transpose", "math.add"} < found
    assert len(found) == 4
    stem = next(called for called in counted if called[0].id == "nn.conv2d")
    space = Space(*stem, targets.host())
    space.default()
    assert (space.size or 0) > 100 or len(space.algorithms) > 1


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
    assert names(tmp_path / "own.onnx", 4) == {
        "nn.embedding(i64[4, 7], f32[50, 32])": 1,
        "nn.dense(f32[4, 7, 32], f32[64, 32], f32[64], activation=gelu)": 1,
        "nn.rms_norm(f32[4, 7, 64], f32[64])": 1,
        "nn.silu(f32[4, 7, 64])": 1,
        "nn.dense(f32[4, 7, 64], f32[16, 64], f32[16])": 1,
        "nn.dense(f32[4, 112], f32[5, 112], f32[5])": 1,
    }
    rows = ranked(workloads(*program(tmp_path / "own.onnx", 4)))
    assert len(rows) == 6
    assert all(row.seconds > 0 for row in rows)
