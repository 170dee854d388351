"""What an adversary tried, and what fuzzing found: refused, or right."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling.steps.annotate import parallel
from tensorlang.scheduling.steps.cache import cache_read
from tensorlang.scheduling.steps.cache_write import cache_write
from tensorlang.scheduling.steps.compute_at import compute_at
from tensorlang.scheduling.steps.loops import fuse, reorder, split
from tensorlang.scheduling.steps.merge import merge
from tensorlang.scheduling.steps.pad import pad
from tensorlang.scheduling.steps.partition import partition, specialize
from tensorlang.scheduling.steps.reduction import decompose_reduction
from tensorlang.scheduling.steps.reindex import reindex
from tensorlang.scheduling.steps.reverse_compute_at import reverse_compute_at
from tensorlang.scheduling.steps.rfactor import rfactor
from tensorlang.scheduling.steps.storage import store_at, store_in
from tensorlang.scheduling.steps.tensorize import tensorize

SUMS = parse("""
def sums(x: f32[5, 7], y: Out[f32[5]]):
    for i in range(5):
        for k in range(7):
            with block("y", vi=spatial(5, i), vk=reduction(7, k)):
                reduce(sum, y[vi], x[vi, vk])
""")


def test_parts_of_a_fused_loop_are_not_exchanged_across_the_start_of_a_sum():
    func, name = fuse(SUMS, "i", "k")
    func, (outer, inner) = split(func, name, [3, 16])
    with pytest.raises(ScheduleError, match="which one of them starts"):
        reorder(func, inner, outer)


def test_parts_of_a_sum_are_exchanged_where_each_begins_at_its_start(same_meaning):
    func, name = fuse(SUMS, "i", "k")
    func, (_, outer, inner) = split(func, name, [5, None, 2])
    with pytest.raises(ScheduleError, match="which one of them starts"):
        reorder(func, inner, outer)
    func, (outer, inner) = split(SUMS, "k", 3)
    same_meaning(SUMS, reorder(func, inner, "i", outer))
    func, name = fuse(SUMS, "i", "k")
    func, (outer, inner) = split(func, name, [None, 7])
    same_meaning(SUMS, reorder(func, inner, outer))


def test_where_a_sum_is_set_before_its_parts_have_no_order(same_meaning):
    func, _ = decompose_reduction(SUMS, "y", "i")
    func, name = fuse(func, "y/i", "k")
    func, (outer, inner) = split(func, name, [3, 16])
    same_meaning(SUMS, reorder(func, inner, outer))


SCATTERED = parse("""
def scattered(x: f32[4, 3], at: i64[4], y: InOut[f32[4]]):
    for i in range(4):
        for k in range(3):
            with block(
                "y",
                row=opaque(4, at[i] % 4),
                vi=spatial(4, i),
                vk=reduction(3, k),
            ):
                reduce(sum, y[row], x[vi, vk])
""")

OVERWRITTEN = parse("""
def overwritten(x: f32[4, 3, 2], y: Out[f32[4]]):
    for i in range(4):
        for j in range(3):
            for k in range(2):
                with block("y", vi=spatial(4, i), vj=spatial(3, j), vk=reduction(2, k)):
                    reduce(sum, y[vi], x[vi, vj, vk])
""")


@pytest.mark.parametrize(("func", "loop"), [(SCATTERED, "i"), (OVERWRITTEN, "j")])
def test_what_blocks_call_spatial_is_seen_from_their_indices(func, loop):
    with pytest.raises(ScheduleError, match="are not independent"):
        parallel(func, loop)
    with pytest.raises(ScheduleError, match="must keep this order"):
        reorder(func, "k", loop)
    with pytest.raises(ScheduleError, match=f"loop '{loop}' may start the same state"):
        decompose_reduction(func, "y", loop)


def test_a_copy_in_a_parallel_loop_is_not_moved_out_of_it():
    func, (_, tile) = cache_read(SUMS, "y", "x", "global", "k")
    func = parallel(func, "i")
    nested = parse("""
