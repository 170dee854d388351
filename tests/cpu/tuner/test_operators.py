"""Tuning operators that have no schedule of their own, and float reductions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorlang.ops import find
from tensorlang.tuner import tune

MODULE = """
from tensorlang.ir.definitions.frontend import compute, reduce_axis, sum
from tensorlang.ops import operator


@operator("{name}.row_sum")
def row_sum(x):
    k = reduce_axis(x.shape[1], "k")
    return compute((x.shape[0],), lambda i: sum(x[i, k], k), name="y")


@operator("{name}.scaled")
def scaled(x, y, *, by=2.0):
    return compute(x.shape, lambda i: x[i] * by + y[i], name="z")
"""


SHAPES = {"row_sum": [(64, 1000)], "scaled": [(5000,), (5000,)]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("op", "dtype"), [("row_sum", "f32"), ("scaled", "f32"), ("scaled", "bf16")]
)
def test_a_users_operator_is_tuned_as_it_stands(
    op: str,
    dtype: str,
    tmp_path: Path,
    storage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, shapes = f"plain_{op}_{dtype}", SHAPES[op]
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    (report,) = tune(
        f"{name}:{op}", shapes=shapes, dtypes=dtype, budget=None, trials=4,
        storage=storage, limit=20,
    )  # fmt: skip
    assert report.counts["ok"] >= 1
    assert set(report.counts) <= {"ok", "illegal"}
    assert report.trials == 4 or report.exhausted
    if report.trials == 1:
        assert "nothing to choose" in report.note
    x = np.random.default_rng(0).standard_normal(shapes[0], np.float32)
    if op == "row_sum":
        np.testing.assert_allclose(find(f"{name}:{op}")(x), x.sum(1), atol=1e-3)


@pytest.mark.long
def test_a_cost_model_guides_a_search_whose_schedules_run_in_a_worker(
    storage: str,
) -> None:
    guided: list[bool] = []
    (report,) = tune(
        "nn.dense", shapes=[(33, 65), (47, 65)], dtypes="f32", budget=None, trials=6,
        storage=storage, listen=lambda _: guided.append(True),
    )  # fmt: skip
    assert len(guided) == report.trials == 6
    assert set(report.counts) <= {"ok", "illegal"}, report.reasons
