"""The race check against an enumeration of all pairs of accesses, and by example."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, run
from tensorlang.ir.text.parser import parse

SIZE = 7
RACES_ONLY = ALL_CHECKS - {"inout"}


@dataclass(frozen=True)
class Access:
    kind: str  # read | write | atomic
    scale: tuple[int, int]
    shift: int

    def element(self, i: int, j: int) -> int:
        return (self.scale[0] * i + self.scale[1] * j + self.shift) % SIZE

    def text(self, variables: str, number: int) -> str:
        i, j = (*variables, "0")[:2]
        a, b = self.scale
        at = f"s[({a} * {i} + {b} * {j} + {self.shift}) % {SIZE}]"
        return {
            "read": f"t{number}: i32 = {at}",
            "write": f"{at} = i32(1)",
            "atomic": f'atomic("add", {at}, i32(1))',
        }[self.kind]


accesses = st.builds(
    Access,
    st.sampled_from(["read", "read", "write", "atomic"]),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(0, SIZE - 1),
)


@dataclass(frozen=True)
class Nest:
    """for i: before; for j: inside, [barrier], inside; after - one list each."""

    outer: str
    inner: str
    before: list[Access]
    first: list[Access]
    second: list[Access]
    after: list[Access]

    def text(self) -> str:
        lines = ["def f(s: InOut[i32[7]]):", f"    for i in {self.outer}:"]
        number = iter(range(100))
        lines += [f"        {a.text('i', next(number))}" for a in self.before]
        lines += [f"        for j in {self.inner}:"]
        lines += [f"            {a.text('ij', next(number))}" for a in self.first]
        if "thread" in self.inner:
            lines += ['            barrier("block")']
        lines += [f"            {a.text('ij', next(number))}" for a in self.second]
        lines += ["            pass"]
        lines += [f"        {a.text('i', next(number))}" for a in self.after]
        lines += ["        pass"]
        return "\n".join(lines) + "\n"

    def events(self):
        """(access, element, lanes it runs in, phase): lanes as far as they are."""
        joins = "range" in self.inner
        for i in range(3):
            for a in self.before + self.after:
                yield a, a.element(i, 0), (i,), 0
            for phase, group in enumerate((self.first, self.second)):
                for j in range(3):
                    for a in group:
                        yield a, a.element(i, j), (i,) if joins else (i, j), phase

    def has_race(self) -> bool:
        return any(self._race(*pair) for pair in combinations(self.events(), 2))

    def _race(self, one, other) -> bool:
        (a, at, lanes, phase), (b, bt, others, other_phase) = one, other
        kinds = {a.kind, b.kind}
        if at != bt or kinds in ({"read"}, {"atomic"}):
            return False
        if lanes[0] != others[0]:
            return "range" not in self.outer
        separated = "thread" in self.inner and phase != other_phase
        both = len(lanes) == len(others) == 2
        return both and lanes[1] != others[1] and not separated


nests = st.builds(
    Nest,
    st.sampled_from(["parallel(3)", 'bound(3, "block.x")', "range(3)"]),
    st.sampled_from(['bound(3, "thread.x")', "vectorized(3)", "range(3)"]),
    *[st.lists(accesses, max_size=n) for n in (1, 2, 1, 2)],
)


@settings(max_examples=400)
@given(nests)
def test_races_are_found_exactly(nest):
    func = parse(nest.text())
    state = np.zeros(SIZE, "i4")
    if nest.has_race():
        with pytest.raises(InterpreterError, match="race"):
            run(func, state, checks=RACES_ONLY)
    else:
        run(func, state, checks=RACES_ONLY)
    run(func, state, checks=RACES_ONLY - {"race"})


def raced(body, **kwargs):
    """Whether a program over x: i32[8] and y: i32[8] has a race."""
    func = parse("def f(x: i32[8], y: Out[i32[8]]):\n" + body)
    try:
        run(func, np.arange(8, dtype="i4"), np.zeros(8, "i4"), **kwargs)
    except InterpreterError as error:
        if "race" not in str(error):
            raise
        return True
    return False


def test_nests_of_the_host_program_are_ordered():
    assert not raced("""
    for i in parallel(8):
        y[i] = x[i]
    for j in parallel(8):
        y[7 - j] = y[7 - j] + y[7 - j]
""")


def test_a_register_of_each_thread_is_its_own():
    assert not raced("""
    for i in bound(8, "thread.x"):
        r = alloc(i32[1], scope="register")
        r[0] = x[i]
        y[i] = r[0]
""")


def test_a_register_allocated_outside_the_threads_is_shared():
    assert raced("""
    r = alloc(i32[1], scope="register")
    for i in bound(8, "thread.x"):
        r[0] = x[i]
        y[i] = r[0]
""")


def test_shared_memory_allocated_inside_the_threads_is_one_for_the_block():
    assert raced("""
    for i in bound(8, "thread.x"):
        s = alloc(i32[8], scope="shared")
        s[i] = x[i]
        y[i] = s[7 - i]
""")
    assert not raced("""
    for i in bound(8, "thread.x"):
        s = alloc(i32[8], scope="shared")
        s[i] = x[i]
        barrier("block")
        y[i] = s[7 - i]
""")


def test_a_barrier_of_a_block_does_not_order_blocks():
    assert raced("""
    for b in bound(2, "block.x"):
        for t in bound(4, "thread.x"):
            y[b * 4 + t] = x[t]
            barrier("block")
            y[t] = x[t]
