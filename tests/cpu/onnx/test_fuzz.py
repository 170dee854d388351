"""Changed and broken files; `make fuzz WHAT=onnx COUNT=100000` tries many."""

import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")


def test_files_are_right_or_refused(programs) -> None:
    seen = programs.fuzzing.search(programs.fuzzers.fuzzer("onnx"), 0, 300)
    assert seen["the same"] > 40
    assert seen["refused"] > 100
