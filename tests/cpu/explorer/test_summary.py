"""The summary of a page: loops, copies, knobs and the limit, in words."""

from __future__ import annotations

import pytest

from tensorlang.explorer.choices import comparisons
from tensorlang.explorer.loop_table import loops_of
from tensorlang.explorer.summary import summary
from tensorlang.ir.text.parser import parse
from tensorlang.machine.limits import Limits
from tensorlang.scheduling.knobs import Knobs
from tensorlang.scheduling.schedule import Schedule

MATMUL = """
def matmul(x: f32[8, 16], w: f32[32, 16], y: Out[f32[8, 32]]):
    for i in range(8):
        for j in range(32):
            for k in range(16):
                with block(
                    "y", vi=spatial(8, i), vj=spatial(32, j), vk=reduction(16, k)
                ):
                    reduce(sum, y[vi, vj], x[vi, vk] * w[vj, vk])
"""


def summarised(function, limits, **knobs):
    asked = Knobs(pinned=knobs)
    for name, value in knobs.items():
        asked.choice(name, [value])
    return summary(function, function, loops_of(function, {}), limits, asked)


def of(subject):
    function, kernel = subject.schedule.function, subject.kernel
    rows, knobs = loops_of(function, subject.sizes), subject.knobs
    compared = comparisons(knobs)
    return summary(
        function, kernel.lowered, rows, subject.limits, knobs, compared=compared
    )


def test_loops_are_named_as_they_are_shown():
    s = Schedule(parse(MATMUL))
    s.vectorize("k")
    rows = loops_of(s.function, {})
    said = summary(
        s.function, s.function, rows, Limits(None), Knobs(), shown={"k": "depth"}
    )
    assert said["vectors"] == "depth (16)"


def test_what_became_of_loops_and_arrays():
    s = Schedule(parse(MATMUL))
    outer, inner = s.split("j", [None, 8])
    s.reorder(outer, "i", "k", inner)
    _, tile = s.cache_read("y", "w", "global", at=outer)
    s.transform_layout(tile, lambda j, k: (k, j))
    s.parallel(outer)
    s.vectorize(inner)
    assert summarised(s.function, Limits(None, (), "not measured"), lanes=8) == {
        "vectors": f"{inner} (8)",
        "threads": f"{outer} (4)",
        "copies": "w \N{RIGHTWARDS ARROW} w_global "
        f"(global f32[8, 16], in another order) in each {outer}",
        "knobs": "lanes=8",
        "why": "usual values: no model or rule of this schedule compares others",
        "search": "none on this machine: tlang tune compares other knobs",
        "limit": "not measured",
    }


def test_a_plain_function_has_a_limit_alone():
    limits = Limits(None, (), "the work depends on data")
    found = summarised(parse(MATMUL), limits)
    assert found.keys() == {"search", "limit"}
    assert found["limit"] == "the work depends on data"


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("dense", "llvm", {"vectors", "threads", "copies", "knobs", "why", "limit"}),
        ("softmax", "llvm", {"vectors", "threads", "limit"}),
        ("optim.adam", "llvm", {"vectors", "threads", "limit"}),
    ],
)
def test_each_question_has_an_answer(subject, name, target, said):
    found = subject(name, target=target)
    made = of(found)
    assert said <= made.keys()
    assert all(made.values())


def test_loops_are_those_that_run_for_the_sizes():
    s = Schedule(
        parse("""
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        with block("y", vi=spatial(n, i)):
            y[vi] = x[vi] + 1.0
""")
    )
    (n,) = s.function.scalars
    whole, rest = s.partition("i", n // 2048 * 2048)
    outer, _ = s.split(whole, [None, 2048])
    s.parallel(outer)
    s.parallel(rest)

    def threads(size):
        rows = loops_of(s.function, {"n": size})
        return summary(s.function, s.function, rows, Limits(None), Knobs())["threads"]

    assert threads(1000) == f"{rest} (1,000)"
    assert threads(4096) == f"{outer} (2)"
    assert threads(4100) == f"{outer} (2), {rest} (4)"
