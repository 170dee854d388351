"""Schedule: its methods, its trace (printed, replayed, as JSON), the registries."""

from __future__ import annotations

import inspect
import json
from functools import partial

import pytest

from tensorlang.errors import ArgumentError, ScheduleError
from tensorlang.ir.nodes import Var
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling import (
    LEGALITY,
    PRIMITIVES,
    Knobs,
    Schedule,
    Trace,
    registry,
    schedule,
    schedules_for,
)
from tensorlang.scheduling.analysis.legality import disabled, legality
from tensorlang.scheduling.primitives import primitive

MATMUL = parse("""
def matmul(a: f32[n, 7], b: f32[10, 7], c: Out[f32[n, 10]], *, n: i64):
    for i in range(n):
        for j in range(10):
            for k in range(7):
                with block("c", vi=spatial(n, i), vj=spatial(10, j),
                           vk=reduction(7, k)):
                    reduce(sum, c[vi, vj], a[vi, vk] * b[vj, vk])
""")


def _scheduled() -> Schedule:
    s = Schedule(MATMUL)
    i0, i1 = s.split("i", [None, 4])
    s.reorder(i0, "j", "k", i1)
    s.partition(i0, Var("n") // 4)
    s.specialize(i0, "n % 4 == 0")
    s.unroll(i1)
    s.hint("c", "a", "nontemporal")
    return s


def test_the_loops_around_a_block():
    assert Schedule(MATMUL).loops("c") == ("i", "j", "k")
    assert _scheduled().loops("c") == ("i_0", "j", "k", "i_1")
    with pytest.raises(ScheduleError, match="no block"):
        Schedule(MATMUL).loops("d")


def _twice(s: Schedule, loop: str) -> None:
    s.split(loop, [None, 2])
    s.vectorize(loop)  # is no more


def test_what_is_attempted_and_declined_leaves_nothing_but_its_reason():
    s = Schedule(MATMUL)
    s.split("i", [None, 4])
    function, trace = s.function, s.trace
    assert not s.attempt(_twice, s, "j")
    assert not s.attempt(partial(s.inline, reverse=True), "c")
    assert s.function is function
    assert s.trace is trace
    assert s.attempt(s.unroll, "i_1")
    first, second = s.declined
    assert (first.after, first.way) == (1, f"{__name__}.twice")
    assert "'j'" in first.reason
    assert second.way == 's.inline("c", reverse=True)'
    split, one, other, unroll = s.annotated_trace().split("\n")
    assert [split, unroll] == [str(step) for step in s.trace]
    assert [one, other] == [f"# declined {first}", f"# declined {second}"]


def test_what_is_no_mistake_of_a_schedule_is_not_declined():
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Schedule(MATMUL).attempt(broken)


def test_trace_prints_as_calls(golden):
    golden(str(_scheduled().trace) + "\n")


def test_trace_is_the_program_that_repeats_it():
    s = Schedule(MATMUL)
    exec(str(_scheduled().trace), {"s": s})  # only to compare what is printed
    assert s.function == _scheduled().function


def test_trace_crosses_json():
    s = _scheduled()
    trace = Trace.from_json(json.loads(json.dumps(s.trace.to_json())))
    assert trace == s.trace
    assert trace.replay(MATMUL) == s.function


def test_trace_replays_on_another_size(same_meaning):
    text = "a: f32[n, 3], b: f32[6, 3], c: Out[f32[n, 6]]"
    other = parse(f"""
def matmul({text}, *, n: i64):
    for i in range(n):
        for j in range(6):
            for k in range(3):
                with block("c", vi=spatial(n, i), vj=spatial(6, j), vk=reduction(3, k)):
                    reduce(sum, c[vi, vj], a[vi, vk] * b[vj, vk])
""")
    s = Schedule(other)
    s.replay(_scheduled().trace)
    assert s.trace == _scheduled().trace
    for n in (4, 6):
        same_meaning(other, s.function, n=n)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([["os.system", ["true"], {}]], "names no primitive: 'os.system'"),
        ([["split", ["i"]]], r"is \[primitive, \[arguments\], {options}\]"),
        (["split"], r"is \[primitive"),
        ([["split", [{"a": 1}], {}]], "cannot be kept in a trace"),
    ],
)
def test_trace_refuses_other_json(steps, sentence):
    with pytest.raises(ScheduleError, match=sentence):
        Trace.from_json(steps)


