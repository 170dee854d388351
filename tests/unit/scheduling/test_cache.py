"""cache_read and cache_write: tiles of what a block reads and writes."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.cache import cache_read
from tensorlang.scheduling.steps.cache_write import cache_write

DOUBLE = parse("""
def double(x: f32[50], y: Out[f32[50]]):
    for i in range(2):
        for j in range(32):
            with block("y", vi=spatial(50, i * 32 + j), where=i * 32 + j < 50):
                y[vi] = x[vi] * 2.0
""")

MATMUL = parse("""
def matmul(a: f32[50, 70], b: f32[70, 40], c: Out[f32[50, 40]]):
    for k0 in range(3):
        for i0 in range(4):
            for j0 in range(3):
                for k1 in range(32):
                    for i1 in range(14):
                        for j1 in range(16):
                            with block(
                                "c",
                                vi=spatial(50, i0 * 14 + i1),
                                vj=spatial(40, j0 * 16 + j1),
                                vk=reduction(70, k0 * 32 + k1),
                                where=(i0 * 14 + i1 < 50) & (j0 * 16 + j1 < 40)
                                & (k0 * 32 + k1 < 70),
                            ):
                                reduce(sum, c[vi, vj], a[vi, vk] * b[vk, vj])
""")

CONV = parse("""
def conv(x: f32[11], w: f32[3], y: Out[f32[9]]):
    for i0 in range(3):
        for k in range(3):
            for i1 in range(4):
                with block("y", vi=spatial(9, i0 * 4 + i1), vk=reduction(3, k),
                           where=i0 * 4 + i1 < 9):
                    reduce(sum, y[vi], x[vi + vk] * w[vk])
""")

IN_PLACE = parse("""
def in_place(x: InOut[f32[10]]):
    for i in range(3):
        for j in range(4):
            with block("x", vi=spatial(10, i * 4 + j), where=i * 4 + j < 10):
                x[vi] = x[vi] * 2.0 + 1.0
