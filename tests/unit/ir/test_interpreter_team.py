"""Lowered code run by all threads of a team at once."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError, IRError
from tensorlang.ir.interpreter import as_team, run
from tensorlang.ir.text.parser import parse

# what lowering makes of: t = x + 1 in parallel; s = sum(t); y = t reversed * s
LOWERED = """
def f(x: f32[n], y: Out[f32[n]], *, n: i64, tid: i64, team: i64):
    t = alloc(f32[n])
    first: i64 = n * tid // team
    share: i64 = n * (tid + 1) // team - first
    for i in range(share):
        t[first + i] = x[first + i] + 1.0
    s = alloc(f32[1])
    {first}
    if tid == 0:
        s[0] = 0.0
        for k in range(n):
            s[0] = s[0] + t[k]
    {second}
    for i2 in range(share):
        r = alloc(f32[1], scope="register")
        r[0] = t[n - 1 - (first + i2)]
        y[first + i2] = r[0] * s[0]
"""
TEAM = 'barrier("team")'


def program(first=TEAM, second=TEAM):
    return parse(LOWERED.replace("{first}", first).replace("{second}", second))


@pytest.mark.parametrize("threads", [1, 3, 8, 30])
def test_a_team_of_any_size_does_what_one_thread_does(threads):
    x = np.random.default_rng(0).integers(0, 9, 21).astype("f4")
    y, alone = np.zeros(21, "f4"), np.zeros(21, "f4")
    run(as_team(program(), threads), x, y)
    run(program(), x, alone, tid=0, team=1)
    assert (y == (x + 1)[::-1] * (x + 1).sum()).all()
    assert (y == alone).all()


@pytest.mark.parametrize("missing", ["first", "second"])
def test_a_missing_team_barrier_is_found(missing):
    func = as_team(program(**{missing: "pass"}), 4)
    with pytest.raises(InterpreterError, match=r"race|nothing wrote it"):
        run(func, np.zeros(21, "f4"), np.zeros(21, "f4"))


def test_a_team_barrier_that_one_thread_skips_is_found():
    func = as_team(program(first=f"if tid > 0:\n        {TEAM}"), 4)
    with pytest.raises(InterpreterError, match="divergent barrier: 1 of 4"):
        run(func, np.zeros(21, "f4"), np.zeros(21, "f4"))


def test_a_function_that_is_not_lowered_has_no_team():
    with pytest.raises(IRError, match="no scalars tid and team"):
        as_team(parse("def f(y: Out[i64[1]]):\n    y[0] = 1\n"), 2)
