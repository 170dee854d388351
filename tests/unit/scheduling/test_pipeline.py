"""pipeline and double_buffer: what a loop stages is fetched ahead."""

from __future__ import annotations

from collections import Counter

import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import InterpreterError, ScheduleError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Barrier, Call, Evaluate, Seq, seq
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.visit import transform, walk
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.steps.pipeline import double_buffer, pipeline
from tensorlang.targets import get

GPU = get("cuda:sm_80")
SUMS = parse("""
def sums(x: f32[n, 16], y: Out[f32[16]], *, n: i64):
    for k in range(n):
        t = alloc(f32[16], scope="shared")
        for i in range(16):
            with block("t_copy", vk=spatial(n, k), vi=spatial(16, i)):
                t[vi] = x[vk, vi]
        for i_1 in range(16):
            with block("y", vi=spatial(16, i_1), vk=reduction(n, k)):
                reduce(sum, y[vi], t[vi])
""")


def test_pipeline(golden, same_meaning):
    made = pipeline(SUMS, "k", 3)
    golden(show(made))
    for n in (1, 2, 3, 7):
        same_meaning(SUMS, made, n=n)


ROLES = parse("""
def rows(x: f32[4, 512], y: Out[f32[4, 128]]):
    for b in bound(4, "block.x"):
        sums = alloc(f32[128], scope="shared", layout=lambda j: (j, 0))
        for s in bound(128, "thread.x"):
            with block("start", vs=spatial(128, s)):
                sums[vs] = 0.0
        for k in range(8):
            t = alloc(f32[64], scope="shared")
            for i in range(64):
                with block("t", vb=spatial(4, b), vk=spatial(512, k * 64 + i),
                           vi=spatial(64, i)):
                    t[vi] = x[vb, vk]
            for j in bound(128, "thread.x"):
                with block("sums", wj=spatial(128, j), wk=reduction(8, k)):
                    with init():
                        pass
                    reduce(sum, sums[wj], t[wj % 64])
        for r in bound(128, "thread.x"):
            with block("y", ub=spatial(4, b), vr=spatial(128, r)):
                y[ub, vr] = sums[vr]
""")


def test_roles_of_a_producer_and_consumers(golden, same_meaning):
    made = pipeline(ROLES, "k", 3, roles=True)
    golden(show(made))
    same_meaning(ROLES, made)
    same_meaning(ROLES, pipeline(ROLES, "k", 3, roles=True, in_flight=2))


@pytest.mark.parametrize(("roles", "in_flight"), [(True, 3), (True, -1), (False, 1)])
def test_products_in_flight_leave_a_stage(roles, in_flight):
    with pytest.raises(ScheduleError, match=f"in_flight={in_flight}, with 3 stages"):
        pipeline(ROLES, "k", 3, roles=roles, in_flight=in_flight)


def test_products_in_flight_are_of_fewer_iterations_than_there_are():
    few = parse(show(ROLES).replace("range(8)", "range(2)"))
    with pytest.raises(ScheduleError, match="in_flight=2, but loop 'k' has 2 iter"):
        pipeline(few, "k", 3, roles=True, in_flight=2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('bound(4, "block.x")', "range(4)", "no loop around 'k' is bound to blocks"),
        (', scope="shared", layout=lambda j: (j, 0)', "", "'sums' is shared by the"),
        ('j in bound(128, "thread.x")', "j in range(128)", "has no loop over threads"),
        ("bound(128", "bound(96", "have \\[96, 128\\]"),
    ],
)
def test_what_cannot_have_roles(old, new, message):
    text = show(ROLES)
    assert old in text
    with pytest.raises(ScheduleError, match=message):
        pipeline(parse(text.replace(old, new, 1)), "k", 3, roles=True)


@pytest.mark.parametrize(("roles", "blocks"), [(False, 4), (True, 0), (True, -3)])
def test_blocks_that_stay_are_some_and_have_roles(roles, blocks):
    with pytest.raises(ScheduleError, match=f"blocks={blocks} and roles={roles}: "):
        pipeline(ROLES, "k", 3, roles=roles, blocks=blocks)


def test_warpgroups_of_a_role_meet_only_themselves(same_meaning):
    text = show(ROLES).replace("128", "256").replace("layout=lambda j: (j, 0)", "")
    func = parse(text.replace('"shared", )', '"shared")'))
    same_meaning(func, pipeline(func, "k", 3, roles=True))
    turned = parse(show(func).replace("= sums[vr]", "= sums[255 - vr]"))
    with pytest.raises(ScheduleError, match="'sums' is shared by the 256 threads"):
        pipeline(turned, "k", 3, roles=True)


def test_double_buffer(golden, same_meaning):
    made = double_buffer(SUMS, "k")
    golden(show(made))
    for n in (1, 2, 5):
        same_meaning(SUMS, made, n=n)


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_any_number_of_stages(stages, same_meaning):
    same_meaning(SUMS, pipeline(SUMS, "k", stages), n=5)