""")

ROWS = parse("""
def rows(x: f32[n, 20], y: Out[f32[n]], *, n: i64):
    for i in range((n + 7) // 8):
        for k in range(20):
            for j in range(8):
                with block("y", vi=spatial(n, i * 8 + j), vk=reduction(20, k),
                           where=i * 8 + j < n):
                    reduce(max, y[vi], x[vi, vk])
""")

ARGMAX = parse("""
def rows(x: f32[6, 9], m: Out[f32[6]], p: Out[i64[6]]):
    for k0 in range(3):
        for i in range(6):
            for k1 in range(3):
                with block("m", vi=spatial(6, i), vk=reduction(9, k0 * 3 + k1)):
                    reduce(argmax, (m[vi], p[vi]), (x[vi, vk], vk))
""")


def test_cache_read_of_a_ragged_tile(golden, same_meaning):
    after, names = cache_read(DOUBLE, "y", "x", "shared", at="i")
    assert names == ("x_shared_copy", "x_shared")
    golden(show(after))
    same_meaning(DOUBLE, after)


def test_cache_read_of_the_whole_buffer(golden, same_meaning):
    after, _ = cache_read(DOUBLE, "y", "x", "global")
    golden(show(after))
    same_meaning(DOUBLE, after)


def test_cache_read_with_halo(golden, same_meaning):
    after, _ = cache_read(CONV, "y", "x", "register", at="i0")
    golden(show(after))
    same_meaning(CONV, after)


def test_cache_read_of_a_panel_in_a_reduction(golden, same_meaning):
    after, _ = cache_read(MATMUL, "c", "a", "global", at="i0")
    golden(show(after))
    same_meaning(MATMUL, after)


def test_cache_read_under_a_symbolic_size(golden, same_meaning):
    after, _ = cache_read(ROWS, "y", "x", "private", at="i")
    golden(show(after))
    for n in (0, 1, 8, 21):
        same_meaning(ROWS, after, n=n)


def test_cache_write_of_a_ragged_tile(golden, same_meaning):
    after, names = cache_write(DOUBLE, "y", "y", "register", at="i")
    assert names == ("y_register_write", "y_register")
    golden(show(after))
    same_meaning(DOUBLE, after)


def test_cache_write_under_a_loop_that_runs_once(same_meaning):
    text = (
        show(DOUBLE).replace("range(2)", "range(1)").replace("range(32)", "range(64)")
    )
    once = parse(text.replace("i * 32", "i * 64"))
    after, (_, tile) = cache_write(once, "y", "y", "register", "i")
    assert f"{tile} = alloc(f32[50]" in show(after)
    same_meaning(once, after)


def test_cache_write_of_the_whole_buffer(golden, same_meaning):
    after, _ = cache_write(DOUBLE, "y", "y", "global")
    golden(show(after))
    same_meaning(DOUBLE, after)


def test_cache_write_of_a_reduction_under_a_symbolic_size(golden, same_meaning):
    after, _ = cache_write(ROWS, "y", "y", "register", at="i")
    golden(show(after))
    for n in (1, 8, 21):
        same_meaning(ROWS, after, n=n)


def test_cache_write_in_place(golden, same_meaning):
    after, _ = cache_write(IN_PLACE, "x", "x", "register", at="i")
    golden(show(after))
    same_meaning(IN_PLACE, after)


def test_cache_write_accumulates_over_blocks_of_k(golden, same_meaning):
    after, _ = cache_write(MATMUL, "c", "c", "register", at="j0", accumulate=True)
    golden(show(after))
    same_meaning(MATMUL, after)


def test_cache_write_accumulates_a_tuple_state(golden, same_meaning):
    after, _ = cache_write(ARGMAX, "m", "p", "register", at="i", accumulate=True)
    golden(show(after))
    same_meaning(ARGMAX, after)


def test_packing_both_sides_of_an_accumulating_matmul(same_meaning):
    after, _ = cache_write(MATMUL, "c", "c", "register", at="j0", accumulate=True)
    after, _ = cache_read(after, "c", "a", "global", at="i0")
    after, _ = cache_read(after, "c", "b", "global", at="k0")
    after, _ = cache_read(after, "c", "b_global", "register", at="k1")
    same_meaning(MATMUL, after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: cache_read(DOUBLE, "y", "z", "global"), "no buffer 'z'"),
        (lambda: cache_read(DOUBLE, "y", "y", "global"), "does not read 'y'"),
        (lambda: cache_read(DOUBLE, "y", "x", "global", at="k"), "'k' is not around"),
        (lambda: cache_read(IN_PLACE, "x", "x", "global", at="i"), "writes 'x' too"),
        (lambda: cache_read(ROWS, "y", "x", "register"), "needs a constant size"),
        (lambda: cache_write(MATMUL, "c", "c", "register", at="j0"), "accumulate=True"),
        (lambda: cache_write(DOUBLE, "y", "x", "global"), "writes 'x' in 0 places"),
        (
            lambda: cache_write(DOUBLE, "y", "y", "register", at="i", accumulate=True),
            "nothing to accumulate",
        ),
    ],
)
def test_refusals_of_caching(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()


def test_accumulating_keeps_the_order_of_a_fold(same_meaning):
    func = parse("""
@reducer(commutative=False)
def last(a: f32, b: f32):
    identity(0.0)
    return select(b == 0.0, a, b)

def rows(x: f32[4, 8], y: Out[f32[4]]):
    for k0 in range(2):
        for i in range(4):
            for k1 in range(4):
                with block("y", vi=spatial(4, i), vk=reduction(8, k0 * 4 + k1)):
                    reduce(last, y[vi], x[vi, vk])
""")
    after, _ = cache_write(func, "y", "y", "register", at="i", accumulate=True)
    same_meaning(func, after)
