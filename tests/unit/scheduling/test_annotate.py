"""Annotations: parallel, bind, vectorize, unroll, set_scope, hint."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.analysis.legality import disabled
from tensorlang.scheduling.steps.annotate import bind, parallel, unroll, vectorize
from tensorlang.scheduling.steps.loops import fuse, reorder, split
from tensorlang.scheduling.steps.memory import hint, set_scope
from tensorlang.scheduling.steps.partition import partition

MATMUL = parse("""
def matmul(a: f32[n, 7], b: f32[10, 7], c: Out[f32[n, 10]], *, n: i64):
    for i in range(n):
        for j in range(10):
            for k in range(7):
                with block("c", vi=spatial(n, i), vj=spatial(10, j),
                           vk=reduction(7, k)):
                    reduce(sum, c[vi, vj], a[vi, vk] * b[vj, vk])
""")

SCAN = parse("""
def scan(x: f32[4, 9], y: Out[f32[4, 9]]):
    for i in range(4):
        for j in range(9):
            with block("y", vi=spatial(4, i), vj=ordered(9, j)):
                if vj == 0:
                    y[vi, vj] = x[vi, vj]
                else:
                    y[vi, vj] = y[vi, vj - 1] + x[vi, vj]
""")

STAGES = parse("""
def stages(x: f32[8, 5], t: Out[f32[8, 5]], y: Out[f32[8]], z: Out[f32[8]]):
    for i in range(8):
        for j in range(5):
            with block("t", vi=spatial(8, i), vj=spatial(5, j)):
                t[vi, vj] = x[vi, vj] * 2.0
        for k in range(5):
            with block("y", wi=spatial(8, i), wk=reduction(5, k)):
                reduce(sum, y[wi], t[wi, wk])
    for l in range(7):
        with block("z", ui=spatial(8, l)):
            z[ui] = y[ui + 1]
        z[7] = 0.0
""")

MIRRORED = parse("""
def mirrored(x: f32[8], t: Out[f32[8]], y: Out[f32[8]]):
    for i in range(8):
        with block("t", vi=spatial(8, i)):
            t[vi] = x[vi]
        if i >= 4:
            with block("y", wi=spatial(8, i)):
                y[wi] = t[7 - wi]
        else:
            with block("zero", zi=spatial(8, i)):
                y[zi] = 0.0
""")

TEMPORARY = parse("""
def temporary(x: f32[6, 4], y: Out[f32[6]]):
    t = alloc(f32[6, 4])
    for i in range(6):
        for j in range(4):
            with block("t", vi=spatial(6, i), vj=spatial(4, j)):
                t[vi, vj] = x[vi, vj]
    for i in range(6):
        s = alloc(f32[1])
        for k in range(4):
            with block("s", si=spatial(1, 0), wi=spatial(6, i), wk=reduction(4, k)):
                reduce(sum, s[si], t[wi, wk])
        with block("y", ui=spatial(6, i)):
            y[ui] = s[0]
""")


def test_parallel(golden, same_meaning):
    after = parallel(MATMUL, "i")
    golden(show(after))
    same_meaning(MATMUL, after, n=5)


@pytest.mark.parametrize("loop", ["i", "j"])
def test_parallel_over_spatial_loops_of_any_depth(same_meaning, loop):
    same_meaning(MATMUL, parallel(reorder(MATMUL, "k", "i", "j"), loop), n=3)


def test_parallel_over_split_and_fused_loops(same_meaning):
    func, (i0, i1) = split(MATMUL, "i", 3)
    func, (j0, j1) = split(func, "j", 4)
    func = reorder(func, i0, j0, i1, j1)
    func, outer = fuse(func, i0, j0)
    func, inner = fuse(func, i1, j1)
    for loop in (outer, inner):
        same_meaning(MATMUL, parallel(func, loop), n=5)


def test_parallel_with_a_private_temporary(same_meaning):
    same_meaning(TEMPORARY, parallel(TEMPORARY, "s/i"))


def test_parallel_over_stages_that_meet_in_one_iteration(same_meaning):
    same_meaning(STAGES, parallel(STAGES, "i"))


def test_parallel_refuses_a_reduction(wrong):
    with pytest.raises(ScheduleError, match="loop 'k' are not independent"):
        parallel(MATMUL, "k")
    with disabled("parallel iterations are independent"):
        after = parallel(MATMUL, "k")
    wrong(MATMUL, after, n=3)


def test_parallel_refuses_what_another_iteration_wrote(wrong):
    with pytest.raises(ScheduleError, match="block 't' writes and block 'y' reads"):
        parallel(MIRRORED, "i")
    with disabled("parallel iterations are independent"):
        after = parallel(MIRRORED, "i")
    wrong(MIRRORED, after)


def test_parallel_refuses_a_statement_that_all_iterations_run():
    with pytest.raises(ScheduleError, match="a statement writes and a statement write"):
        parallel(STAGES, "l")


def test_parallel_refuses_opaque_targets_unless_disjoint(same_meaning):
    text = """
def scatter(at: i64[6], x: f32[6, 2], y: Out[f32[6, 2]]):
    for i in range(6):
        for d in range(2):
            with block("y", vi=KIND(6, i), vd=spatial(2, d)):
                y[at[vi] * 0 + vi, vd] = x[vi, vd]
