"""Operators of a user's own that random arrays of any shape would not suit."""

from typing import Any

import numpy as np
import pytest

from tensorlang.ir import parse
from tensorlang.ops import operator
from tensorlang.runtime import build
from tensorlang.tuner import tune
from tensorlang.tuner.correctness.gate import Gate, Wrong
from tensorlang.tuner.correctness.reference import parallelised

MODULE = '''
from tensorlang.ir import compute, parse, reduce_axis, sum
from tensorlang.ops import operator


@operator("declared.squares")
def squares(x):
    k = reduce_axis(x.shape[1])
    return compute((x.shape[0],), lambda i: sum(x[i, k] * x[i, k], k), name="y")


@operator("declared.stencil")
def stencil(x):
    h, w = x.shape
    return compute(
        (h - 4, w - 4), lambda i, j: x[i, j] + x[i + 2, j + 4] - x[i + 4, j], name="y"
    )


@operator("declared.gather")
def gather(table, ids):
    rows, columns = ids.shape[0], table.shape[1]
    return compute((rows, columns), lambda i, j: table[ids[i].cast("i64"), j], name="y")


@operator("declared.rows")
def rows(x, lengths):
    n, m = x.shape[0].value, x.shape[1].value
    return parse(f"""
def rows(x: f32[{n}, {m}], lengths: i32[{n}], y: Out[f32[{n}]]):
    for i in range({n}):
        y[i] = 0.0
        for k in range(cast(i64, lengths[i])):
            y[i] = y[i] + x[i, k]
""")
'''


@pytest.fixture
def module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "declared.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "declared"


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        ("squares", [(80, 20)], "f32"),  # so short a fold is part of the kernel
        ("stencil", [(64, 48)], "f32"),
        ("gather", [(500, 32), (300,)], ("f32", "i32")),
        ("rows", [(64, 128), (64,)], ("f32", "i32")),
    ],
)
def test_they_are_tuned_as_they_stand(
    name: str, shapes: Any, dtypes: Any, module: str, storage: str
) -> None:
    how = {"dtypes": dtypes, "trials": 2, "storage": storage}
    (report,) = tune(f"{module}:{name}", shapes=shapes, **how)
    assert set(report.counts) == {"ok"}, report.reasons


def merged(found: str) -> str:
    """How many elements of a sorted array lie below each number, or some of them."""
    return f"""
def ranks(a: f32[40], x: f32[90], y: Out[i32[90]]):
    for i in range(90):
        y[i] = i32(0)
        for k in range({found}):
            y[i] = y[i] + select(a[k] < x[i], i32(1), i32(0))
"""


def test_samples_are_what_kernels_are_checked_with() -> None:
    """By a search that stops early, which is right of sorted arrays only."""

    def samples(a: Any, x: Any) -> Any:
        return np.sort(np.nan_to_num(a)), x

    definition = parse(merged("40"))
    quick = parse(
        merged("1")
        .replace("range(1)", "range(40)")
        .replace(
            "select(a[k] < x[i],", "select((a[k] < x[i]) & (y[i] == cast(i32, k)),"
        )
    )
    workload = ((40,), (90,))
    verdicts = []
    for number, given in enumerate((None, samples)):

        @operator(f"test_declared.ranks{number}", samples=given)
        def op(a: Any, x: Any) -> Any:
            return definition if a.shape and x.shape else None

        gate = Gate(op, op.workload(*workload, dtypes="f32"), 0.0)
        try:
            gate.check(build(parallelised(quick)), gate.full)
            verdicts.append("right")
        except Wrong:
            verdicts.append("wrong")
    assert verdicts == ["wrong", "right"]
