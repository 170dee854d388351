"""A part of ONNX's own backend suite; `tests/programs/onnx_suite.py` counts it all."""

import importlib
from collections import Counter

import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

EVERY = 9  # of about 1,900 cases


@pytest.mark.long
@pytest.mark.parametrize("freeze", [False, True])
def test_nothing_is_wrong_or_untyped(programs, freeze) -> None:
    suite = importlib.import_module(f"{programs.__name__}.onnx_suite")
    counts = Counter()
    for case in suite.cases(slow=False)[::EVERY]:
        word, said = suite.outcome(case, freeze=freeze)
        assert word in {"passed", "refused"}, (case.name, said)
        counts[word] += 1
    assert counts["passed"] > 55
