"""Serial loops run as lanes on trial: never seen in a result or an error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, batching, run
from tensorlang.ir.text.parser import parse

SIZE = 11


@dataclass(frozen=True)
class Copy:
    """s[to] = s[via[from]] * 3 + i + 2 * j + number, all indices affine modulo SIZE."""

    to: tuple[int, int, int]
    source: tuple[int, int, int]
    number: int
    indirect: bool

    def at(self, scales: tuple[int, int, int], i: int, j: int) -> int:
        return (scales[0] * i + scales[1] * j + scales[2]) % SIZE

    def text(self) -> str:
        to, source = (
            f"({a} * i + {b} * j + {c}) % {SIZE}" for a, b, c in (self.to, self.source)
        )
        read = f"s[s[{source}] % {SIZE}]" if self.indirect else f"s[{source}]"
        return f"s[{to}] = {read} * 3 + i + 2 * j + {self.number}"

    def do(self, s, i: int, j: int) -> None:
        at = self.at(self.source, i, j)
        value = s[s[at] % SIZE] if self.indirect else s[at]
        s[self.to_element(i, j)] = value * 3 + i + 2 * j + self.number

    def to_element(self, i: int, j: int) -> int:
        return self.at(self.to, i, j)


scales = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, SIZE - 1))
copies = st.lists(
    st.builds(Copy, scales, scales, st.integers(0, 9), st.booleans()), max_size=3
)


@settings(max_examples=300)
@given(copies, copies, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_batched_serial_loops_are_the_serial_loops(inner, outer, n, m, races):
    lines = ["def f(s: InOut[i64[11]]):", f"    for i in range({n}):"]
    lines += [f"        for j in range({m}):"]
    lines += [f"            {copy.text()}" for copy in inner] + ["            pass"]
    lines += [f"        {copy.text().replace('j', '0')}" for copy in outer]
    lines += ["        pass"]
    func = parse("\n".join(lines) + "\n")
    expected = list(range(SIZE))
    for i in range(n):
        for j in range(m):
            for copy in inner:
                copy.do(expected, i, j)
        for copy in outer:
            copy.do(expected, i, 0)
    s = np.arange(SIZE)
    run(func, s, checks=ALL_CHECKS - ({"inout"} if races else {"inout", "race"}))
    assert s.tolist() == [(v + 2**63) % 2**64 - 2**63 for v in expected]


DENSE = """
def dense(x: f32[16, 12], w: f32[9, 12], y: Out[f32[16, 9]]):
    for i in range(16):
        for j in range(9):
            for k in range(12):
                with block("y", a=spatial(16, i), b=spatial(9, j), c=reduction(12, k)):
                    reduce(sum, y[a, b], x[a, c] * w[b, c])
"""


def test_spatial_loops_are_batched_and_the_reduction_is_not():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (16, 12)), rng.integers(-4, 5, (9, 12))
    y = np.zeros((16, 9), "f4")
    report = run(parse(DENSE), x.astype("f4"), w.astype("f4"), y)
    assert (y == x @ w.T).all()
    assert report.batched == 2
    assert report.steps < 50


def test_batching_changes_no_bit_of_a_float_reduction(monkeypatch):
    rng = np.random.default_rng(0)
    x, w = rng.random((16, 12), "f4"), rng.random((9, 12), "f4")
    y, z = np.zeros((16, 9), "f4"), np.zeros((16, 9), "f4")
    run(parse(DENSE), x, w, y)
    monkeypatch.setattr(batching, "_plan", lambda _: 0)
    assert run(parse(DENSE), x, w, z).batched == 0
    assert y.tobytes() == z.tobytes()


def test_long_loops_are_batched_piece_by_piece(monkeypatch):
    monkeypatch.setattr(batching, "_plan", lambda _: 64)
    func = parse("""
def f(x: i32[1000], y: Out[i32[1000]]):
    for i in range(1000):
        y[i] = x[999 - i] + i32(1)
""")
    x, y = np.arange(1000, dtype="i4"), np.zeros(1000, "i4")
    report = run(func, x, y)
    assert (y == x[::-1] + 1).all()
    assert report.steps == 1 + -(-1000 // 64)


def test_the_first_fault_in_serial_order_is_the_one_reported():
    func = parse("""
def f(x: i32[4], y: Out[i32[4]]):
    for i in range(4):
        for j in range(4):
            y[j] = x[i + j]
""")
    with pytest.raises(InterpreterError, match=r"x\[4\] is out of.*at i=1, j=3"):
        run(func, np.zeros(4, "i4"), np.zeros(4, "i4"))


def test_a_recurrence_is_taken_back_and_run_in_order():
    func = parse("""
def f(y: Out[i64[30]]):
    y[0] = 1
    y[1] = 1
    for i in range(28):
        y[i + 2] = y[i + 1] + y[i]
""")
    y = np.zeros(30, "i8")
    assert run(func, y).batched == 0
    assert y[-1] == 832040
