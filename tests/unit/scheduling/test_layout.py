"""transform_layout and reindex: where elements lie, and by what they are indexed."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.layout import transform_layout
from tensorlang.scheduling.steps.reindex import reindex

PACKED = parse("""
def packed(w: f32[50, 20], x: f32[20], y: Out[f32[50]]):
    t = alloc(f32[50, 20])
    for i in range(50):
        for k in range(20):
            with block("t", vi=spatial(50, i), vk=spatial(20, k)):
                t[vi, vk] = w[vi, vk]
    for i in range(50):
        for k in range(20):
            with block("y", vi=spatial(50, i), vk=reduction(20, k)):
                reduce(sum, y[vi], t[vi, vk] * x[vk])
""")

LARGE = parse("""
def large(x: f32[n, 4096], y: Out[f32[n, 4096]], *, n: i64):
    t = alloc(f32[n, 4096])
    for i in range(n):
        for j in range(4096):
            with block("t", vi=spatial(n, i), vj=spatial(4096, j)):
                t[vi, vj] = x[vi, vj]
    for i in range(n):
        for j in range(4096):
            with block("y", vi=spatial(n, i), vj=spatial(4096, j)):
                y[vi, vj] = t[vi, vj]
""")

CONV = parse("""
def conv(x: f32[2, 9], w: f32[3], y: Out[f32[4, 2]]):
    for b in range(2):
        for i in range(4):
            for k in range(3):
                with block("y", vb=spatial(2, b), vi=spatial(4, i), vk=reduction(3, k)):
                    reduce(sum, y[3 - vi, vb], x[vb, vi * 2 + vk] * w[vk])
""")


@pytest.mark.parametrize(
    "layout",
    [
        "lambda i, k: (i // 16, k, i % 16)",
        lambda i, k: (k, i),
        "lambda i, k: ((i // 8) * 160 + k * 8 + i % 8,)",
    ],
)
def test_transform_layout_keeps_the_meaning(layout, same_meaning):
    after = transform_layout(PACKED, "t", layout)
    same_meaning(PACKED, after)


def test_transform_layout_prints_the_map(golden):
    golden(show(transform_layout(PACKED, "t", lambda i, k: (i // 16, k, i % 16))))


def test_transform_layout_of_a_symbolic_size():
    after = transform_layout(
        LARGE, "t", "lambda i, j: (j // 64, i // 8, j % 64, i % 8)"
    )
    assert "layout=lambda i, j: (j // 64, i // 8, j % 64, i % 8)" in show(after)


def test_reindex_what_is_read(golden, same_meaning):
    after, names = reindex(CONV, "y", "x")
    assert names == ("x_y_copy", "x_y")
    golden(show(after))
    same_meaning(CONV, after)


def test_reindex_what_is_written(golden, same_meaning):
    after, names = reindex(CONV, "y", "y")
    assert names == ("y_y_write", "y_y")
    golden(show(after))
    same_meaning(CONV, after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (
            lambda: transform_layout(PACKED, "w", "lambda i, k: (k, i)"),
            "is a parameter",
        ),
        (lambda: transform_layout(PACKED, "t", "lambda i: (i,)"), "takes 1 indices"),
        (lambda: transform_layout(PACKED, "t", lambda i: i), "takes 1 indices"),
        (lambda: transform_layout(PACKED, "t", "lambda i, k: ("), "does not parse"),
        (
            lambda: transform_layout(LARGE, "t", "lambda i, j: (i, j % 64)"),
            "not known to be one-to-one",
        ),
        (
            lambda: transform_layout(LARGE, "t", "lambda i, j: (i * 64 + j,)"),
            "not known to be one-to-one",
        ),
        (lambda: reindex(CONV, "y", "z"), "no buffer 'z'"),
    ],
)
def test_refusals_of_layouts(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()
