"""`tlang export` writes a library; mistakes are sentences."""

from __future__ import annotations

import pytest

from tensorlang.graph.specs import TensorSpec
from tensorlang.layers import Dense, Model, Sequential


def test_an_operator_becomes_a_folder(tlang, tmp_path):
    given = [
        "--shape",
        "4x100",
        "--attr",
        "rate=0.25",
        "--name",
        "drop",
        "-o",
        tmp_path,
    ]
    done = tlang("export", "dropout", *given)
    assert done.exit_code == 0, done.output
    assert "objects/drop_native_0.o  " in done.output
    header = (tmp_path / "drop.h").read_text()
    assert "int drop(int64_t x_0, int64_t x_1, const float *x" in header
    assert "rate" not in header.partition("#ifndef")[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["dropout"], "fixed rate"),
        (["exp", "--cpu", "pdp11"], "no export for pdp11"),
        (["exp", "--name", "a b"], "begins the names of files"),
        (["exp", "--name", "int"], "is a reserved word"),
        (["exp", "--threads", "-3"], "give from 1 to 1024, or 0 for this machine's"),
    ],
)
def test_mistakes_are_sentences(tlang, tmp_path, given, said):
    done = tlang("export", *given, "-o", tmp_path)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_file_is_no_folder_to_export_to(tlang, tmp_path):
    (tmp_path / "file").touch()
    done = tlang("export", "exp", "-o", tmp_path / "file")
    assert done.exit_code == 2
    assert "file is a file: name a folder" in " ".join(done.stderr.split())


def test_a_network_becomes_a_folder(tlang, tmp_path):
    spec = TensorSpec(("batch", 7))
    model = Model(Sequential(Dense(20, "relu"), Dense(3))).compile(spec)
    model.save(tmp_path / "net.onnx")
    given = ["--model", tmp_path / "net.onnx", "-o", tmp_path / "net", "--name", "net"]
    done = tlang("export", *given, "--batch", "4")
    assert done.exit_code == 0, done.output
    assert "objects/net_constants.o  " in done.output
    header = (tmp_path / "net" / "net.h").read_text()
    assert "int net(int64_t batch, const float *" in header
    for wrong in (["dense", *given], ["-o", tmp_path]):
        assert tlang("export", *wrong).exit_code == 2


def test_without_a_cross_compiler_the_objects_are_there(tlang, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    given = ["--shape", "8", "--triple", "aarch64-linux-gnu", "-o", tmp_path]
    done = tlang("export", "exp", *given)
    assert done.exit_code == 0, done.output
    assert "there is no C compiler (aarch64-linux-gnu-gcc" in done.output
    assert list((tmp_path / "objects").glob("*.o"))
