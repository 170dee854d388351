"""Programs on which a random schedule once went wrong: refused now, or right."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.codegen.blocks import remove_blocks
from tensorlang.errors import ScheduleError
from tensorlang.ir import compute, function, placeholder, run, verify
from tensorlang.ir.contents import free_vars, loops
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.legality import disabled
from tensorlang.scheduling.steps.annotate import bind, vectorize
from tensorlang.scheduling.steps.atomic import atomic
from tensorlang.scheduling.steps.cache import cache_read
from tensorlang.scheduling.steps.cache_write import cache_write
from tensorlang.scheduling.steps.compute_at import compute_at
from tensorlang.scheduling.steps.inline import inline
from tensorlang.scheduling.steps.loops import fuse, split
from tensorlang.scheduling.steps.memory import set_scope
from tensorlang.scheduling.steps.partition import partition, specialize
from tensorlang.scheduling.steps.pipeline import double_buffer
from tensorlang.scheduling.steps.reduction import decompose_reduction
from tensorlang.scheduling.steps.reindex import reindex
from tensorlang.scheduling.steps.reverse_compute_at import reverse_compute_at
from tensorlang.scheduling.steps.rfactor import rfactor
from tensorlang.scheduling.steps.tensorize import tensorize

COPY = parse("""
def copy(x: f32[4], y: Out[f32[4]]):
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = x[vi]
""")

CHAIN = parse("""
def chain(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi] * 2.0
    for j in range(4):
        with block("y", vj=spatial(4, j)):
            y[vj] = t[vj] + 1.0
""")

SCAN = parse("""
def scan(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=ordered(4, i)):
            if vi == 0:
                t[vi] = x[vi]
            else:
                t[vi] = x[vi] - t[vi - 1]
    for j in range(4):
        with block("y", vj=spatial(4, j)):
            y[vj] = t[vj]
""")


def test_cache_write_of_a_split_that_overshoots_by_a_whole_tile():
    func, (_, middle, _) = split(COPY, "i", [None, 4, 4])
    with pytest.raises(ScheduleError, match="the block writes every element of its"):
        cache_write(func, "y", "y", "global", middle)


def test_compute_at_under_a_loop_that_the_producer_is_under_already(same_meaning):
    func, (_, _) = cache_write(COPY, "y", "y", "global", "i")
    same_meaning(COPY, compute_at(func, "y", "i"))


def test_compute_at_further_out_than_a_cached_copy(same_meaning, wrong):
    func = parse("""
def rows(x: f32[3, 4], y: Out[f32[3]]):
    for i in range(3):
        for k in range(4):
            with block("y", vi=spatial(3, i), vk=reduction(4, k)):
                reduce(sum, y[vi], x[vi, vk])
""")
    func, (copy, _) = cache_read(func, "y", "x", "global", "k")
    rule = "a moved producer computes each element once"
    with pytest.raises(ScheduleError, match=rule):
        compute_at(func, copy, "i")
    with disabled(rule):
        after = compute_at(func, copy, "i")
    wrong(func, after)
    same_meaning(func, compute_at(func, copy, "k"))


def test_compute_at_refuses_a_scan():
    with pytest.raises(ScheduleError, match="which it writes; such a scan"):
        compute_at(SCAN, "t", "j")


def test_reverse_compute_at_under_an_ordered_loop(same_meaning):
    same_meaning(SCAN, reverse_compute_at(SCAN, "y", "i"))


def test_reverse_compute_at_refuses_a_reader_of_one_element():
    func = parse("""
