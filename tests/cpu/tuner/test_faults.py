"""Candidates that go wrong are filed with their reason, and the run goes on."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, TuningError
from tensorlang.ops import find
from tensorlang.tuner import Progress, tune

SHAPE = [(1 << 14,)]

EXPECTED = {
    "segfault": ("crashed", "killed by SIGSEGV"),
    "forever": ("hung", "still being checked"),
    "wrong": ("wrong", "elements of y of"),
    "wrong_once": ("wrong", "1 of 2053 elements of y"),
    "unwritten": ("wrong", "1 of 2053 elements of y"),
    "past_the_end": ("crashed", "killed by SIGSEGV"),
    "before_the_start": ("wrong", "wrote outside of y, in front of it"),
    "reads_past_the_end": ("crashed", "killed by SIGSEGV"),
    "reads_before": ("crashed", "killed by SIGSEGV"),
    "too_much_stack": ("illegal", "800000 bytes of a thread's stack"),
    "does_not_build": ("failed", "bound to block.x"),
    "surely_past_the_end": ("failed", "comes to"),
    "illegal": ("illegal", "no loop 'no_such_loop'"),
    "raises": ("failed", "ZeroDivisionError: a mistake of the user's"),
}


def test_every_kind_of_bad_candidate_is_filed_and_the_good_one_is_found(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", *EXPECTED, "fast")
    seen: dict[str, Any] = {}

    def listen(progress: Progress) -> None:
        assert progress.last is not None
        candidate, outcome = progress.last
        seen[candidate.knobs["way"]] = outcome

    (report,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, limit=2, storage=storage,
        listen=listen,
    )  # fmt: skip
    for way, (status, reason) in EXPECTED.items():
        assert (seen[way].status, way) == (status, way)
        assert reason in seen[way].reason, way
    assert report.best.knobs == {"way": "fast"}
    assert report.ratio is not None
    assert report.ratio.low > 1
    assert report.exhausted
    assert report.trials == len(EXPECTED) + 2
    assert sum(report.counts.values()) == report.trials
    assert sum(report.reasons.values()) == len(EXPECTED)
    for line in report.reasons:
        assert "\n" not in line
        assert "Traceback" not in line
    assert len(report.reasons) < len(EXPECTED)  # a line a kind, not a candidate

    # what was filed answers the same command: nothing is built or measured again
    again: list[Progress] = []
    (second,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, limit=2, storage=storage,
        listen=again.append,
    )  # fmt: skip
    assert again == []
    assert (second.trials, second.best) == (report.trials, report.best)
    assert "build" not in second.spent

    # and calls run what won
    double = find(name)
    x = np.arange(1 << 14, dtype=np.uint32)
    assert (double(x) == 2 * x).all()
    assert double.kernel(x).artifact.knobs == {"way": "fast"}


def test_a_default_that_is_not_right_is_said(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("wrong", "fast")
    with pytest.raises(TuningError, match=r"default configuration .* is itself wrong"):
        tune(name, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)


def test_a_space_of_one_point_says_why_there_is_nothing_to_choose(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("fast")
    (report,) = tune(name, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)
    assert report.trials == 1
    assert report.exhausted
    assert report.ratio is None
    assert "leaves nothing to choose" in report.note


def test_a_worker_that_cannot_import_the_operator_says_so(
    user_operator: Callable[..., str], storage: str, tmp_path: Path
) -> None:
    name = user_operator("fast", "slow")
    op = find(name)
    (tmp_path / f"{name.partition(':')[0]}.py").unlink()
    with pytest.raises(TuningError, match=r"could not start: .*cannot be imported"):
        tune(op, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)


def test_an_operator_of_the_main_script_is_refused(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = find(user_operator("fast", "slow"))
    monkeypatch.setattr(op, "module", "__main__")
    with pytest.raises(ArgumentError, match="put it in a module of its own"):
        tune(op, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)


def test_modules_that_read_standard_input_or_are_called_like_others(
    user_operator: Callable[..., str],
    storage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = user_operator("slow", "fast")
    path = tmp_path / f"{name.partition(':')[0]}.py"
    path.write_text("import sys\nsys.stdin.read()\n" + path.read_text())
    monkeypatch.setattr("sys.stdin", io.StringIO())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "queue.py").write_text("raise RuntimeError('not the standard one')")
    monkeypatch.chdir(elsewhere)
    (report,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, limit=10, storage=storage
    )
    assert report.best.knobs == {"way": "fast"}