def nested(x: f32[2, 4], y: Out[f32[2, 4]]):
    for r in range(2):
        for i in parallel(4):
            t = alloc(f32[1])
            t[0] = x[r, i]
            with block("y", vr=spatial(2, r), vi=spatial(4, i)):
                y[vr, vi] = t[0] + x[vr, vi]
""")
    for program, name, loop in ((func, tile, "i"), (nested, "t", "r")):
        with pytest.raises(ScheduleError, match="lives inside of loop"):
            store_at(program, name, loop)


def test_a_temporary_that_is_its_own_index_lives_in_an_iteration(same_meaning):
    func = parse("""
def twice(x: f32[4], ids: i64[4], y: Out[f32[4, 4]]):
    t = alloc(i64[4, 4])
    for i in range(4):
        for j in range(4):
            t[i, j] = (ids[j] + i) % 4
        for k in range(4):
            y[i, k] = x[t[i, t[i, k]]]
""")
    same_meaning(func, store_at(func, "t", "i"))


def test_parts_of_a_sum_are_not_counted_by_rows():
    triangle = parse("""
def triangle(x: f32[5], y: Out[f32[5]]):
    for i in range(5):
        for k in range(i + 1):
            with block("y", vi=spatial(5, i), vk=reduction(5, k)):
                reduce(sum, y[vi], x[vk])
""")
    func, (outer, _) = split(triangle, "k", 2)
    with pytest.raises(ScheduleError, match="cannot be outside of loop 'i'"):
        rfactor(func, "y", outer)


def test_conditions_and_cuts_do_not_divide_by_what_may_be_nothing():
    func = parse("""
def copy(x: f32[10], y: Out[f32[10]], *, n: i64):
    for i in range(10):
        with block("y", vi=spatial(10, i)):
            y[vi] = x[vi]
""")
    with pytest.raises(ScheduleError, match="10 // n may fault"):
        specialize(func, "i", "10 // n > 2")
    with pytest.raises(ScheduleError, match="10 % n may fault"):
        partition(func, "i", "10 % n")


def test_merged_loops_keep_what_they_call_alike_apart():
    func = parse("""
def pair(x: f32[4], y: Out[f32[4]], z: Out[f32[4]]):
    for i in range(4):
        h: f32 = x[i]
        y[i] = h
    for j in range(4):
        h: f32 = x[j] * 2.0
        z[j] = h
""")
    with pytest.raises(ScheduleError, match="is called 'h', as in loop 'i'"):
        merge(func, "i", "j")


def test_a_merge_that_conflicts_names_both_loops():
    func = parse("""
def turned(x: f32[4], y: Out[f32[4]]):
    a = alloc(f32[4])
    for i in range(4):
        a[i] = x[i]
    for j in range(4):
        y[j] = a[3 - j]
""")
    with pytest.raises(ScheduleError, match=r"of loop 'j' needs more .* of loop 'i'"):
        merge(func, "i", "j")


def test_factors_beyond_all_loops_are_refused():
    with pytest.raises(ScheduleError, match="more than 2\\^48 iterations"):
        split(SUMS, "i", [1 << 40, 1 << 40])


def test_a_condition_on_an_axis_is_one_on_its_value(same_meaning):
    func = parse("""
def some(a: f32[1], x: f32[16], y: InOut[f32[16]]):
    for i in range(2):
        for j in range(8):
            with block("y", vi=spatial(16, i * 8 + j), where=vi < 13):
                reduce(sum, y[vi], a[0] * x[vi])
""")
    with pytest.raises(ScheduleError, match="a tensorized tile is whole"):
        tensorize(func, "j", "fma_8xf32")
    after, _ = cache_read(func, "y", "x", "global", "i")
    same_meaning(func, after)
    same_meaning(func, partition(func, "j", 4)[0])


IN_A_LOOP = parse("""
def in_a_loop(x: f32[2, 4], y: Out[f32[2]]):
    for r in range(2):
        t = alloc(f32[4])
        for i in range(4):
            with block("t", vr=spatial(2, r), vi=spatial(4, i)):
                t[vi] = x[vr, vi]
        y[r] = x[r, 0]