def third(x: f32[4], y: Out[f32[1]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    with block("y", vj=spatial(1, 0)):
        y[vj] = t[2]
""")
    with pytest.raises(ScheduleError, match="reads 't' at 2 always"):
        reverse_compute_at(func, "y", "i")


def test_reverse_compute_at_refuses_a_producer_under_a_condition():
    func, other = specialize(CHAIN, "i", "1 < 2")
    with pytest.raises(ScheduleError, match="runs under 1 < 2 only"):
        reverse_compute_at(func, "y", other)


def test_reindex_leaves_what_an_init_reads(same_meaning):
    func = parse("""
def biased(x: f32[4, 3], y: Out[f32[4]]):
    for i in range(4):
        for k in range(3):
            with block("y", vi=spatial(4, i), vk=reduction(3, k)):
                with init():
                    y[vi] = x[3 - vi, 0]
                reduce(sum, y[vi], x[vi, vk])
""")
    after, _ = reindex(func, "y", "x")
    same_meaning(func, after)


@pytest.mark.parametrize("at", [1, 3])
def test_half_of_a_partition_does_not_write_a_whole_tile(at):
    func, _ = partition(COPY, "i", at)
    for half in ("y", "y_tail"):
        with pytest.raises(ScheduleError, match="the block writes every element of"):
            cache_write(func, half, "y", "global")
        with pytest.raises(ScheduleError, match="covers all of its axes"):
            reindex(func, half, "y")
        with pytest.raises(ScheduleError, match="covers all of its axes"):
            reindex(func, half, "x")


def test_half_of_a_symbolic_partition_does_not_write_a_whole_tile():
    func = parse("""
def copy(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range(n // 2):
        with block("y", vi=spatial(n, i)):
            y[vi] = x[vi]
""")
    with pytest.raises(ScheduleError, match="the block writes every element of its"):
        cache_write(func, "y", "y", "global")


def test_half_of_a_consumer_does_not_move(wrong):
    func = parse("""
def twice(x: f32[4], y: InOut[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi] + 1.0
    for j in range(4):
        with block("y", vj=spatial(4, j)):
            y[vj] = y[vj] + t[vj]
""")
    func, _ = partition(func, "j", 1)
    rule = "a moved block covers all of its axes"
    with pytest.raises(ScheduleError, match=rule):
        reverse_compute_at(func, "y", "i")
    with disabled(rule):
        after = reverse_compute_at(func, "y", "i")
    wrong(func, after)


def test_a_consumer_does_not_move_to_half_of_its_producer():
    func, (_, tail) = partition(CHAIN, "i", 1)
    for loop in ("i", tail):
        with pytest.raises(ScheduleError, match="iterations write disjoint tiles"):
            reverse_compute_at(func, "y", loop)


def test_a_consumer_of_one_element_runs_once_where_it_goes():
    func = parse("""
def first(x: f32[2, 3], y: Out[f32[1]]):
    t = alloc(f32[2])
    for k in range(3):
        for i in range(2):
            with block("t", vi=spatial(2, i), vk=reduction(3, k)):
                reduce(sum, t[vi], x[vi, vk])
    with block("y", vj=spatial(1, 0)):
        y[vj] = t[1]
""")
    after = reverse_compute_at(func, "y", "k")
    assert [loop.var.name for loop in loops(after)] == ["k", "i"]


BESIDE = parse("""
def beside(x: f32[4], y: Out[f32[4]], z: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi] * 2.0
    for k in range(4):
        z[k] = t[k]
    for j in range(4):
        with block("y", vj=spatial(4, j)):
            y[vj] = t[vj]
""")


@pytest.mark.parametrize(
    "step",
    [
        lambda: compute_at(BESIDE, "t", "j"),
        lambda: inline(BESIDE, "t"),
        lambda: inline(BESIDE, "y", reverse=True),
    ],
)
def test_statements_outside_of_blocks_are_readers_too(step):
    with pytest.raises(ScheduleError, match="'t' is read outside of a block's body"):
        step()


def test_statements_outside_of_blocks_are_users_of_a_nest_too():
    func = parse("""
def sums(x: f32[4, 3], y: Out[f32[4]], z: Out[f32[4]]):
    for r in range(2):
        for i in range(4):
            for k in range(3):
                with block("y", vr=spatial(2, r), vi=spatial(4, i), vk=reduction(3, k)):
                    reduce(sum, y[vi], x[vi, vk])
        z[r] = y[r]
""")
    with pytest.raises(ScheduleError, match="a statement uses 'y' in the same nest"):
        cache_write(func, "y", "y", "global")
    with pytest.raises(ScheduleError, match="a statement uses the result of 'y'"):
        decompose_reduction(func, "y", "r")


@pytest.mark.parametrize(
    "step",
    [
        lambda func: cache_read(func, "y", "t", "shared", "j"),
        lambda func: cache_write(func, "y", "y", "shared", "j"),
        lambda func: compute_at(set_scope(func, "t", "shared"), "t", "j"),
    ],
)
def test_a_thread_has_no_shared_memory_of_its_own(step):
    with pytest.raises(ScheduleError, match="belongs to one thread"):
        step(bind(CHAIN, "j", "thread.x"))


def test_accumulating_under_a_loop_that_is_spatial_too():
    func = parse("""
def rows(x: f32[2, 3], y: Out[f32[2]]):
    for f in range(6):
        with block("y", vi=spatial(2, f % 2), vk=reduction(3, f // 2)):
            reduce(sum, y[vi], x[vi, vk])
""")
    with pytest.raises(ScheduleError, match="loop belongs to the reduction alone"):
        cache_write(func, "y", "y", "register", "f", accumulate=True)


def test_a_producer_whose_fused_loops_do_not_all_matter_moves(same_meaning):
    func = parse("""
def chain(x: f32[3], y: Out[f32[3]]):
    t = alloc(f32[3])
    for i in range(3):
        for k in range(1):
            with block("t", vi=spatial(3, i), vk=reduction(1, k)):
                reduce(sum, t[vi], x[vi])
    for j in range(3):
        with block("y", vj=spatial(3, j)):
            y[vj] = t[vj]
""")
    func, _ = fuse(func, "i", "k")
    same_meaning(func, compute_at(func, "t", "j"))


def test_tensorize_under_a_vectorized_loop():
    func = parse("""
def product(a: f32[2], b: f32[2, 8], y: InOut[f32[8]]):
    for k in range(2):
        for j in range(8):
            with block("y", vj=spatial(8, j), vk=reduction(2, k)):
                with init():
                    pass
                reduce(sum, y[vj], a[vk] * b[vk, vj])
""")
    with pytest.raises(ScheduleError, match="'k' around the tile is vectorized"):
        tensorize(vectorize(func, "k"), "j", "fma_8xf32")


def test_a_loop_with_shared_memory_inside_is_no_loop_of_threads():
    func = parse("""
def rows(x: f32[1], y: Out[f32[1, 3]]):
    for i in range(1):
        for j in range(3):
            t = alloc(f32[3], scope="shared")
            with block("t", ti=spatial(1, i), tj=spatial(3, j)):
                t[tj] = x[ti]
            with block("y", vi=spatial(1, i), vj=spatial(3, j)):
                y[vi, vj] = t[vj]
""")
    assert bind(func, "j", "block.x") != func
    with pytest.raises(ScheduleError, match="belongs to one thread"):
        bind(func, "j", "thread.x")


PRODUCT = parse("""
def product(a: f32[2], b: f32[2, 8], y: InOut[f32[1, 8]]):
    for i in range(1):
        for k in range(2):
            for j in range(8):
                with block("y", vi=spatial(1, i), vj=spatial(8, j),
                           vk=reduction(2, k)):
                    with init():
                        pass
                    reduce(sum, y[vi, vj], a[vk] * b[vk, vj])
""")


def test_an_instruction_that_goes_on_from_its_result_is_not_cached():
    func, _ = fuse(tensorize(PRODUCT, "j", "fma_8xf32"), "i", "k")
    with pytest.raises(
        ScheduleError, match="a cached reduction initializes its own state"
    ):
        cache_write(func, "y", "y", "global")


def test_an_instruction_is_not_reindexed():
    func = tensorize(PRODUCT, "j", "fma_8xf32")
    with pytest.raises(ScheduleError, match="works on vectors"):
        reindex(func, "y", "b")


def test_registers_and_shared_memory_have_a_constant_size():
    func = parse("""
def chain(x: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[n])
    for i in range(n):
        with block("t", vi=spatial(n, i)):
            t[vi] = x[vi]
    for j in range(n):
        with block("y", vj=spatial(n, j)):
            y[vj] = t[vj]
""")
    for scope in ("register", "shared"):
        with pytest.raises(ScheduleError, match="the size of t varies"):
            set_scope(func, "t", scope)


def test_a_consumer_keeps_its_condition():
    func = parse("""
def chain(x: f32[1], y: Out[f32[n, 1]], *, n: i64):
    t = alloc(f32[1])
    for i in range(1):
        with block("t", vi=spatial(1, i)):
            t[vi] = x[vi]
    for j in range(n):
        for k in range(1):
            with block("y", vj=spatial(n, j), vk=spatial(1, k)):
                y[vj, vk] = t[vk]
""")
    func = specialize(func, "j", "n == 4")[0]
    with pytest.raises(
        ScheduleError, match="'y' runs under n == 4 only, and block 't'"
    ):
        reverse_compute_at(func, "y", "i")


def test_a_consumer_does_not_join_atomic_updates():
    func = parse("""
def chain(x: f32[3, 2], z: Out[f32[3]]):
    y = alloc(f32[3])
    for i in range(3):
        for k in range(2):
            with block("y", vi=spatial(3, i), vk=reduction(2, k)):
                with init():
                    pass
                reduce(sum, y[vi], x[vi, vk])
    for j in range(3):
        with block("z", vj=spatial(3, j)):
            z[vj] = y[vj]
""")
    with pytest.raises(ScheduleError, match="updates 'y' by atomics"):
        reverse_compute_at(atomic(func, "y"), "z", "i")


def test_a_start_is_guarded_by_loops_that_drive_no_axis():
    func = parse("""
def total(x: f32[4], y: Out[f32[1]]):
    for k in range(4):
        for j in range(3):
            for i in range(2):
                with block("y", vk=reduction(4, k), where=j * 2 + i < 1):
                    reduce(sum, y[0], x[vk])
""")
    (start,) = [loop for loop in loops(remove_blocks(func)) if loop.var.name == "j"][:1]
    assert {loop.var.name for loop in loops(start)} == {"j", "i"}
    assert not free_vars(remove_blocks(func).body)


def test_stages_that_go_to_one_place_are_no_epilogue_of_what_fills_them():
    func = parse("""
def chain(x: f32[4], y: Out[f32[1]]):
    for k in range(4):
        t = alloc(f32[1])
        with block("t", vk=spatial(4, k)):
            t[0] = x[vk]
        u = alloc(f32[1])
        with block("u"):
            u[0] = t[0]
        with block("y", vk_1=reduction(4, k)):
            reduce(sum, y[0], u[0] * u[0])
""")
    with pytest.raises(ScheduleError, match="does not go over all of 't'"):
        inline(double_buffer(func, "k"), "u", reverse=True)


def test_a_producer_does_not_leave_what_it_has_cached_behind():
    made = Schedule(
        parse("""
def sums(x: f32[2], y: Out[f32[2]]):
    for k in range(2):
        for i in range(2):
            with block("y", vi=spatial(2, i), vk=reduction(2, k)):
                reduce(sum, y[vi], x[vi])
""")
    )
    made.split("i", [None, 2])
    made.cache_write("y", "y", "global", "i_0", accumulate=True)
    made.cache_read("y", "x", "global", "i_0")
    with pytest.raises(ScheduleError, match="reads 'x_global', which is not alive"):
        made.compute_at("y", "k")


@pytest.mark.parametrize("order", ["o k", "k o"])
def test_a_sum_starts_anew_wherever_its_axes_do(order, same_meaning):
    first, second = order.split()
    func = parse(f"""
def sums(x: f32[3], y: Out[f32[2]]):
    for {first} in range(3):
        for {second} in range(3):
            for i in range(2):
                with block("y", vi=spatial(2, i), vk=reduction(3, k)):
                    reduce(sum, y[vi], x[vk])
""")
    same_meaning(func, remove_blocks(func))
    fused, _ = fuse(func, first, second)
    same_meaning(func, fused)
    same_meaning(func, remove_blocks(fused))


def test_an_epilogue_does_not_run_twice_in_a_fused_loop():
    func = parse("""
def twice(x: f32[2], y: InOut[f32[2]]):
    t = alloc(f32[2])
    for o in range(2):
        for i in range(2):
            with block("t", vi=spatial(2, i)):
                t[vi] = x[vi]
    for j in range(2):
        with block("y", vj=spatial(2, j)):
            y[vj] = y[vj] + t[vj]
""")
    for made in (func, fuse(func, "o", "i")[0]):
        with pytest.raises(ScheduleError, match="exactly once for each element"):
            inline(made, "y", reverse=True)


@pytest.mark.parametrize("order", ["i k", "k i"])
def test_what_is_read_from_a_tile_starts_no_sum_anew(order, same_meaning):
    first, second = order.split()
    func = parse(f"""
def sums(x: f32[3], y: Out[f32[3]]):
    for {first} in range(3):
        for {second} in range(3):
            with block("y", vi=spatial(3, i), vk=reduction(3, k)):
                reduce(sum, y[vi], x[vi])
""")
    fused, name = fuse(func, first, second)
    read = cache_read(fused, "y", "x", "global", name)[0]
    same_meaning(func, read)
    same_meaning(func, remove_blocks(read))


def test_a_state_is_set_again_where_its_loop_comes_again(same_meaning):
    func = parse("""
def sums(x: f32[3], y: Out[f32[4]]):
    for k in range(3):
        for o in range(2):
            for i in range(4):
                with block("y", vo=spatial(2, o), vi=spatial(4, i), vk=reduction(3, k)):
                    reduce(sum, y[vi], x[vk])
""")
    same_meaning(func, remove_blocks(func))
    same_meaning(func, remove_blocks(fuse(func, "o", "i")[0]))
    same_meaning(func, remove_blocks(split(func, "i", [None, 2])[0]))


def test_what_is_not_there_yet_is_not_copied():
    func = parse("""
def last(x: f32[2], y: Out[f32[2]]):
    t = alloc(f32[2])
    for o in range(2):
        if o >= 1:
            for i in range(2):
                with block("y", vi=spatial(2, i)):
                    y[vi] = t[vi]
        for j in range(2):
            with block("t", vj=spatial(2, j)):
                t[vj] = x[vj]
""")
    with pytest.raises(ScheduleError, match="reads 't' under a condition"):
        cache_read(func, "y", "t", "global", "o")
    cache_read(func, "y", "t", "global", "i")


def test_the_slices_of_later_iterations_are_not_copied():
    func = parse("""
def before(x: f32[2], y: Out[f32[2, 2]]):
    t = alloc(f32[2, 2])
    for o in range(2):
        for j in range(2):
            with block("t", vo=spatial(2, o), vj=spatial(2, j)):
                t[vo, vj] = x[vj]
        for i in range(2):
            with block("y", vo=spatial(2, o), vi=spatial(2, i)):
                y[vo, vi] = t[max(vo - 1, 0), vi]
""")
    with pytest.raises(ScheduleError, match="not all of 't' is known to be written"):
        cache_read(func, "y", "t", "global", "o")


def test_a_state_is_written_back_where_all_of_it_is_alive():
    func = parse("""
def places(x: f32[2, 3], at: Out[i64[2]]):
    for o in range(2):
        t = alloc(f32[2])
        for k in range(3):
            with block("y", vo=spatial(2, o), vk=reduction(3, k)):
                reduce(argmax, (t[vo], at[vo]), (x[vo, vk], vk))
""")
    with pytest.raises(ScheduleError, match="'t' is allocated in a loop around"):
        reindex(func, "y", "at")
    with pytest.raises(ScheduleError, match="'t' is allocated in a loop around"):
        cache_write(func, "y", "at", "global")


def test_a_consumer_does_not_leave_what_it_writes_behind():
    func = parse("""
def copied(x: f32[2, 3], y: Out[f32[2, 3]]):
    for i in range(2):
        for j in range(3):
            t = alloc(f32[2, 3])
            s = alloc(f32[2, 3])
            with block("t", vi=spatial(2, i), vj=spatial(3, j)):
                t[vi, vj] = x[vi, vj]
            with block("s", vi=spatial(2, i), vj=spatial(3, j)):
                s[vi, vj] = t[vi, vj]
            with block("y", vi=spatial(2, i), vj=spatial(3, j)):
                y[vi, vj] = s[vi, vj]
""")
    with pytest.raises(
        ScheduleError, match="'s' is allocated further in than loop 'i'"
    ):
        reverse_compute_at(func, "s", "i")


@pytest.mark.parametrize(("shape", "at"), [("4", "{0}"), ("3, 4", "vo, {0}")])
def test_two_branches_are_two_conditions(shape, at):
    func = parse(f"""
def first(x: f32[3, 4], y: InOut[f32[3, 4]]):
    t = alloc(f32[{shape}])
    for o in range(3):
        if o == 0:
            for i in range(4):
                with block("t", vo=spatial(3, o), vi=spatial(4, i)):
                    t[{at.format("vi")}] = x[vo, vi]
        else:
            for j in range(4):
                with block("y", vo=spatial(3, o), vj=spatial(4, j)):
                    y[vo, vj] = t[{at.format("vj")}]
""")
    with pytest.raises(ScheduleError, match=r"'t' runs under o == 0 only|overlap"):
        reverse_compute_at(func, "y", "i")
    if shape == "4":  # an element of its own for each `o` is read as nobody wrote it
        with pytest.raises(ScheduleError, match="'t' runs under o == 0 only"):
            compute_at(func, "t", "j")


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (3, 0, 2)])
def test_loops_of_no_steps_fuse(shape):
    x = placeholder(shape, "f32", "x")
    s = Schedule(function("f", [x], [compute(shape, lambda *i: x[i] + 1.0, "y")]))
    fused, *others = s.loops("y")
    for loop in others:
        fused = s.fuse(fused, loop)
    s.parallel(fused)
    verify(s.function)


PARTIAL = """
def f(x: i32[4], y: Out[i32[4, 1]]):
    t = alloc(i32[1])
    for o in range(4):
        for i in range(1):
            with block("t", vo=reduction(4, o), vi=spatial(1, i)):
                reduce(sum, t[vi], x[vo])
        for j in range(1):
            with block("y", wo=spatial(4, o), vj=spatial(1, j)):
                y[wo, vj] = t[vj]
"""
TOGETHER = """
def f(x: i32[4], s: Out[i32[1]]):
    m = alloc(i32[1])
    for i in range(1):
        for k in range(4):
            with block("m", vi=spatial(1, i), vk=reduction(4, k)):
                reduce(max, m[vi], x[vk])
            with block("s", wi=spatial(1, i), wk=reduction(4, k)):
                reduce(sum, s[wi], m[wi])
"""
USED_AGAIN = """
def f(x: i32[3], y: Out[i32[3]]):
    t = alloc(i32[1])
    w = alloc(i32[3])
    for i in range(3):
        with block("w", vi=spatial(3, i)):
            w[vi] = x[vi]
    for a in range(3):
        for b in range(1):
            with block("t", va=spatial(3, a), vb=spatial(1, b)):
                t[vb] = w[va]
        for c in range(1):
            with block("y", ya=spatial(3, a), yc=spatial(1, c)):
                y[ya] = t[yc]
"""
NAMED = """
def f(x: i32[3], z: Out[i32[3]]):
    t = alloc(i32[3])
    for i in range(3):
        with block("t", vi=spatial(3, i)):
            t[vi] = x[vi]
    b: i32 = x[1]
    for a in range(3):
        with block("z", va=spatial(3, a)):
            z[va] = t[va] + b
"""
START = """
def f(x: i32[3], z: Out[i32[3]]):
    t = alloc(i32[3])
    for i in range(3):
        with block("t", vi=spatial(3, i)):
            t[vi] = x[vi]
    for a in range(3):
        for b in range(2):
            with block("z", va=spatial(3, a), vb=reduction(2, b)):
                with init():
                    z[va] = t[2 - va]
                reduce(sum, z[va], t[va])
"""


@pytest.mark.parametrize(
    ("text", "block", "loop", "says"),
    [
        (PARTIAL, "y", "i", "what block 't' has reduced so far"),
        (PARTIAL, "y", "o", "what block 't' has reduced so far"),
        (TOGETHER, "s", "i", "what block 'm' has reduced so far"),
        (USED_AGAIN, "t", "i", "uses 't' behind block 't' in each iteration of loop"),
        (NAMED, "z", "i", "uses 'b', which is named behind block 't'"),
        (START, "z", "i", "reads 't' in 2 places"),
    ],
)
def test_a_consumer_keeps_what_it_read(text, block, loop, says):
    with pytest.raises(ScheduleError, match=says):
        reverse_compute_at(parse(text), block, loop)


def test_an_epilogue_uses_no_value_that_is_named_behind_its_block():
    with pytest.raises(ScheduleError, match="'b', which is named behind block 't'"):
        inline(parse(NAMED), "z", reverse=True)


def test_of_several_states_none_is_taken_apart_from_the_others():
    two = parse("""
def f(x: i32[4], s: Out[i32[1]], p: Out[i32[1]]):
    for i in range(1):
        for k in range(4):
            with block("sp", vi=spatial(1, i), vk=reduction(4, k)):
                reduce(sum, s[vi], x[vk])
                reduce(max, p[vi], x[vk])
""")
    with pytest.raises(ScheduleError, match="updates 2 states, which start together"):
        cache_write(two, "sp", "p", "global", "k", accumulate=True)
    beside = parse("""
def f(x: i32[4], z: Out[i32[1]], p: InOut[i32[1]]):
    for a in range(1):
        for b in range(4):
            with block("z", va=spatial(1, a), vb=reduction(4, b)):
                with init():
                    z[va] = i32(0)
                    p[va] = i32(5)
                reduce(sum, z[va], x[vb])
                p[va] = p[va] * i32(2) + x[vb]
""")
    with pytest.raises(ScheduleError, match="reduces 1 states and updates 2"):
        rfactor(beside, "z", "b", 0)


def test_a_condition_that_loads_is_asked_within_the_loop_only():
    func = parse("""
def f(x: i32[4], z: InOut[i32[4]]):
    for a in range(4):
        with block("z", va=spatial(4, a), where=x[3 - a] > i32(1)):
            z[va] = x[va]
""")
    x, z = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    run(split(func, "a", [None, 3])[0], x, z)
    assert z.tolist() == [0, 1, 0, 0]


def test_a_partial_result_is_not_inlined_behind_the_loop_that_makes_it():
    func = parse("""
def f(x: f32[4], y: Out[f32[4]]):
    r = alloc(f32[1])
    t = alloc(f32[4, 1])
    for q in range(4):
        for i in range(1):
            with block("r", vi=spatial(1, i), vq=reduction(4, q)):
                reduce(sum, r[vi], x[vq])
        for j in range(1):
            with block("t", wq=spatial(4, q), vj=spatial(1, j)):
                t[wq, vj] = r[vj]
    for k in range(4):
        with block("y", vk=spatial(4, k)):
            y[vk] = t[vk, 0]
""")
    with pytest.raises(ScheduleError, match="as it is in each iteration of a loop"):
        inline(func, "t")


def test_what_a_loop_writes_once_is_inlined_behind_it(same_meaning):
    func = parse("""
def f(x: f32[4], y: Out[f32[4]]):
    r = alloc(f32[4])
    t = alloc(f32[4])
    for q in range(4):
        with block("r", vq=spatial(4, q)):
            r[vq] = x[vq] * 2.0
        with block("t", wq=spatial(4, q)):
            t[wq] = r[wq] + 1.0
    for k in range(4):
        with block("y", vk=spatial(4, k)):
            y[vk] = t[vk]
""")
    same_meaning(func, inline(func, "t"))


@pytest.mark.parametrize("step", ["fuse_dims", "fuse_axes"])
def test_an_index_outside_that_is_never_used_stays(step, same_meaning):
    func = parse("""
def f(x: f32[1, 1], y: Out[f32[1, 1]]):
    t = alloc(f32[1, 1])
    for o in range(1):
        for i in range(1):
            with block("t", vi=spatial(1, i), vo=ordered(1, o)):
                if vo == 0:
                    t[vi, vo] = x[vi, vi]
                else:
                    t[vi, vo] = x[vi, vi] - t[vi, vo - 1]
    for k in range(1):
        for l in range(1):
            with block("y", vk=spatial(1, k), vl=spatial(1, l)):
                if vk < 1:
                    y[vk, vl] = t[vk, vl]
                else:
                    y[vk, vl] = t[vk - 1, vl + 1]
""")
    s = Schedule(func)
    if step == "fuse_dims":
        s.fuse_dims("t", [0, 1])
    else:
        s.fuse_axes("y", ["vk", "vl"])
    verify(s.function)
    same_meaning(func, s.function)
