"""What people see of a search: lines or a bar, then the table of what was found."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest
from rich.console import Console

from tensorlang.cli import document, progress_display, tune, tune_network
from tensorlang.cli.progress_display import Bar, Course, Plain, status_line
from tensorlang.ops import find
from tensorlang.tuner.measurement.rounds import Ratio
from tensorlang.tuner.model_tuning import Ranked
from tensorlang.tuner.progress import Progress, Report
from tensorlang.tuner.workers.protocol import Candidate, Outcome

DEFAULT = Candidate("direct", {"lanes": 64})
BEST = Candidate("direct", {"lanes": 32})


def progress(trials=3, member=1, best=5e-3, **counts):
    return Progress(
        operator="random.bits",
        member=member,
        members=2,
        workload=find("bits").workload(),
        trials=trials,
        trials_wanted=None,
        elapsed=1.0,
        budget=10.0,
        best_seconds=best,
        default_seconds=6e-3,
        last=(BEST, Outcome("ok", seconds=best)),
        counts=counts or {"ok": trials},
        space=56,
    )


def report(**changes):
    given = {
        "operator": "random.bits",
        "workload": find("bits").workload(),
        "target": "here",
        "default_seconds": 6e-3,
        "best": BEST,
        "seconds": 5e-3,
        "spread": 0.012,
        "ratio": Ratio(1.2, 1.15, 1.25, 21),
        "trials": 23,
        "counts": {"ok": 20, "wrong": 1, "crashed": 2},
        "reasons": {"killed by SIGSEGV while being checked": 2, "differs": 1},
        "spent": {"build": 12.0, "check": 3.0, "bookkeeping": 0.05},
    }
    return Report(**given | changes)


@pytest.fixture
def search(monkeypatch):
    """Stands for the tuner: remembers how it was called, and tells two trials."""
    calls = []

    def fake(op, *, listen, **options):
        calls.append((op, options))
        listen(progress(1, best=6e-3))
        listen(progress(2))
        result = fake.result
        if isinstance(result, BaseException):
            raise result
        return result

    fake.result, fake.calls = [report()], calls
    monkeypatch.setattr(tune, "search", fake)
    return fake


@pytest.mark.usefixtures("search")
def test_a_run_is_told_in_lines_and_a_result(tlang):
    result = tlang("tune", "bits", "--budget", "10s")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    for at, said in ((1, "1 of 56 tried, best 6 ms"), (2, "2 of 56 tried, best 5 ms")):
        line, _, left = lines[at].rpartition(", ")
        assert line == f"random.bits: {said}, default 6 ms"
        assert re.fullmatch(r"\d:\d\d left", left)
    at = next(n for n, line in enumerate(lines) if line.startswith("random.bits(u32"))
    assert lines[at + 1 : at + 3] == [
        "  default 6 ms, best 5 ms +- 1.2%, 1.20x [1.15, 1.25], 23 tried",
        "  direct(lanes=32)",
    ]
    assert "random.bits: 2 x killed by SIGSEGV while being checked" in lines
    assert lines[-1].startswith("23 trials in ")
    assert "build 12 s, check 3 s, bookkeeping 50 ms" in lines[-1]


def test_the_report_fits_80_columns(tlang, search):
    knobs = {f"a_knob_with_a_name_{n}": 1 << n for n in range(12)}
    dense = find("nn.dense")
    search.result = [
        report(
            operator="nn.dense",
            workload=dense.workload((33, 777), (1025, 777), (1025,), dtypes="f32"),
            best=Candidate("direct", knobs),
            note=" ".join(["a remark"] * 30),
            disturbed=" ".join(["others"] * 30),
            reasons={" ".join(["a reason"] * 30): 3},
        )
    ]
    lines = tlang("tune", "bits", "--budget", "10s").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    assert str(Candidate("direct", knobs)) in text


def test_where_the_default_stands_the_table_says_so(tlang, search):
    search.result = [report(ratio=None, best=DEFAULT, note="nothing is faster")]
    result = tlang("tune", "bits")
    assert "the default stands" in result.stdout
    assert "random.bits: nothing is faster" in result.stdout


def test_trials_of_earlier_runs_are_counted_apart(tlang, search):
    search.result = [report(earlier=22, exhausted=True)]
    lines = tlang("tune", "bits").stdout.splitlines()
    text = " ".join(line.strip() for line in lines)
    assert "23 tried (all, 22 earlier)" in text
    assert lines[-1].startswith("1 trial in ")


def test_where_nothing_was_compared_the_table_says_so(tlang, search):
    search.result = [report(ratio=None, best=DEFAULT, compared=False)]
    result = tlang("tune", "bits")
    assert "not compared" in result.stdout
    assert "the default stands" not in result.stdout


def test_a_default_that_was_not_timed_is_told_without_times(tlang, search, capsys):
    untimed = report(
        default_seconds=None,
        seconds=None,
        spread=0.0,
        ratio=None,
        best=DEFAULT,
        compared=False,
    )
    search.result = [untimed]
    said = "the default was not timed and stands, 23 tried"
    assert said in tlang("tune", "bits").stdout
    (found,) = json.loads(tlang("tune", "bits", "--json").stdout)["reports"]
    assert (found["default_seconds"], found["seconds"]) == (None, None)
    assert found["spread"] is None
    rows = [Ranked(find("bits"), untimed.workload, 2, 1e-3, 0.5)]
    tune_network._summarise(rows, [untimed])
    _, first, *others = capsys.readouterr().out.splitlines()
    assert first.split() == ["random.bits", "2", "-", "-", "-"]
    assert not others


@pytest.mark.parametrize("others", [0, 1])
def test_a_network_claims_no_gain_for_what_was_not_compared(capsys, others):
    found = find("bits")
    away = report(ratio=None, best=DEFAULT, compared=False)
    timed = [report(workload=found.workload((64,)))] * others
    rows = [Ranked(found, r.workload, 2, 1e-3, 0.5) for r in (away, *timed)]
    tune_network._summarise(rows, [away, *timed])
    _, first, *_, whole = capsys.readouterr().out.splitlines()
    assert first.split() == ["random.bits", "2", "6", "ms", "-", "-"]
    if others:
        assert whole.split("  ")[0] == "in all that were compared"
        assert whole.split()[-5:] == ["12", "ms", "10", "ms", "1.20x"]
    else:
        assert whole.split() == ["in", "all", "12", "ms", "-", "-"]
    assert document.plain(tune_network._gained(1.0, 1.0, measured=False)[2]) is None


@pytest.mark.parametrize(
    ("args", "budget", "trials"),
    [
        ((), 60.0, None),
        (("--budget", "2m"), 120.0, None),
        (("--trials", "5"), None, 5),
        (("--trials", "5", "--budget", "9"), 9.0, 5),
    ],
)
def test_a_run_ends_by_time_unless_trials_are_given(
    tlang, search, args, budget, trials
):
    assert tlang("tune", "bits", *args).exit_code == 0
    ((_, options),) = search.calls
    assert (options["budget"], options["trials"]) == (budget, trials)


def test_options_reach_the_search(tlang, search):
    args = ("--shape", "64x8", "--dtype", "uint8", "--attr", "stream=packed")
    tlang(
        "tune",
        "bits",
        *args,
        "--seed",
        "7",
        "--no-resume",
        "--storage",
        "sqlite:///x.db",
    )
    ((op, options),) = search.calls
    assert op == "bits"
    assert options["shapes"] == ((64, 8),)
    assert options["dtypes"] == "u8"
    assert options["stream"] == "packed"
    assert (options["seed"], options["resume"]) == (7, False)
    assert options["storage"] == "sqlite:///x.db"


def test_a_family_is_tuned_by_its_name(tlang, search):
    assert tlang("tune", "threefry").exit_code == 0
    assert search.calls[0][0] == "threefry"


@pytest.mark.parametrize(
    "result",
    [[report(interrupted=True, ratio=None, compared=False)], KeyboardInterrupt()],
)
def test_ctrl_c_says_what_is_kept(tlang, search, result):
    search.result = result
    url = "postgresql://me:secret@host/trials"
    done = tlang("tune", "bits", "--storage", url)
    assert done.exit_code == 130
    assert "the same command resumes from there" in done.stderr
    assert "secret" not in done.output
    found = json.loads(tlang("tune", "bits", "--json").stdout)
    assert found["interrupted"]


def test_a_family_refuses_a_type_that_a_member_lacks(tlang, search):
    result = tlang("tune", "threefry", "--dtype", "u16")
    assert result.exit_code == 2
    assert "not u16" in result.stderr
    assert search.calls == []


def test_lines_come_only_with_what_is_new(capsys):
    with Plain(Course(2, 60.0, None)) as listen:
        listen(progress(1, best=5e-3))
        listen(progress(2, best=4.99e-3))
        listen(progress(3, best=4e-3))
        listen(progress(1, member=2, best=7e-3))
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in shown] == [
        "random.bits: 1 of 56 tried",
        "random.bits: 3 of 56 tried",
        "random.bits: 1 of 56 tried",
    ]


def test_standing_counts_failures_by_kind():
    said = status_line(progress(9, ok=6, wrong=1, crashed=2))
    assert said == "9 of 56 tried, best 5 ms, default 6 ms, 2 crashed, 1 wrong"
    unknown = dataclasses.replace(progress(1, best=None), space=None)
    assert status_line(unknown) == "1 tried, default 6 ms"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (56, "56"),
        (1_234, "1.2k"),
        (56_000, "56k"),
        (11_708_928, "11M"),
        (2**31, "2.1G"),
    ],
)
def test_large_spaces_are_rounded(count, shown):
    found = dataclasses.replace(progress(7), space=count)
    assert status_line(found).startswith(f"7 of {shown} tried")


def test_a_course_ends_with_its_budget_or_its_trials(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now[0])
    by_time, by_trials = Course(2, 60.0, None), Course(2, None, 10)
    assert (by_time.part, by_time.left, by_trials.left) == (0.0, "-:--", "-:--")
    now[0] = 15.0
    assert (by_time.part, by_time.left) == (0.25, "0:45")
    by_trials.note(progress(5, member=1))
    assert (by_trials.part, by_trials.left) == (0.25, "0:45")
    by_trials.note(progress(10, member=2))
    assert (by_trials.part, by_trials.left) == (1.0, "0:00")
    now[0] = 75.0
    assert by_time.part == 1.0


def test_a_bar_shows_the_best_and_the_time_left(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        progress_display.console,
        "console",
        lambda: Console(file=screen, force_terminal=True, width=160),
    )
    with Bar(Course(2, 60.0, None)) as listen:
        listen(progress(4, member=2, ok=3, wrong=1))
    shown = screen.getvalue()
    assert "2/2 random.bits" in shown
    assert "left" in shown
    assert "4 of 56 tried, best 5 ms, default 6 ms, 1 wrong" in shown