""")


def test_a_team_barrier_orders_the_iterations_of_a_parallel_loop():
    program = """
    for tid in parallel(4):
        y[tid] = x[tid]
        {barrier}
        y[tid + 4] = y[3 - tid]
"""
    assert raced(program.replace("{barrier}", "pass"))
    assert not raced(program.replace("{barrier}", 'barrier("team")'))


def test_a_warp_barrier_orders_threads_of_one_warp_only():
    program = """
def f(x: i32[64], y: Out[i32[64]]):
    s = alloc(i32[64], scope="shared")
    for t in bound(64, "thread.x"):
        s[t] = x[t]
        barrier("warp")
        y[t] = s[{other}]
        barrier("warp")
        s[t] = y[t]
"""
    x, y = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    run(parse(program.replace("{other}", "t // 32 * 32 + (t + 1) % 32")), x, y)
    with pytest.raises(InterpreterError, match="race"):
        run(parse(program.replace("{other}", "(t + 32) % 64")), x, y)


def test_blocks_whose_warps_met_still_race_with_each_other():
    func = parse("""
def f(x: i32[64], y: Out[i32[64]]):
    for b in bound(2, "block.x"):
        for t in bound(64, "thread.x"):
            barrier("warp")
            if b == 0:
                y[t] = x[t]
        for t2 in bound(64, "thread.x"):
            barrier("warpgroup")
            if b == 1:
                y[t2] = x[t2]
""")
    with pytest.raises(InterpreterError, match=r"race.*\(block.x\)"):
        run(func, np.zeros(64, "i4"), np.zeros(64, "i4"))


FOLD = """
def f(x: i32[4, 8], y: Out[i32[4]], z: Out[i32[8]]):
    for i in parallel(4):
        for k in vectorized(8):
            with block("s", vi=spatial({extent}, {value}), vk=reduction(8, k)):
                reduce({reducer}, y[vi], x[vi, vk])
                t = alloc(i32[1], scope="private")
                t[0] = x[vi, vk]
    for v in vectorized(8):
        z[{at}] = i32(1)
"""


@pytest.mark.parametrize(
    ("change", "race"),
    [
        ({}, None),
        ({"extent": "2", "value": "i // 2"}, r"y\[0\].*parallel"),
        ({"at": "v // 2"}, r"z\[0\].*vectorized"),
    ],
)
def test_lanes_of_a_vector_may_fold_one_state(change, race):
    text = FOLD
    parts = {"extent": "4", "value": "i", "reducer": "sum", "at": "v"} | change
    for name, value in parts.items():
        text = text.replace("{" + name + "}", value)
    x, y = np.arange(32, dtype="i4").reshape(4, 8), np.zeros(4, "i4")
    z = np.zeros(8, "i4")
    if race is None:
        run(parse(text), x, y, z)
        assert (y == x.sum(axis=1)).all()
    else:
        with pytest.raises(InterpreterError, match=race):
            run(parse(text), x, y, z)


def test_a_fold_excuses_no_other_buffer():
    func = parse("""
def f(x: i32[8], y: Out[i32[1]], z: Out[i32[4]]):
    for k in vectorized(8):
        with block("s", vk=reduction(8, k)):
            reduce(sum, y[0], x[vk])
            z[vk // 2] = x[vk]
""")
    with pytest.raises(InterpreterError, match=r"race: z\[0\].*vectorized"):
        run(func, np.zeros(8, "i4"), np.zeros(1, "i4"), np.zeros(4, "i4"))


def test_a_barrier_in_a_loop_that_all_threads_run_alike():
    assert not raced("""
    s = alloc(i32[8], scope="shared")
    for t in bound(8, "thread.x"):
        s[t] = x[t]
        for round in range(3):
            barrier("block")
            v: i32 = s[(t + 1) % 8]
            barrier("block")
            s[t] = v
        y[t] = s[t]
""")


def test_a_barrier_in_a_loop_of_unequal_length_diverges():
    func = parse("""
def f(x: i32[8], y: Out[i32[8]]):
    for t in bound(8, "thread.x"):
        for round in range(t // 4 + 1):
            barrier("block")
        y[t] = x[t]
""")
    with pytest.raises(InterpreterError, match="divergent barrier"):
        run(func, np.zeros(8, "i4"), np.zeros(8, "i4"))


def test_a_block_that_skips_a_barrier_whole_is_not_divergent():
    assert not raced("""
    for b in bound(2, "block.x"):
        for t in bound(4, "thread.x"):
            if b == 1:
                barrier("block")
            y[b * 4 + t] = x[t]
""")


def test_threads_that_never_reach_the_inner_loop_are_missed_at_its_barrier():
    func = parse("""
def f(x: i32[8], y: Out[i32[8]]):
    for ty in bound(2, "thread.y"):
        if ty == 0:
            for tx in bound(4, "thread.x"):
                barrier("block")
                y[tx] = x[tx]
""")
    with pytest.raises(InterpreterError, match="divergent barrier: 1 of 2"):
        run(func, np.zeros(8, "i4"), np.zeros(8, "i4"))


def test_atomics_of_many_lanes_fold_every_value():
    func = parse("""
def f(x: i32[100], y: InOut[f32[3]]):
    for i in parallel(100):
        atomic("add", y[i % 3], cast(f32, x[i]))
""")
    y = np.zeros(3, "f4")
    run(func, np.arange(100, dtype="i4"), y)
    assert y.tolist() == [sum(range(n, 100, 3)) for n in range(3)]
