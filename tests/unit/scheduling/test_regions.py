"""Regions, linear forms and coverage: what nests touch, and whether they fill it."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import number
from tensorlang.ir.nodes import For, Var
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling.analysis.coverage import bounds_of, dense, guards_of
from tensorlang.scheduling.analysis.regions import region
from tensorlang.scheduling.analysis.tree import block_of, find_block
from tensorlang.scheduling.steps.cache_write import cache_write
from tensorlang.scheduling.steps.inline import inline
from tensorlang.scheduling.steps.reduction import decompose_reduction

VI, VJ = Var("i", i64), Var("j", i64)

SCAN = parse("""
def scan(x: f32[8], y: Out[f32[8]]):
    t = alloc(f32[8])
    for i in range(8):
        with block("t", vi=ordered(8, i)):
            t[vi] = x[vi] + select(vi > 0, t[max(vi - 1, 0)], 0.0)
    for j in range(8):
        with block("y", vj=spatial(8, j)):
            y[vj] = t[vj]
""")


def under(index: str, extent: int = 100) -> str:
    """The region of x that an index touches under loop i."""
    func = parse(f"""
def f(x: f32[{extent}], p: i64[4], y: Out[f32[8, 4]], *, n: i64):
    for i in range(8):
        for j in range(4):
            with block("y", vi=spatial(8, i), vj=spatial(4, j)):
                y[vi, vj] = x[{index}]
""")
    assert isinstance(func.body, For)
    found = region(func.body.body, func.buffers[0], writes=False)
    assert found is not None
    return f"{found[0].low.expr()!r} + {found[0].extent.expr()!r}"


@pytest.mark.parametrize(
    ("index", "touched"),
    [
        ("vi * 4 + vj", "i * 4 + 4"),
        ("vi * 4 - vj + 3", "i * 4 + 4"),
        ("(vi * 8 + vj) // 4", "i * 2 + 1"),
        ("(vi * 8 + vj) % 8", "0 + 4"),
        ("min(vj, 2) + vi", "i + 3"),
        ("n + vj", "n + 4"),
        ("p[vj]", "0 + 100"),
        ("vi * vj", "0 + 100"),
    ],
)
def test_region_under_a_loop(index, touched):
    assert under(index) == touched


def test_region_larger_than_its_buffer_is_the_buffer():
    assert under("vi * 4 + vj", extent=3) == "0 + 3"


def test_linear_forms_cancel():
    assert linear((VI * 32 + VJ) - VJ - VI * 32) == number(0)
    assert linear((VI * 32 + 5) // 16) == linear(VI * 2)
    assert linear((VI * 32 + 5) % 16) == number(5)
    assert linear(3 - VI).expr() == 3 - VI


@pytest.mark.parametrize(
    ("values", "filled"),
    [
        ((VI * 4 + VJ,), True),
        ((VI, VJ), True),
        ((VJ // 2, VJ % 2, VI), True),
        ((VI * 5 + VJ,), False),
        ((VI, VI), False),
        ((VJ // 3, VJ % 3), False),
        ((VI * VJ,), False),
    ],
)
def test_dense_digits(values, filled):
    loops = {VI: number(8), VJ: number(4)}
    assert dense([linear(value) for value in values], loops) is filled


def test_bounds_are_solved_for_axes_with_strides():
    func = parse("""
def f(x: f32[50], y: Out[f32[50]]):
    for i in range(13):
        for j in range(4):
            with block("y", vi=spatial(13, i), vj=spatial(4, j), where=i * 4 + j < 50):
                y[vi * 4 + vj] = x[vi * 4 + vj]
""")
    block = block_of(find_block(func, "y"))
    (cond,) = guards_of(block)
    found = {b.axis.name: repr(b.limit.expr()) for b in bounds_of(block, cond)}
    assert found == {"vi": "(1 - j) // 4 + 13", "vj": "50 - i * 4"}


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: inline(SCAN, "t"), "goes on from others of the same buffer"),
        (lambda: cache_write(SCAN, "t", "t", "register"), "would still be in the tile"),
        (lambda: decompose_reduction(SCAN, "t", "i"), "nothing to decompose"),
    ],
)
def test_a_scan_stays_as_it_is(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()
