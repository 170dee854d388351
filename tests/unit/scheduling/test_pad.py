"""pad: temporaries and blocks rounded up to tile multiples."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.cache import cache_read
from tensorlang.scheduling.steps.cache_write import cache_write
from tensorlang.scheduling.steps.loops import split
from tensorlang.scheduling.steps.pad import pad
from tensorlang.scheduling.steps.reindex import reindex

MATMUL = parse("""
def matmul(a: f32[10, 7], b: f32[7, 5], c: Out[f32[10, 5]]):
    for i in range(10):
        for j in range(5):
            for k in range(7):
                with block("c", vi=spatial(10, i), vj=spatial(5, j),
                           vk=reduction(7, k)):
                    reduce(sum, c[vi, vj], a[vi, vk] * b[vk, vj])
""")

SCALED = parse("""
def scaled(x: f32[n], s: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[n])
    for i in range(n):
        with block("t", vi=spatial(n, i)):
            h: f32 = x[vi] * s[vi]
            t[vi] = h + 1.0
    for j in range(n):
        with block("y", vj=spatial(n, j)):
            y[vj] = t[vj]
""")


def packed(func=MATMUL):
    func, _ = cache_read(func, "c", "a", "global")
    func, _ = cache_read(func, "c", "b", "global")
    func, _ = cache_write(func, "c", "c", "global")
    return func


def test_pad_a_temporary_of_symbolic_size(golden, same_meaning):
    after = pad(SCALED, "t", [8])
    golden(show(after))
    for n in (1, 8, 11):
        same_meaning(SCALED, after, n=n)


def test_pad_a_block_so_that_tiles_need_no_guards(golden, same_meaning):
    after = pad(packed(), "c", [4, 8, 2])
    after, _ = split(after, "i", 4)
    after, _ = split(after, "k", 2)
    assert "where" not in show(after)
    golden(show(after))
    same_meaning(MATMUL, after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: pad(MATMUL, "c", [4, 4, 1]), "is a parameter and keeps its shape"),
        (lambda: pad(packed(), "c", [4, 4]), "takes 3 multiples"),
        (lambda: pad(packed(), "a_global", [4, 0]), "of at least 1"),
        (
            lambda: pad(split(packed(), "i", 3)[0], "c", [4, 1, 1]),
            "pad before splitting",
        ),
    ],
)
def test_refusals_of_padding(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()


def renamed(func):
    """A block apart from its buffer's name: `pad` takes either."""
    return parse(show(func).replace('block("u"', 'block("quotient"'))


def test_pad_tells_a_block_from_a_temporary_of_its_name(same_meaning):
    func, _ = cache_read(MATMUL, "c", "b", "global")
    func, (_, name) = cache_write(func, "c", "c", "global")
    func = parse(show(func).replace('block("c"', f'block("{name}"'))
    after = pad(func, name, [1, 8, 1])
    assert f"{name} = alloc(f32[10, 8])" in show(after)
    assert "b_global = alloc(f32[7, 8])" in show(after)
    same_meaning(MATMUL, after)


def test_pad_leaves_loops_that_something_else_counts_by():
    moved = parse("""
def third(x: f32[4], y: Out[f32[3]]):
    t = alloc(f32[3])
    for c in range(3):
        with block("t", v=spatial(4, 1 + c), w=spatial(3, c)):
            t[w] = x[v]
    for i in range(3):
        with block("y", vi=spatial(3, i)):
            y[vi] = t[vi]
""")
    with pytest.raises(ScheduleError, match="'w' of block 't' is not one whole loop"):
        pad(moved, "t", [2])


def test_pad_leaves_loops_that_bound_others():
    triangle = parse("""
def triangle(x: f32[3], y: Out[f32[3]]):
    t = alloc(f32[3])
    for i in range(3):
        for j in range(i + 1):
            with block("t", vi=spatial(3, i), vj=spatial(3, j)):
                t[vi] = x[vj]
    for k in range(3):
        with block("y", vk=spatial(3, k)):
            y[vk] = t[vk]
""")
    with pytest.raises(ScheduleError, match="'vi' of block 't' is not one whole loop"):
        pad(triangle, "t", [2])


WINDOWS = parse("""
def windows(x: f32[9], w: f32[3], y: Out[f32[7]]):
    for i in range(7):
        for k in range(3):
            with block("y", vi=spatial(7, i), vk=reduction(3, k)):
                reduce(sum, y[vi], x[vi + vk] * w[vk])
""")


def test_pad_reads_on_where_results_are_discarded(same_meaning):
    func, (_, name) = reindex(WINDOWS, "y", "x")
    func, _ = cache_write(func, "y", "y", "global")
    after = pad(func, "y", [4, 1], discarded=True)
    assert f"{name} = alloc(f32[8, 3])" in show(after)
    assert "select(vi_1 + vk_1 < 9, x[min(vi_1 + vk_1, 8)], 0.0)" in show(after)
    same_meaning(WINDOWS, after)
    filled = show(pad(func, "y", [4, 1]))
    assert "select(vi_1 < 7, x[min(vi_1, 6) + vk_1], 0.0)" in filled