"""
    with pytest.raises(ScheduleError, match="not independent"):
        parallel(parse(text.replace("KIND", "opaque")), "i")
    for kind, loop in (("opaque", "d"), ("disjoint", "i")):
        func = parse(text.replace("KIND", kind))
        same_meaning(func, parallel(func, loop))


def test_parallel_loops_do_not_nest_and_are_annotated_once():
    with pytest.raises(ScheduleError, match="loop 'i' in the same nest is"):
        parallel(parallel(MATMUL, "i"), "j")
    with pytest.raises(ScheduleError, match="loop 'i' is parallel already"):
        vectorize(parallel(MATMUL, "i"), "i")


def test_bind(golden, same_meaning):
    after = bind(bind(MATMUL, "i", "block.x"), "j", "thread.x")
    golden(show(after))
    same_meaning(MATMUL, after, n=3)


def test_bind_refuses_unknown_and_doubled_indices():
    with pytest.raises(ScheduleError, match=r"'lane.x' is none of block.x"):
        bind(MATMUL, "i", "lane.x")
    with pytest.raises(ScheduleError, match=r"'j' cannot be thread.x: loop 'i'"):
        bind(bind(MATMUL, "i", "thread.x"), "j", "thread.x")


def test_vectorize(golden, same_meaning):
    func, (_, inner) = split(MATMUL, "j", 4)
    func = reorder(func, "k", inner)
    after = vectorize(func, inner)
    golden(show(after))
    same_meaning(MATMUL, after, n=3)


def test_vectorize_folds_a_commutative_reduction(same_meaning):
    same_meaning(MATMUL, vectorize(MATMUL, "k"), n=3)


def test_vectorize_refuses_an_order(wrong):
    with pytest.raises(ScheduleError, match="lanes of loop 'j' are not independent"):
        vectorize(SCAN, "j")
    with disabled("lanes are independent or reduce"):
        after = vectorize(SCAN, "j")
    wrong(SCAN, after)


def test_vectorize_refuses_lanes_of_several_states():
    func, name = fuse(MATMUL, "j", "k")
    with pytest.raises(ScheduleError, match="not independent"):
        vectorize(func, name)


@pytest.mark.parametrize("verb", [vectorize, unroll])
def test_extents_are_constants(verb):
    with pytest.raises(ScheduleError, match="extent n, which is no constant from 1 to"):
        verb(MATMUL, "i")


def test_vectorize_refuses_lanes_out_of_step():
    func = parse("""
def triangle(x: f32[5], y: Out[f32[5]]):
    for i in range(5):
        for j in range(i + 1):
            with block("y", vi=spatial(5, i), vj=reduction(5, j)):
                reduce(sum, y[vi], x[vj])
""")
    with pytest.raises(ScheduleError, match="which differs between lanes of 'i'"):
        vectorize(func, "i")
    with pytest.raises(ScheduleError, match="fuse the two first"):
        vectorize(vectorize(MATMUL, "j"), "k")


def test_unroll(same_meaning):
    after = unroll(MATMUL, "k")
    assert "for k in unrolled(7):" in show(after)
    same_meaning(MATMUL, after, n=2)


def test_set_scope(same_meaning):
    after = set_scope(TEMPORARY, "s", "register")
    assert 's = alloc(f32[1], scope="register")' in show(after)
    same_meaning(TEMPORARY, after)


def test_set_scope_refuses_parameters_and_unknown_scopes():
    with pytest.raises(ScheduleError, match="allocates no 'x'; its temporaries: t, s"):
        set_scope(TEMPORARY, "x", "register")
    with pytest.raises(ScheduleError, match="'cache' is none of"):
        set_scope(TEMPORARY, "s", "cache")


def test_threads_do_not_share_what_belongs_to_one(wrong):
    func = bind(TEMPORARY, "s/i", "thread.x")
    with pytest.raises(ScheduleError, match=r"s belongs to one thread.x"):
        set_scope(func, "s", "shared")
    with disabled("threads share no temporary of one thread"):
        after = set_scope(func, "s", "shared")
    wrong(TEMPORARY, after)
    with pytest.raises(ScheduleError, match="not independent"):
        bind(set_scope(TEMPORARY, "s", "shared"), "s/i", "thread.x")


def test_blocks_have_shared_memories_of_their_own(same_meaning):
    after = bind(set_scope(TEMPORARY, "s", "shared"), "s/i", "block.x")
    same_meaning(TEMPORARY, after)


def test_registers_are_not_shared_by_threads():
    with pytest.raises(ScheduleError, match="t of scope register is outside"):
        set_scope(parallel(TEMPORARY, "t/i"), "t", "register")
    with pytest.raises(ScheduleError, match="t of scope private is outside"):
        parallel(set_scope(TEMPORARY, "t", "private"), "t/i")


def test_hint(golden, same_meaning):
    after = hint(STAGES, "t", "t", "nontemporal")
    after = hint(after, "t", "x", "nontemporal", "prefetch")
    golden(show(after))
    same_meaning(STAGES, after)


def test_hint_refuses_what_it_cannot_promise():
    with pytest.raises(ScheduleError, match="hints are nontemporal, prefetch"):
        hint(STAGES, "t", "t", "fast")
    with pytest.raises(ScheduleError, match="'y' does not touch x"):
        hint(STAGES, "y", "x", "nontemporal")
    with pytest.raises(ScheduleError, match="hints are nontemporal, prefetch"):
        hint(TEMPORARY, "s", "t", "aligned")  # a vector of t[i + 1] is not


def test_partitioned_loops_are_annotated_apart(same_meaning):
    func, (main, tail) = partition(MATMUL, "j", 8)
    after = vectorize(unroll(func, tail), main)
    same_meaning(MATMUL, after, n=3)