""")


def test_what_lives_in_a_loop_is_not_copied_outside_of_it():
    for primitive in (cache_write, reindex):
        scope = ("global",) if primitive is cache_write else ()
        with pytest.raises(ScheduleError, match="'t' is allocated in a loop around"):
            primitive(IN_A_LOOP, "t", "t", *scope)


def test_conditions_in_a_block_are_over_what_it_sees():
    func = parse("""
def rows(x: f32[4], y: Out[f32[4, 2]]):
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            for l in range(2):
                y[vi, l] = x[vi]
""")
    specialize(func, "l", "vi < 2")
    with pytest.raises(ScheduleError, match="no variable 'i' is in scope here"):
        specialize(func, "l", "i < 2")


def test_what_is_padded_keeps_a_layout_that_is_one_to_one():
    func = parse("""
def laid(x: f32[1, 16], y: Out[f32[1, 16]]):
    t = alloc(f32[1, 16], layout=lambda i, j: (i * 9 + j,))
    for i in range(1):
        for j in range(16):
            with block("t", vi=spatial(1, i), vj=spatial(16, j)):
                t[vi, vj] = x[vi, vj]
    for k in range(16):
        with block("y", vk=spatial(16, k)):
            y[0, vk] = t[0, vk]
""")
    with pytest.raises(ScheduleError, match="a layout is one-to-one"):
        pad(func, "t", [2, 1])


def test_a_block_that_goes_along_a_loop_of_its_own_is_not_moved():
    func = parse("""
def rows(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4, 2])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            for l in range(2):
                t[vi, l] = x[vi]
    for j in range(4):
        with block("y", vj=spatial(4, j)):
            y[vj] = t[vj, 1]
""")
    with pytest.raises(ScheduleError, match="it must use its axes themselves"):
        compute_at(func, "t", "j")


def test_a_temporary_is_not_kept_where_its_own_reader_overwrites_it():
    func = parse("""
def spread(real: f32[2, 3], top: Out[f32[2]], total: Out[f32[2]]):
    for i in range(2):
        for k in range(3):
            with block("b", vi=spatial(2, i), vk=reduction(3, k)):
                reduce(logsumexp, (top[vi], total[vi]), (real[vi, vk], 1.0))
""")
    func, _ = cache_write(func, "b", "total", "global")
    with pytest.raises(ScheduleError, match="may read 'total_global' after it has"):
        store_in(func, "total_global", "top")


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("loop", ["i", "k"])
def test_operands_of_an_instruction_are_copied_where_their_vectors_are(
    same_meaning, operand, loop
):
    func = parse("""
def pairs(a: bf16[1, 4], b: bf16[4, 16], y: InOut[f32[1, 16]]):
    for i in range(1):
        for k in range(2):
            for j in range(16):
                for q in range(2):
                    with block("y", vi=spatial(1, i), vj=spatial(16, j),
                               vk=reduction(4, k * 2 + q)):
                        with init():
                            pass
                        reduce(sum, y[vi, vj],
                               cast(f32, a[vi, vk]) * cast(f32, b[vk, vj]))
""")
    func = tensorize(func, "j", "dpbf16ps_bf16_columns")
    same_meaning(func, cache_read(func, "y", operand, "global", loop)[0])


IN_PLACE = parse("""
def in_place(x: i32[6, 8], y: InOut[i32[6, 8]]):
    t = alloc(i32[6, 8])
    for i in range(6):
        for j in range(8):
            with block("t", vi=spatial(6, i), vj=spatial(8, j)):
                t[vi, vj] = x[vi, vj] + y[vi, vj]
    for i_1 in range(6):
        for j_1 in range(8):
            with block("u", vi_1=spatial(6, i_1), vj_1=spatial(8, j_1)):
                y[vi_1, vj_1] = t[vi_1, 7 - vj_1] * i32(3)
""")


def test_a_block_before_what_overwrites_its_input_is_no_consumer_of_it():
    with pytest.raises(ScheduleError, match=r"stands before .u."):
        reverse_compute_at(IN_PLACE, "t", "i_1")


def test_a_block_behind_what_overwrites_its_result_is_no_producer_of_it():
    with pytest.raises(ScheduleError):
        compute_at(IN_PLACE, "u", "i")
