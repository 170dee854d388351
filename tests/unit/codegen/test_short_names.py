"""Names as kernels show them."""

import numpy as np
import pytest

from tensorlang.codegen.short_names import as_shown, in_text, short_names
from tensorlang.ir import parse
from tensorlang.ir.interpreter import run

HEAD = """
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
"""
BODIES = {
    "beside each other": (
        """
    for i in range(n):
        at: i64 = i + 0
        y[at] = x[at]
    for j in range(n):
        at_1: i64 = j + 0
        y[at_1] = y[at_1] + 1.0""",
        {"at_1": "at"},
    ),
    "in one place": (
        """
    for i in range(n):
        at: i64 = i + 0
        at_1: i64 = at + 0
        y[at] = x[at_1]""",
        {},
    ),
    "inside": (
        """
    for i in range(n):
        at_1: i64 = i + 0
        for k in range(2):
            at: i64 = at_1 + 0
            y[at_1] = x[at] * 2.0""",
        {"at_1": "at", "at": "at_1"},
    ),
    "a copy's": (
        """
    for i in range(n):
        at: i64 = i + 0
        y[at] = x[at]
    for j in range(n):
        at_1_1: i64 = j + 0
        y[at_1_1] = y[at_1_1] + 1.0""",
        {"at_1_1": "at"},
    ),
    "digits": (
        """
    for i in range(n):
        i_div_4: i64 = i // 4
        y[i] = x[i_div_4]
    for j in range(n):
        i_div_4_1: i64 = j // 4
        i_div_8: i64 = j // 8
        y[j] = y[i_div_4_1] + x[i_div_8]""",
        {"i_div_4_1": "i_div_4"},
    ),
    "numbers of a definition": (
        """
    for i in range(n):
        x_1: f32 = x[i]
        y[i] = x_1
    for i_1 in range(n):
        w_2: f32 = x[i_1]
        y[i_1] = y[i_1] + w_2""",
        {"i_1": "i"},
    ),
    "loops": (
        """
    for i_0 in range(1):
        for i_1 in range(n):
            y[i_0 + i_1] = x[i_0 + i_1]
    for i_2 in range(n):
        y[i_2] = y[i_2] + 1.0""",
        {"i_0": "i", "i_2": "i"},
    ),
    "tiles": (
        """
    for i in range(n):
        t = alloc(f32[1], scope="register")
        t[0] = x[i]
        y[i] = t[0]
    for j in range(n):
        t_1 = alloc(f32[1], scope="register")
        t_1[0] = y[j] + 1.0
        y[j] = t_1[0]""",
        {"t_1": "t"},
    ),
    "tails of tails": (
        """
    for i in range(n // 4):
        g: f32 = x[i]
        y[i] = g
    for i_tail in range(2):
        g_tail: f32 = x[i_tail]
        y[i_tail] = g_tail
    for i_tail_tail in range(n):
        g_tail_1: f32 = x[i_tail_tail]
        only_tail: f32 = g_tail_1 + 1.0
        y[i_tail_tail] = only_tail""",
        {"g_tail": "g", "g_tail_1": "g", "i_tail_tail": "i_tail"},
    ),
    "several places": (
        """
    for i in range(n):
        at: i64 = i + 0
        y[at] = x[at]
    for j in range(n):
        at_1: i64 = j + 0
        y[at_1] = y[at_1] + 1.0
    for k in range(n):
        at: i64 = k + 0
        for m in range(1):
            at_1: i64 = at + m
            y[at_1] = y[at_1] * y[at]""",
        {},
    ),
    "registers": (
        """
    for i in range(n):
        t_shared = alloc(f32[4], scope="register")
        t_shared_at: i64 = i % 4
        t_shared[t_shared_at] = x[i]
        y[i] = t_shared[t_shared_at]""",
        {"t_shared": "t_register", "t_shared_at": "t_register_at"},
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_names_have_numbers_where_two_are_visible(name):
    body, expected = BODIES[name]
    function = parse(HEAD.strip() + body)
    assert short_names(function) == expected
    x = np.linspace(-1, 1, 9, dtype="f4")
    before, after = np.empty_like(x), np.empty_like(x)
    run(function, x, before, n=9)
    run(as_shown(function), x, after, n=9)
    assert before.tobytes() == after.tobytes()


def test_words_are_replaced_as_a_whole():
    assert in_text("at_1 + at_11 + f(at_1)", {"at_1": "at"}) == "at + at_11 + f(at)"


def test_functions_keep_their_names():
    shown = {"copy_async_16": "copy_async"}
    text = "copy_async_16(x + copy_async_16, 1)"
    assert in_text(text, shown) == "copy_async_16(x + copy_async, 1)"
