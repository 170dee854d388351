"""Warps in roles: a ring that a producer fills, and every way to get it wrong."""

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify

# one thread of the last warp copies; two warps consume, each lane an element
RING = """
def ring(x: f32[2, 6, 32], y: Out[f32[2, 2, 32]]):
    for b in bound(2, "block.x"):
        s = alloc(f32[2, 32], scope="shared")
        full = barrier_object(1, 2)
        empty = barrier_object(2, 2)
        for t in bound(96, "thread.x"):
            with role(t >= 64, registers=24):
                if t == 64:
                    for k in range(6):
                        wait(empty[k % 2], k // 2 - 1)
                        with arrive(full[k % 2]):
                            for i in range(32):
                                s[k % 2, i] = x[b, k, i]
            with role(t < 64):
                r = alloc(f32[1], scope="register")
                r[0] = 0.0
                for c in range(6):
                    wait(full[c % 2], c // 2)
                    r[0] = r[0] + s[c % 2, t % 32]
                    if t % 32 == 0:
                        arrive(empty[c % 2])
                y[b, t // 32, t % 32] = r[0]
"""


READ_THEN_FREE = """\
                    r[0] = r[0] + s[c % 2, t % 32]
                    if t % 32 == 0:
                        arrive(empty[c % 2])
"""
FREE_THEN_READ = """\
                    if t % 32 == 0:
                        arrive(empty[c % 2])
                    r[0] = r[0] + s[c % 2, t % 32]
"""


def ring(old="", new="", **options):
    assert old in RING
    func = parse(RING.replace(old, new))
    verify(func)
    x = np.arange(384, dtype="f4").reshape(2, 6, 32)
    y = np.zeros((2, 2, 32), "f4")
    run(func, x, y, **options)
    return x, y


def fails(old, new, message):
    with pytest.raises(InterpreterError, match=message):
        ring(old, new)


def test_a_ring_of_two_stages_moves_six_tiles():
    x, y = ring()
    assert (y == x.sum(axis=1)[:, None]).all()


def test_the_order_in_which_roles_are_written_does_not_matter():
    head, producer, consumer = RING.split("            with role(")
    parts = (head, consumer, producer)
    func = parse("            with role(".join(parts))
    x, y = np.ones((2, 6, 32), "f4"), np.zeros((2, 2, 32), "f4")
    run(func, x, y)
    assert (y == 6).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # who reads did not wait: the copies are beside all threads, the issuer's too
        (
            "wait(full[c % 2], c // 2)",
            "pass",
            r"race: s\[0, 0\]: a warp reads what another one, or a copy, wrote, and",
        ),
        # the ring is refilled while it is read
        (
            "wait(empty[k % 2], k // 2 - 1)",
            "pass",
            r"race: s\[0, 0\]: a warp writes what another one, or a copy, wrote, and",
        ),
        # a stage is freed before it was read
        (
            READ_THEN_FREE,
            FREE_THEN_READ,
            r"race: s\[[01], 0\]: a warp writes what another one, or a copy, read",
        ),
        # the wrong stage
        (
            "s[c % 2, t % 32]",
            "s[(c + 1) % 2, t % 32]",
            r"race: s\[1, 0\]: a warp reads what another one, or a copy, wrote",
        ),
    ],
)
def test_roles_that_race_through_the_ring(old, new, message):
    fails(old, new, message)


