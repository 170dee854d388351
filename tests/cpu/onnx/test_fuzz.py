"""Changed and broken files; `make fuzz WHAT=onnx COUNT=100000` tries many."""

from collections import Counter

import pytest

BATCHES = 4  # at most, as what is drawn depends on the modules that are loaded

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")


def test_files_are_right_or_refused(programs) -> None:
    fuzzer, seen = programs.fuzzers.fuzzer("onnx"), Counter()
    for start in range(BATCHES):
        seen += programs.fuzzing.search(fuzzer, start, 300)
        if seen["the same"] > 40 and seen["refused"] > 100:
            return
    raise AssertionError(seen)
