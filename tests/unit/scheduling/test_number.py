"""The names of loops: short, unique, and numbered in the order of the text."""

import pytest

from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling.schedule import Schedule
from tensorlang.scheduling.steps.loops import fuse, split
from tensorlang.scheduling.steps.number import number_loops

MATMUL = parse("""
def matmul(x: f32[8, 12], w: f32[12, 6], y: Out[f32[8, 6]]):
    for i in range(8):
        for j in range(6):
            for k in range(12):
                with block(
                    "y", vi=spatial(8, i), vj=spatial(6, j), vk=reduction(12, k)
                ):
                    reduce(sum, y[vi, vj], x[vi, vk] * w[vk, vj])
""")


def names_of(func):
    return [loop.var.name for loop in loops(func.body)]


def test_parts_of_parts_have_the_next_numbers(same_meaning):
    after, (_, inner) = split(MATMUL, "i", 4)
    after, parts = split(after, inner, 2)
    assert parts == ("i_2", "i_3")
    after = number_loops(after)
    assert names_of(after) == ["i_0", "i_1", "i_2", "j", "k"]
    same_meaning(MATMUL, after)


def test_fused_parts_are_named_after_their_loops():
    s = Schedule(MATMUL)
    i_0, i_1 = s.split("i", 4)
    j_0, j_1 = s.split("j", 3)
    s.reorder(i_0, j_0, i_1, j_1)
    assert s.fuse(i_0, j_0) == "i_j"
    assert s.fuse(i_1, j_1) == "i_j_1"
    assert s.fuse("i_j", "i_j_1") == "i_j_2"
    s.number_loops()
    assert names_of(s.function) == ["i_j", "k"]


def test_the_parts_of_one_loop_fuse_to_it():
    after, (outer, inner) = split(MATMUL, "i", 2)
    assert fuse(after, outer, inner)[1] == "i"


def test_a_number_is_left_out_only_if_the_name_is_free():
    func = parse("""
def f(i: f32[8], y: Out[f32[8]]):
    for i_3 in range(8):
        with block("y", vi=spatial(8, i_3)):
            y[vi] = i[vi]
""")
    assert names_of(number_loops(func)) == ["i_0"]


def test_loops_of_equal_names_stay_equal():
    func = parse("""
def f(x: f32[8], y: Out[f32[8]], z: Out[f32[8]]):
    for k_2 in range(8):
        with block("y", vi=spatial(8, k_2)):
            y[vi] = x[vi]
    for k_2 in range(8):
        with block("z", vi=spatial(8, k_2)):
            z[vi] = x[vi]
""")
    assert names_of(number_loops(func)) == ["k", "k"]


def test_a_schedule_without_split_loops_has_no_such_step():
    s = Schedule(MATMUL)
    s.number_loops()
    assert s.function is MATMUL
    assert not s.trace.steps


def test_copies_are_named_after_the_axes_that_they_are_read_by():
    s = Schedule(MATMUL)
    outer, _ = s.split("i", 4)
    s.cache_read("y", "x", "shared", at=outer)
    s.cache_read("y", "w", "shared", at=outer)
    s.number_loops()
    assert names_of(s.function) == [
        *("i_0", "i_1", "k_0"),  # the copy of x
        *("k_1", "j_0"),  # of w
        *("i_2", "j_1", "k_2"),
    ]


@pytest.mark.parametrize("name", ["for_0", "True_0", "_0", "_0_1"])
def test_a_name_whose_word_is_no_name_stays(name):
    func = parse(f"""
def f(x: f32[8], y: Out[f32[8]]):
    for {name} in range(8):
        with block("y", vi=spatial(8, {name})):
            y[vi] = x[vi]
""")
    assert parse(str(number_loops(func))) == func


def test_a_copy_by_axes_whose_words_are_no_names():
    s = Schedule(
        parse("""
def f(x: f32[8, 4], y: Out[f32[8, 4]]):
    for a in range(8):
        for b in range(4):
            with block("y", vin=spatial(8, a), vNone=spatial(4, b)):
                y[vin, vNone] = x[vin, vNone]
""")
    )
    s.cache_read("y", "x", "private")
    assert parse(str(s.function)) == s.function


def test_loops_over_blocks_and_threads_say_so(same_meaning):
    s = Schedule(MATMUL)
    outer, middle, inner = s.split("i", [2, 2, 2])
    s.bind(outer, "block.x")
    s.bind(middle, "thread.x")
    s.number_loops()
    assert names_of(s.function) == ["i_block", "i_thread", "i", "j", "k"]
    assert inner not in names_of(s.function)
    assert number_loops(s.function) is s.function
    same_meaning(MATMUL, s.function)


def test_axes_are_numbered_within_their_block(same_meaning):
    func = parse("""
def f(x: f32[8], y: Out[f32[8]], z: Out[f32[8, 8]]):
    for i_0 in range(8):
        with block("y", vi_4=spatial(8, i_0)):
            y[vi_4] = x[vi_4]
    for i_1 in range(8):
        for i_2 in range(8):
            with block("z", vi_7=spatial(8, i_1), vi_5=spatial(8, i_2)):
                t: f32 = y[vi_5]
                z[vi_7, vi_5] = x[vi_7] + t
""")
    after = number_loops(func)
    axes = [[axis.var.name for axis in each.axes] for each in blocks(after.body)]
    assert axes == [["vi"], ["vi_0", "vi_1"]]
    assert parse(str(after)) == after
    same_meaning(func, after)