def test_a_trace_replays():
    s = Schedule(SUMS)
    s.pipeline("k", 2)
    assert str(s.trace) == 's.pipeline("k", 2)'
    assert s.trace.replay(SUMS) == s.function


def test_layouts_keep_their_stage_apart(same_meaning):
    s = Schedule(SUMS)
    s.transform_layout("t", "lambda i: (i % 4, i // 4)")
    s.double_buffer("k")
    assert "lambda stage, i: (stage, i % 4, i // 4)" in show(s.function)
    same_meaning(SUMS, s.function, n=4)


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (lambda: pipeline(SUMS, "i_1", 2), "stages nothing: cache_read what it reads"),
        (lambda: pipeline(SUMS, "k", 1), "takes 2 to 8 stages, not 1"),
        (lambda: double_buffer(SUMS, "j"), "j"),
    ],
)
def test_refusals(step, complaint):
    with pytest.raises(ScheduleError, match=complaint):
        step()


BLOCK = parse("""
def total(x: f32[16, 128], y: Out[f32[32]]):
    for b in bound(1, "block.x"):
        for k in range(16):
            t = alloc(f32[128], scope="shared")
            for i in bound(32, "thread.x"):
                for v in vectorized(4):
                    with block("t_copy", vk=spatial(16, k), vi=spatial(128, i * 4 + v)):
                        t[vi] = x[vk, vi]
            for j in bound(32, "thread.x"):
                for p in range(4):
                    with block("y", vj=spatial(32, j), vk=reduction(16, k),
                               vp=reduction(4, p)):
                        reduce(sum, y[vj], t[vp * 32 + vj])
""")


def right(func, same_values):
    import numpy as np

    x, y = np.arange(2048, dtype="f4").reshape(16, 128), np.zeros(32, "f4")
    run(func, x.reshape(-1) if same_values else x, y)
    np.testing.assert_array_equal(y, x.reshape(16, 4, 32).sum((0, 1)))


def test_one_barrier_an_iteration():
    made = lower(pipeline(BLOCK, "k", 3), GPU)
    right(made, same_values=True)
    assert sum(isinstance(node, Barrier) for node in walk(made)) == 1


def without(func, gone, number):
    """The function without the statement of that number that `gone` tells."""
    count = Counter()

    def visit(node):
        if not isinstance(node, Seq):
            return node
        kept = []
        for stmt in node.stmts:
            if gone(stmt):
                count["found"] += 1
                if count["found"] == number + 1:
                    continue
            kept.append(stmt)
        return seq(*kept)

    return transform(func, visit)


def is_wait(stmt):
    return (
        isinstance(stmt, Evaluate)
        and isinstance(stmt.expr, Call)
        and stmt.expr.name == "wait_copies"
    )


@pytest.mark.parametrize("gone", [is_wait, lambda stmt: isinstance(stmt, Barrier)])
def test_what_is_missing_is_found(gone):
    made = without(lower(pipeline(BLOCK, "k", 3), GPU), gone, 0)
    with pytest.raises(InterpreterError, match=r"race: t\[|while a copy into it"):
        right(made, same_values=True)


def test_a_double_buffer_has_no_races():
    made = lower(double_buffer(BLOCK, "k"), GPU)
    right(made, same_values=True)
    assert "async" not in show(made)


@pytest.mark.parametrize("block", ["t_copy", "t_copy_first"])
def test_what_is_cached_is_no_copy_under_way(block, same_meaning):
    made = Schedule(pipeline(SUMS, "k", 3))
    loop = made.loops(block)[-1]
    made.cache_write(block, "t", "global", loop)
    for n in (1, 2, 3, 7):
        same_meaning(SUMS, made.function, n=n)


def test_a_loop_over_results_keeps_the_start_of_their_sums(same_meaning):
    func = parse("""
def rows(x: f32[2, 2], y: Out[f32[2]]):
    for i in range(2):
        t = alloc(f32[1, 1])
        with block("t_copy", v=spatial(2, i), w=spatial(2, i)):
            t[0, 0] = x[v, w]
        for k in range(2):
            with block("y", vi=spatial(2, i), vk=reduction(2, k)):
                reduce(sum, y[vi], t[0, 0])
""")
    same_meaning(func, pipeline(func, "i", 2))


def test_a_start_from_what_is_staged_is_refused():
    func = parse("""
def total(x: f32[4], y: Out[f32[1]]):
    for k in range(4):
        t = alloc(f32[1])
        with block("t_copy", v=spatial(4, k)):
            t[0] = x[v]
        with block("y", vi=spatial(1, 0), vk=reduction(4, k)):
            with init():
                y[vi] = t[0]
            reduce(sum, y[vi], t[0])
""")
    with pytest.raises(ScheduleError, match="'y' starts its sums from what is staged"):
        double_buffer(func, "k")
