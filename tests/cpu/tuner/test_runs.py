"""Budgets, broken files, records: what a tuning run takes and what it leaves."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tensorlang import records, targets
from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    RecordError,
    ShapeError,
    TargetError,
    TuningError,
)
from tensorlang.ir.digest import digest
from tensorlang.ops import (
    find,
    random,
)
from tensorlang.ops.kernels import building
from tensorlang.ops.operator import Operator
from tensorlang.record_files import Record, read
from tensorlang.scheduling import Knobs
from tensorlang.tuner import Progress, Report, tune
from tensorlang.tuner.measurement.processor_load import Load
from tensorlang.tuner.storage.studies import Reached, Study, by_name
from tensorlang.tuner.workers import patience, protocol
from tensorlang.tuner.workers.process import WorkerProcess

SHAPE = [(1 << 14,)]
TINY: Final[dict[str, Any]] = {"budget": 0.01, "limit": 60}  # for the default alone


def run(name: str | Operator, storage: str, **options: Any) -> Report:
    given = {"shapes": SHAPE, "dtypes": "u32", "budget": 300, "limit": 2} | options
    (report,) = tune(name, storage=storage, **given)
    return report


def record_of(name: str, seconds: float, **knobs: Any) -> Record:
    """A record as if these knobs had been measured at `seconds`."""
    op, host = find(name), targets.host()
    workload = op.workload(*SHAPE, dtypes="u32", threads=host.threads)
    made = building.schedule(op, workload, host, "direct", Knobs.replay(knobs))
    return Record(
        workload=workload,
        target=host.fingerprint,
        architecture=records.architecture(host),
        algorithm="direct",
        schedule=op.family,
        knobs=tuple(sorted(knobs.items())),
        ir=digest(made.function),
        generator="0.1.0",
        seconds=seconds,
        spread=0.0,
        default_seconds=1.0,
        roofline=0.0,
        error=0.0,
        date="2026-01-01",
    )


def test_arrays_without_elements_are_not_measured(storage: str) -> None:
    with pytest.raises(TuningError, match="without elements: there is nothing to tune"):
        run("math.add", storage, shapes=[(0, 3), (3,)], dtypes="f32")


def test_a_tiny_budget_tries_the_default_and_stops(
    user_operator: Callable[..., str], storage: str
) -> None:
    report = run(user_operator("slow", "wrong", "fast"), storage, **TINY)
    assert report.trials == 1
    assert report.best.knobs == {"way": "slow"}
    assert report.ratio is None
    assert report.record is None  # nothing was compared
    said = "no time to compare the default with anything: run it again with a budget"
    assert said in report.note
    assert re.match(r"the default alone took \d+\.\d s, and there was", report.note)
    (seconds,) = re.findall(r"of (\d+) s or more$", report.note)
    assert 0 < int(seconds) < 600


def test_a_default_that_is_not_checked_in_time_stands(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncounted = (*protocol.UNCOUNTED, "check")  # as where it waits for a processor
    monkeypatch.setattr(protocol, "UNCOUNTED", uncounted)
    name = user_operator("forever", "fast")
    start = time.monotonic()
    report = run(name, storage, budget=3, limit=2)
    assert time.monotonic() - start < 3 + 20
    assert report.best.knobs == {"way": "forever"}
    assert (report.trials, report.counts, report.record) == (0, {}, None)
    assert (report.default_seconds, report.seconds) == (None, None)
    assert not report.compared
    said = r"the default was not checked in \d+\.\d s, mostly spent waiting, and stands"
    assert re.match(said, report.note)
    assert "not timed" in report._repr_html_()
    (study,) = by_name(storage).values()
    assert (study.reached, study.done) == (None, 0)


def test_a_default_that_takes_its_limit_is_an_error_however_short_the_budget(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_waits", lambda _: {})  # for a processor
    name = user_operator("forever", "fast")
    with pytest.raises(TuningError, match="itself hung: not done after 4 s"):
        run(name, storage, budget=3, limit=4)


def test_a_budget_holds_while_a_candidate_hangs(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "forever")
    start = time.monotonic()
    report = run(name, storage, budget=8, limit=600)
    assert time.monotonic() - start < 8 + 20  # far from the candidate's limit
    assert report.best.knobs == {"way": "slow"}
    # the budget's end is no verdict: with more time, it is tried again, and filed
    assert report.counts == {"ok": 1}
    again = run(name, storage, limit=1)
    assert again.counts == {"ok": 1, "hung": 1}


def test_a_number_of_trials_counts_earlier_ones(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "wrong", "unwritten", "illegal", "raises", "fast")
    told: list[Progress] = []
    first = run(name, storage, budget=None, trials=3, listen=told.append)
    assert (first.trials, len(told)) == (3, 3)
    second = run(name, storage, budget=None, trials=4, listen=told.append)
    assert (second.trials, second.earlier, len(told)) == (4, 3, 4)
    fresh = run(name, storage, budget=None, trials=2, listen=told.append, resume=False)
    assert (fresh.trials, len(told)) == (2, 6)


@pytest.mark.long
def test_the_same_seed_tries_the_same_in_the_same_order(
    user_operator: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = user_operator("slow", "wrong", "unwritten", "illegal", "raises", "fast")
    orders = []
    for number, seed in enumerate((5, 5)):
        ways: list[str] = []

        def listen(p: Progress, ways: list[str] = ways) -> None:
            assert p.last is not None
            ways.append(p.last[0].knobs["way"])

        monkeypatch.setenv(records.FOLDER_VARIABLE, str(tmp_path / f"{number}"))
        url = f"sqlite:///{tmp_path}/{number}.db"
        run(name, url, seed=seed, listen=listen)
        orders.append(ways)
    assert orders[0] == orders[1]
    assert len(orders[0]) == 6


@pytest.mark.long
def test_a_record_is_the_incumbent_and_only_a_real_win_replaces_it(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "fast", "wrong")
    records.add(record_of(name, 1e-3, way="fast"))
    told: list[Progress] = []
    report = run(name, storage, listen=told.append)
    assert [p.last[0].knobs["way"] for p in told if p.last][:2] == ["slow", "fast"]
    assert report.best.knobs == {"way": "fast"}
    assert report.record is not None
    (held,) = read(report.record)
    assert held.seconds == report.seconds  # measured anew

    # a time of another day is no argument: side by side it loses
    report.record.unlink()
    records.add(dataclasses.replace(record_of(name, 1e-9, way="slow")))
    report = run(name, storage)
    (held,) = read(report.record or Path())
    assert dict(held.knobs) == {"way": "fast"}
    assert "direct(way=slow), which was on record, lost and is replaced" in report.note


def test_a_record_that_is_slower_than_the_default_gives_way_to_it(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("fast", "slow")
    records.add(record_of(name, 1e-9, way="slow"))  # recorded by luck
    report = run(name, storage)
    (held,) = read(report.record or Path())
    assert dict(held.knobs) == {"way": "fast"}
    assert held.seconds > 1e-9
    assert "direct(way=slow), which was on record, lost and is replaced" in report.note


@pytest.mark.long
@pytest.mark.parametrize("way", ["wrong", "segfault"])
def test_a_record_that_fails_is_dropped_and_nothing_else_is_blamed(
    user_operator: Callable[..., str], storage: str, way: str
) -> None:
    name = user_operator("slow", way, "fast")
    records.add(record_of(name, 1e-9, way=way))
    report = run(name, storage)
    assert report.counts["ok"] == 2
    assert f"direct(way={way}), which was on record, failed (" in report.note
    (held,) = read(report.record or Path())
    assert dict(held.knobs) in ({"way": "fast"}, {"way": "slow"})


def test_a_record_that_fails_is_dropped_where_nothing_is_compared(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "wrong", "fast")
    run(name, storage, budget=None, trials=3)
    (path,) = records.user_folder().glob("*/*.json")
    path.unlink()
    records.add(record_of(name, 1e-9, way="wrong"))
    report = run(name, storage, **TINY)
    assert not report.compared
    assert "way=wrong), which was on record, failed (wrong) and is" in report.note
    assert read(path) == []


def test_what_another_run_recorded_meanwhile_stays_until_it_is_compared(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "fast")

    def listen(_: Progress) -> None:
        records.add(record_of(name, 1.0, way="slow"))

    report = run(name, storage, listen=listen)
    assert report.record is None
    said = "direct(way=slow) was recorded meanwhile and stays in use: run it again"
    assert said in report.note
    (path,) = records.user_folder().glob("*/*.json")
    assert [dict(held.knobs) for held in read(path)] == [{"way": "slow"}]


def test_a_study_is_done_when_its_space_was_tried_and_compared(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "wrong", "fast")

    def study() -> Study:
        (found,) = by_name(storage).values()
        return found

    run(name, storage, **TINY)
    assert study().reached == Reached(whole=False, won=0)
    assert study().done == 0
    run(name, storage, **TINY)
    assert study().done == 2  # such a budget is not enough for more
    run(name, storage)
    assert study().reached == Reached(whole=True, won=3)
    assert study().done == 2


def test_the_ratio_on_record_is_the_one_of_the_finals(
    user_operator: Callable[..., str], storage: str
) -> None:
    report = run(user_operator("slow", "fast"), storage)
    (held,) = read(report.record or Path())
    assert report.ratio is not None
    assert held.default_seconds / held.seconds == pytest.approx(report.ratio.median)


@pytest.mark.parametrize("ways", [("slow", "fast"), ("slow",)])
def test_a_record_that_was_not_timed_is_neither_the_best_nor_filed_again(
    user_operator: Callable[..., str], storage: str, ways: tuple[str, ...]
) -> None:
    name = user_operator(*ways)
    records.add(record_of(name, 1e-9, way=ways[-1]))
    options = TINY if len(ways) > 1 else {}  # no time for finals, or alone
    report = run(name, storage, **options)
    assert report.best.knobs == {"way": "slow"}
    assert report.seconds == report.default_seconds > 1e-9
    assert report.ratio is None
    assert report.record is None
    assert report.compared == (len(ways) == 1)
    assert ("stays in use" in report.note) == (len(ways) > 1)
    find(name).forget()
    path = next(records.user_folder().glob("*/*.json"))
    assert [record.seconds for record in read(path)] == [1e-9]


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        (("slow", "fast"), "way=fast) was faster in its trial, but there was no time"),
        (("fast", "slow"), "no time to compare the default with anything"),
    ],
)
def test_what_was_faster_than_the_default_has_to_be_compared(
    user_operator: Callable[..., str], storage: str, ways: tuple[str, ...], said: str
) -> None:
    name = user_operator(*ways)
    first = run(name, storage, budget=None, trials=2)
    assert first.record is not None
    first.record.unlink()
    records.forget()
    report = run(name, storage, **TINY)
    assert said in report.note


def test_what_failed_was_not_short_of_time(
    user_operator: Callable[..., str], storage: str
) -> None:
    report = run(user_operator("slow", "wrong", "raises"), storage)
    assert "time" not in report.note
    assert report.record is not None  # the default is all that is right


def test_records_of_near_shapes_are_tried_early(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "wrong", "unwritten", "illegal", "raises", "fast")
    known = record_of(name, 1e-3, way="fast")
    near = known.workload.with_shapes((1 << 15,))
    records.add(dataclasses.replace(known, workload=near, ir="of-another-shape"))
    told: list[Progress] = []
    run(name, storage, budget=None, trials=2, listen=told.append)
    assert [p.last[0].knobs["way"] for p in told if p.last] == ["slow", "fast"]


def test_a_broken_database_is_named_and_left_alone(
    user_operator: Callable[..., str], tmp_path: Path
) -> None:
    name = user_operator("slow", "fast")
    path = tmp_path / "broken.db"
    path.write_bytes(b"this is no database" * 500)
    with pytest.raises(RecordError, match=r"storage sqlite:.*broken\.db cannot be"):
        run(name, f"sqlite:///{path}")
    assert path.read_bytes() == b"this is no database" * 500

    whole = tmp_path / "whole.db"
    run(name, f"sqlite:///{whole}")
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole.read_bytes()[:10_000])
    with pytest.raises(RecordError, match=r"cut\.db cannot be used: [^\n]*$"):
        run(name, f"sqlite:///{cut}")
    assert run(name, f"sqlite:///{whole}").trials == 2


def test_a_broken_record_file_is_named_before_any_work(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "fast")
    report = run(name, storage)
    assert report.record is not None
    text = report.record.read_text()
    report.record.write_text(text[: len(text) // 2])
    told: list[Progress] = []
    with pytest.raises(RecordError, match=r"record file .*double\.json cannot be used"):
        run(name, storage, listen=told.append)
    assert told == []
    assert report.record.read_text() == text[: len(text) // 2]
    op = find(name)
    op.forget()
    records.forget()
    x = np.arange(1 << 14, dtype=np.uint32)
    with pytest.warns(UserWarning, match="operators go on without it"):
        assert (op(x) == 2 * x).all()
    report.record.write_text(text)
    assert run(name, storage).trials == 2  # no trial was lost


def test_a_stale_record_does_not_keep_a_new_one_out(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", "fast")
    report = run(name, storage)
    assert report.record is not None
    (held,) = read(report.record)
    stale = dataclasses.replace(held, ir="0" * len(held.ir), seconds=held.seconds / 100)
    report.record.unlink()
    assert records.add(stale)
    assert run(name, storage).record == report.record
    (now,) = read(report.record)
    assert now.ir == held.ir


def test_tuning_changes_what_calls_run_and_pins_override_it(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random.bits.forget()
    x = random.bits(random.key(3), (1000,))
    (report,) = tune("random.bits", budget=None, trials=6, storage=storage, seed=1)
    assert report.record is not None
    (record,) = read(report.record)
    kernel = random.bits.kernel(random.key(3), (1000,))
    assert kernel.artifact.knobs == dict(record.knobs) == dict(report.best.knobs)
    assert (random.bits(random.key(3), (1000,)) == x).all()

    monkeypatch.setenv("TENSORLANG_PIN", "random.bits:lanes=16,chunk=32")
    random.bits.forget()
    pinned = random.bits.kernel(random.key(3), (1000,)).artifact.knobs
    assert (pinned["lanes"], pinned["chunk"]) == (16, 32)
    monkeypatch.delenv("TENSORLANG_PIN")
    random.bits.forget()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": None}, ArgumentError, "needs an end"),
        ({"budget": 0.0}, ArgumentError, "lies in the future"),
        ({"budget": float("nan")}, ArgumentError, "lies in the future"),
        ({"trials": 0}, ArgumentError, "lies in the future"),
        ({"limit": -1.0}, ArgumentError, "lies in the future"),
        ({"budget": "60s"}, ArgumentError, "budget='60s'.* give numbers of seconds"),
        ({"trials": 1.5}, ArgumentError, "an integer number of trials"),
        ({"seed": "a"}, ArgumentError, "seed='a': it is an integer"),
        ({"seed": -1}, ArgumentError, "seed=-1: it is an integer"),
        ({"storage": 5}, ArgumentError, "storage=5: give a URL"),
        ({"shapes": 5}, ShapeError, r"shapes=5: give a shape for each array"),
        ({"shapes": (64,)}, ShapeError, "give a shape for each array"),
        ({"shapes": [(-1,)]}, ShapeError, "no memory holds"),
        ({"shapes": [(2,), (3,), (4,)]}, ShapeError, "takes 2 shapes, got 3"),
        ({"dtypes": "zz"}, DTypeError, "zz"),
        ({"dtypes": "f32"}, DTypeError, "is for u8, u16, u32, u64, not f32"),
        ({"dtypes": ("u8", "u8")}, DTypeError, "takes 1 types here, got 2"),
        ({"foo": 1}, ArgumentError, "random.bits has no attribute 'foo'; it has"),
        ({"stream": 3}, ArgumentError, "attribute stream is 'jax' or 'packed', not 3"),
        ({"target": "cuda"}, TargetError, "cuda"),
        ({"storage": "mssql+pyodbc://me:word@host/db"}, TuningError, r"me:\*\*\*@host"),
        ({"storage": "no url"}, TuningError, "is not a database URL"),
        ({"storage": "sqlite:////proc/nothing/x.db"}, RecordError, "/proc/nothing"),
    ],
)
def test_bad_arguments_are_one_sentence(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        tune("random.bits", **options)
    assert "\n" not in str(caught.value)
    assert "word" not in str(caught.value).replace("password", "")


def test_the_tuner_s_own_worker_is_not_among_other_programs(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    end = WorkerProcess.__exit__

    def ended(self: WorkerProcess, *given: object) -> None:
        end(self, *given)
        self.unlocked = "it did not wait"
        events.append("the worker ended")

    def trouble(_: Load, threads: int) -> str:
        events.append(f"looked, for {threads} threads")
        return "others were busy"

    monkeypatch.setattr(WorkerProcess, "__exit__", ended)
    monkeypatch.setattr(Load, "trouble", trouble)
    report = run("random.bits", storage, trials=2)
    assert events == [
        "the worker ended",
        f"looked, for {targets.host().threads} threads",
    ]
    assert report.disturbed == "others were busy; it did not wait"


def test_a_report_says_where_the_time_went(
    user_operator: Callable[..., str], storage: str
) -> None:
    report = run(user_operator("slow", "fast", "wrong"), storage)
    stages = {"bookkeeping", "schedule", "build", "check", "wait", "measure", "finals"}
    assert stages <= report.spent.keys()
    assert min(report.spent.values()) >= 0
    json.dumps(report.spent)
