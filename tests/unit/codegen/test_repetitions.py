"""Indices and bounds that statements repeat have names, bound once."""

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.codegen.names import Names
from tensorlang.codegen.repetitions import name_repetitions
from tensorlang.ir import nodes as ir
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import rebuild, rewriter

TILES = """
def f(x: f32[n * m], y: Out[f32[n * m]], *, n: i64, m: i64):
    for z_g in range(n * ((m + 3) // 4)):
        for u in range(min(m - z_g % ((m + 3) // 4) * 4, 4)):
            y[z_g // ((m + 3) // 4) * m + z_g % ((m + 3) // 4) * 4 + u] = 0.0
        for u in range(min(m - z_g % ((m + 3) // 4) * 4, 4)):
            y[z_g // ((m + 3) // 4) * m + z_g % ((m + 3) // 4) * 4 + u] = x[z_g // ((m + 3) // 4) * m + z_g % ((m + 3) // 4) * 4 + u]
"""  # noqa: E501

NAMED = """
    for z_g in range(n * ((m + 3) // 4)):
        m_by_4: i64 = (m + 3) // 4
        z_g_rest: i64 = z_g % m_by_4
"""

GUARDED = """
def f(y: Out[f32[n]], *, n: i64, m: i64):
    for i in range(n):
        if m > 0:
            y[i] = cast(f32, i // m + i % m)
        else:
            y[i] = cast(f32, i)
"""


def made(text):
    func = parse(text)
    after = name_repetitions(func, Names(func))
    verify(after)
    return after


def same(text, *arrays, **sizes):
    """What a function leaves in its last array, checked to be as before."""
    func, after = parse(text), made(text)
    results = []
    for each in (func, after):
        given = [array.copy() for array in arrays]
        run(each, *given, **sizes)
        results.append(given[-1])
    np.testing.assert_array_equal(*results)
    return results[0]


def test_a_value_is_bound_where_its_last_variable_is():
    text = str(made(TILES))
    assert text.count("(m + 3) // 4") == 2  # the loop's own bound, and the name's
    assert text.count("min(") == 1
    for name in ("m_by_4", "m_tile"):
        assert text.count(f"        {name}: i64 = ") == 1
    assert "for u in range(m_tile):" in text


@pytest.mark.parametrize(("n", "m"), [(3, 7), (2, 4), (1, 1), (0, 5), (5, 0)])
def test_the_program_does_what_it_did(n, m):
    x = np.arange(n * m, dtype=np.float32)
    found = same(TILES, x, np.full_like(x, -1), n=n, m=m)
    np.testing.assert_array_equal(found, x)


def test_a_division_that_a_condition_guards_stays_behind_it():
    y = np.zeros(6, np.float32)
    np.testing.assert_array_equal(same(GUARDED, y, n=6, m=0), np.arange(6))
    same(GUARDED, y, n=6, m=4)
    twice = GUARDED.replace("i % m", "i // m * 3")
    assert str(made(twice)).index("if m > 0") < str(made(twice)).index("i // m")


def test_places_of_a_constant_apart_share_one_name():
    text = str(
        made("""
def f(x: f32[n * 9 + 9], y: Out[f32[n * 9 + 9]], *, n: i64):
    for i in range(n):
        for j in range(3):
            y[i * 9 + j * 3] = x[i * 9 + j * 3]
            y[i * 9 + j * 3 + 1] = x[i * 9 + j * 3 + 1]
            y[i * 9 + j * 3 + 2] = x[i * 9 + j * 3 + 2]
""")
    )
    assert "x_y_at: i64 = i * 9 + j * 3" in text
    assert "y[x_y_at + 2] = x[x_y_at + 2]" in text


def test_a_name_is_of_no_other_variable_in_sight():
    text = """
def f(x: f32[64], x_y_at: f32[64], y: Out[f32[64]]):
    for i in range(4):
        for j in range(8):
            y[i * 8 + j * 2] = x[i * 8 + j * 2] + x_y_at[i]
        for j in range(4):
            y[i * 7 + j] = x[i * 7 + j] + x_y_at[j * 7 + 3] * x_y_at[j * 7 + 3]
"""
    x = np.arange(64, dtype=np.float32)
    same(text, x, x + 1, x)
    named = [line.strip() for line in str(made(text)).splitlines() if "i64 =" in line]
    assert named == [
        "x_y_at_1: i64 = i * 8 + j * 2",
        "x_y_at_2: i64 = i * 7 + j",
    ]


def test_a_variable_that_is_bound_in_a_body_comes_before_its_values():
    text = """
def f(p: i64[4], x: i64[64], y: Out[i64[64]]):
    for i in range(4):
        row: i64 = p[i]
        y[row * 16 + i * 2] = x[row * 16 + i * 2] + 1
        for j in range(2):
            y[row * 16 + i * 2 + j * 5] = x[row * 16 + i * 2 + j * 5] + 3
"""
    p, x = np.array([2, 0, 3, 1], np.int64), np.arange(64)
    same(text, p, x, np.zeros(64, np.int64))
    lines = [line.strip() for line in str(made(text)).splitlines()]
    assert lines[lines.index("row: i64 = p[i]") + 1] == "x_y_at: i64 = row * 16 + i * 2"
    assert "x_y_at_1: i64 = x_y_at + j * 5" in lines


def test_an_index_that_accesses_share_counts_for_each():
    """As vectorized code has them: one object in several places."""
    text = """
def f(x: f32[64], y: Out[f32[64]]):
    for i in range(4):
        for j in range(4):
            y[ramp(i * 16 + j * 2, 1, 2)] = x[ramp(i * 16 + j * 2, 1, 2)]
"""
    shared: dict[ir.Node, ir.Node] = {}

    @rewriter
    def visit(node):
        if isinstance(node, ir.Buffer):
            return node
        return shared.setdefault(node, rebuild(node, visit))

    func = parse(text)
    func = replace(func, body=visit(func.body))
    assert "x_y_at: i64 = i * 16 + j * 2" in str(name_repetitions(func, Names(func)))


def test_what_another_loop_divides_by_is_certain_there_alone():
    y = np.zeros(8, np.int64)
    text = """
def f(p: i64[4], y: Out[i64[8]]):
    for i in range(4):
        for q in range(1):
            m: i64 = p[i] + 1
            y[i] = (i * 5 + 3) // m
        for q in range(1):
            m: i64 = p[i]
            if m > 0:
                y[i + 4] = (i * 5 + 3) // m + (i * 5 + 3) // m * 2
"""
    same(text, np.array([0, 1, 0, 2], np.int64), y)


def test_remainders_of_negative_numbers_have_names():
    text = """
def f(y: Out[i64[8]]):
    for i in range(4):
        y[i] = i % -5 + i
        y[i + 4] = i % -5 * 3
"""
    same(text, np.zeros(8, np.int64))
    assert parse(str(made(text)))