def test_a_layout_is_kept_as_text():
    s = Schedule(MATMUL)
    _, tile = s.cache_read("c", "b", "global")
    s.transform_layout(tile, lambda i, j: (j // 4, i, j % 4))
    last = s.trace.steps[-1]
    assert last.args == (tile, "lambda i, j: (j // 4, i, j % 4)")
    assert Trace.from_json(s.trace.to_json()).replay(MATMUL) == s.function


def test_a_refused_step_changes_nothing():
    s = _scheduled()
    function, trace = s.function, s.trace
    with pytest.raises(ScheduleError, match="no loop 'q'"):
        s.split("q", 4)
    assert (s.function, s.trace) == (function, trace)


def test_steps_with_wrong_arguments_are_sentences():
    s = Schedule(MATMUL)
    with pytest.raises(ScheduleError, match=r"s.split\(\"i\"\): missing a required"):
        s.apply("split", "i")
    with pytest.raises(ScheduleError, match="there is no such primitive"):
        s.apply("explode", "i")
    with pytest.raises(ScheduleError, match="cannot be kept in a trace"):
        s.apply("split", "i", {1, 2})


def test_every_primitive_is_a_method_with_its_parameters():
    for name, function in PRIMITIVES.items():
        method = getattr(Schedule, name)
        made = list(inspect.signature(method).parameters)[1:]
        assert made == list(inspect.signature(function).parameters)[1:], name


def test_every_primitive_shows_loops_before_and_after():
    for name, function in PRIMITIVES.items():
        doc = inspect.getdoc(function) or ""
        assert "Raises:" in doc, name
        assert "    for " in doc or "->" in doc or "alloc(" in doc, name


def test_primitives_and_rules_have_one_name():
    with pytest.raises(ScheduleError, match="two primitives are named 'split'"):

        @primitive
        def split() -> None:
            return None

    with pytest.raises(ScheduleError, match="two checks are registered"):
        legality("split factors cover the loop")(lambda: None)


def test_disabled_rules_are_back_afterwards():
    s = Schedule(MATMUL)
    with disabled("split factors cover the loop"):
        Schedule(MATMUL).split("j", [2, 2])
    with pytest.raises(ScheduleError, match="rule: split factors cover the loop"):
        s.split("j", [2, 2])
    with (
        pytest.raises(ScheduleError, match="there is no rule 'gravity'"),
        disabled("gravity"),
    ):
        pass
    assert "split factors cover the loop" in LEGALITY


@pytest.fixture
def empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "SCHEDULES", {})


@pytest.mark.usefixtures("empty_registry")
def test_schedules_are_found_by_family_algorithm_and_model():
    @schedule("matmul", algorithm="packed")
    def packed(s: Schedule, knobs: Knobs) -> None:
        rows = knobs.choice("rows", [2, 4])
        s.split("i", rows)

    @schedule("matmul", algorithm="packed", model="simt")
    def tiles(s: Schedule, knobs: Knobs) -> None:
        s.bind("i", knobs.choice("index", ["block.x"]))

    (entry,) = schedules_for("matmul", "packed", "cpu")
    assert str(entry) == "matmul/packed for cpu"
    assert len(schedules_for("matmul")) == 2
    assert schedules_for("conv") == ()
    assert str(entry.run(MATMUL).trace) == 's.split("i", 2)'
    run = entry.run(MATMUL, knobs=Knobs.replay({"rows": 4}))
    assert str(run.trace) == 's.split("i", 4)'
    with pytest.raises(ArgumentError, match="knob 'rows' is one of 2, 4, not 3"):
        entry.run(MATMUL, knobs=Knobs.replay({"rows": 3}))


@pytest.mark.usefixtures("empty_registry")
def test_a_schedule_is_registered_once():
    @schedule("matmul", algorithm="packed")
    def packed(s: Schedule, knobs: Knobs) -> None:
        del s, knobs

    with pytest.raises(ScheduleError, match="matmul/packed for cpu is scheduled by"):
        schedule("matmul", algorithm="packed")(lambda *_: None)
    with pytest.raises(ScheduleError, match="'tpu' is not one of the execution models"):
        schedule("matmul", model="tpu")
