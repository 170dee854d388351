"""Lanes of a vectorized loop: wide accesses around loops, and the same results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.lockstep import in_lockstep
from tensorlang.ir.contents import loops
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Compare, For, If, Let, Load, Ramp, Store
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk

HEAD = """
def f(x: f32[n], a: InOut[f32[n]], y: Out[f32[n]], z: Out[f32[n]], *, n: i64):
    for i in range(n // 8):
        for v in vectorized(8):
"""


def split(body, access_bytes=16):
    func = parse(HEAD + body)
    return func, in_lockstep(func, Names(func), access_bytes)


def results(func, n):
    rng = np.random.default_rng(3)
    x, a = (rng.normal(size=n).astype("f4") for _ in range(2))
    y, z = (np.zeros(n, "f4") for _ in range(2))
    run(func, x, a, y, z, n=n)
    return a, y, z


def assert_same(body, n=24):
    func, made = split(body)
    verify(made)
    for before, after in zip(results(func, n), results(made, n), strict=True):
        np.testing.assert_array_equal(before, after)
    return made


def wide(func):
    return [
        node.buffer.name
        for node in walk(func)
        if isinstance(node, Store)
        and node.indices
        and isinstance(node.indices[0], Ramp)
    ]


def test_wide_accesses_stand_around_a_loop_over_lanes():
    made = assert_same("            y[i * 8 + v] = x[i * 8 + v] + 1.0")
    assert wide(made) == ["x_wide", "x_wide", "y", "y"]
    assert [loop.kind for loop in loops(made)] == ["serial", "unrolled"]


def test_a_copy_needs_no_loop():
    made = assert_same("            y[i * 8 + v] = x[i * 8 + v]")
    assert wide(made) == ["y", "y"]
    assert [loop.kind for loop in loops(made)] == ["serial"]


def test_in_place_is_one_array():
    made = assert_same(
        """            t: f32 = a[i * 8 + v] * 2.0
            a[i * 8 + v] = t + x[i * 8 + v]
            y[i * 8 + v] = t
"""
    )
    assert wide(made).count("a_wide") == wide(made).count("a") == 2


def test_what_a_lane_wrote_is_read_again():
    assert_same(
        """            y[i * 8 + v] = x[i * 8 + v] + 1.0
            z[i * 8 + v] = y[i * 8 + v]
            y[i * 8 + v] = z[i * 8 + v] * 3.0
            z[i * 8 + v] = z[i * 8 + v] + y[i * 8 + v]
"""
    )


def test_values_go_around_a_loop_in_arrays():
    made = assert_same(
        """            t: f32 = x[i * 8 + v] * 2.0
            y[i * 8 + v] = t
            for k in range(3):
                y[i * 8 + v] = y[i * 8 + v] + t
"""
    )
    (inner,) = (s for s in loops(made) if s.var.name == "k")
    assert any(isinstance(s, For) and s.kind == "unrolled" for s in walk(inner.body))


def test_a_condition_of_some_lanes():
    made = assert_same(
        """            if i * 8 + v < n - 3:
                y[i * 8 + v] = x[i * 8 + v] + 1.0
"""
    )
    (together,) = (node for node in walk(made) if isinstance(node, If) and node.orelse)
    assert isinstance(together.cond, Compare)  # of the last lane, for all of them


LONG = """            if i * 8 + v < n - 3:
                t: f32 = x[i * 8 + v] * 2.0
                u: f32 = t * t + a[i * 8 + v]
                w: f32 = u * t + 0.5
                a[i * 8 + v] = w + u
                y[i * 8 + v] = w * w
"""


@pytest.mark.parametrize("n", [8, 16, 24])
def test_a_long_body_stands_once_for_whole_vectors_and_for_a_part_of_one(n):
    made = assert_same(LONG, n)
    computed = [loop for loop in loops(made) if any(is_named(loop.body, "w"))]
    assert [loop.kind for loop in computed] == ["serial", "unrolled"]
    assert wide(made).count("x_wide") == wide(made).count("a") == 2
    masked = [
        n for n in walk(made) if isinstance(n, Load | Store) and n.mask is not None
    ]
    assert {n.buffer.name for n in masked} == {"x", "a", "y"}


def is_named(body, name):
    return (isinstance(node, Let) and node.var.name == name for node in walk(body))


def test_what_only_lanes_with_an_element_may_do_is_written_twice():
    made = assert_same(LONG + "                z[n - 1 - i * 8 - v] = x[i]\n")
    assert sum(is_named(made.body, "w")) + sum(is_named(made.body, "w_1")) == 2


def test_vectors_that_lie_apart_are_loaded_together():
    made = assert_same(
        """            y[v // 4 * (n // 2) // 4 * 4 + i * 4 + v % 4] = 2.0 * (
                x[v // 4 * 4 + i * 8 + v % 4])
"""
    )
    assert wide(made) == ["x_wide", "x_wide", "y", "y"]


VALUES = ["x[AT]", "z[AT]", "y[AT]", "x[n - 1 - (AT)]", "1.5", "s", "t"]
FORMS = [
    "{to}[AT] = {value} + {other}",
    "{to}[AT] = {value}",
    "if v < {number}:\n    {to}[AT] = {value}",
    "if AT < 3 * {number}:\n    {to}[AT] = {value}",
    """if AT < n - {number}:
    p: f32 = {value} * 2.0
    q: f32 = {other} + p
    o: f32 = p * q
    {to}[AT] = o + q
    y[AT] = o""",
    "if i < {number} - 5:\n    {to}[AT] = {value}",
    "for k in range({number} - 5):\n    {to}[AT] = {to}[AT] + {value}",
]
STEPS = st.builds(
    str.format,
    st.sampled_from(FORMS),
    to=st.sampled_from("yz"),
    value=st.sampled_from(VALUES),
    other=st.sampled_from(VALUES),
    number=st.integers(0, 9),
)


@settings(max_examples=50)
@given(st.lists(STEPS, min_size=1, max_size=6))
def test_any_body_gives_the_same(steps):
    lines = ["y[AT] = 0.5", "z[AT] = 0.25", "s: f32 = x[i]", "t: f32 = x[AT] * 3.0"]
    for number, step in enumerate(steps):
        lines += step.replace("k ", f"k{number} ").split("\n")
    body = "\n".join(" " * 12 + line.replace("AT", "i * 8 + v") for line in lines)
    assert_same(body)


@pytest.mark.parametrize("access_bytes", [4, 8, 32])
def test_no_access_is_wider_than_asked(access_bytes):
    _, made = split("            y[i * 8 + v] = x[i * 8 + v] + 1.0", access_bytes)
    lanes = [
        n.indices[0].lanes
        for n in walk(made)
        if isinstance(n, Store) and isinstance(n.indices[0], Ramp)
    ]
    assert (
        all(4 * count == access_bytes for count in lanes)
        if access_bytes > 4
        else not lanes
    )