def test_one_of_two_consumers_that_frees_for_both_is_a_race():
    lonely = RING.replace("barrier_object(2, 2)", "barrier_object(1, 2)")
    func = parse(lonely.replace("if t % 32 == 0:", "if t == 32:"))
    x, y = np.ones((2, 6, 32), "f4"), np.zeros((2, 2, 32), "f4")
    with pytest.raises(InterpreterError, match=r"race: s\[0, 0\]: a warp writes what"):
        run(func, x, y)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "wait(full[c % 2], c // 2)",
            "wait(full[c % 2], c // 2 - 1)",
            r"phase -1 of full\[0\], where phase 1 is open: by its parity",
        ),
        (
            "wait(full[c % 2], c // 2)",
            "wait(full[c % 2], c // 2 + 1)",
            r"phase 1 of full\[0\] by a warp that has seen the end of 0 phases",
        ),
        (
            "wait(empty[k % 2], k // 2 - 1)",
            "wait(empty[k % 2], k // 2)",
            r"role t >= 64 waits for phase 0 of empty\[0\].*, role t < 64 waits for",
        ),
    ],
)
def test_a_barrier_phase_mixed_up(old, new, message):
    fails(old, new, message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "arrive(empty[c % 2])",
            "pass",
            r"deadlock: role t >= 64 waits for phase 0 of empty\[0\] \(0 of 2 arrived",
        ),
        (
            "if t % 32 == 0:",
            "if t == 0:",
            r"deadlock: role t >= 64 waits for phase 0 of empty\[0\] \(1 of 2 arrived",
        ),
        (
            "for k in range(6)",
            "for k in range(5)",
            r"deadlock: role t < 64 waits for phase 2 of full\[1\] \(0 of 1 arrived",
        ),
    ],
)
def test_a_missing_arrive_is_a_deadlock_and_not_a_hang(old, new, message):
    fails(old, new, message)


def test_too_many_arrivals_run_ahead_of_the_waits():
    fails("if t % 32 == 0:", "if t >= 0:", r"phase 32 is open: by its parity")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("role(t < 64)", "role(t < 70)", "some threads of a warp, and not all"),
        ("role(t < 64)", "role(t < 96)", "a thread has a second role, t < 96"),
        ("full[c % 2]", "full[c % 3]", r"full\[2\] is out of bounds: there are 2"),
        (
            "                r[0] = 0.0",
            '                r[0] = 0.0\n                barrier("block")',
            "divergent barrier: 64 of 192 lanes of scope 'block'",
        ),
    ],
)
def test_threads_that_do_not_fit_their_role(old, new, message):
    fails(old, new, message)


def test_a_wait_outside_of_roles_that_nobody_ends_is_a_deadlock():
    func = parse(
        """
def f(y: Out[f32[32]]):
    for b in bound(1, "block.x"):
        m = barrier_object({count}, 1)
        for t in bound(32, "thread.x"):
            arrive(m[0])
            wait(m[0], 0)
            y[t] = 1.0
""".replace("{count}", "33")
    )
    with pytest.raises(InterpreterError, match=r"deadlock: all .* \(32 of 33 arrived"):
        run(func, np.zeros(32, "f4"))


def test_arrivals_of_all_threads_are_a_barrier():
    text = """
def f(x: i32[64], y: Out[i32[64]]):
    for b in bound(1, "block.x"):
        s = alloc(i32[64], scope="shared")
        m = barrier_object(64, 1)
        for t in bound(64, "thread.x"):
            s[t] = x[t]
            arrive(m[0])
            {wait}
            y[t] = s[(t + 32) % 64]
"""
    x, y = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    run(parse(text.replace("{wait}", "wait(m[0], 0)")), x, y)
    assert (y == (x + 32) % 64).all()
    with pytest.raises(InterpreterError, match="race: s"):
        run(parse(text.replace("{wait}", "pass")), x, y)


def test_a_barrier_object_does_not_order_threads_of_one_warp():
    func = parse("""
def f(x: i32[64], y: Out[i32[64]]):
    for b in bound(1, "block.x"):
        s = alloc(i32[64], scope="shared")
        m = barrier_object(1, 1)
        for t in bound(64, "thread.x"):
            s[t] = x[t]
            if t == 0:
                arrive(m[0])
            wait(m[0], 0)
            y[t] = s[t // 32 * 32 + (t + 1) % 32]
""")
    with pytest.raises(InterpreterError, match=r"race: s\[1\].*thread.x"):
        run(func, np.zeros(64, "i4"), np.zeros(64, "i4"))


def test_without_the_race_check_the_program_runs_in_its_turns():
    checks = ALL_CHECKS - {"race"}
    x, y = ring("s[c % 2, t % 32]", "s[c % 2, 31 - t % 32]", checks=checks)
    assert (y == x.sum(axis=1)[:, None, ::-1]).all()
