"""Asynchronous copies: there after the wait for their group, and a barrier."""

import numpy as np
import pytest

from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.lower import lower as lower_for_a_cpu
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import DTypeError, InterpreterError, IRError
from tensorlang.ir.interpreter import run
from tensorlang.ir.natives import native
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.targets import get, host

GPU = get("cuda:sm_80")
STEPS = [
    'store(t[i], x[i], hints=("async",))',
    "evaluate(commit_copies())",
    'store(u[i], x[i], hints=("async",))',
    "evaluate(commit_copies())",
    "evaluate(wait_copies(1))",
    'barrier("block")',
    "y[i] = t[(i + 1) % 32]",
    "evaluate(wait_copies(0))",
    'barrier("block")',
    "y[i] = y[i] + u[(i + 2) % 32]",
]


def threads(steps):
    lines = "".join(f"            {step}\n" for step in steps)
    return parse(
        f"""
def f(x: f32[32], y: Out[f32[32]]):
    for b in bound(1, "block.x"):
        t = alloc(f32[32], scope="shared")
        u = alloc(f32[32], scope="shared")
        for i in bound(32, "thread.x"):
{lines}"""
    )


def outcome(func):
    verify(func)
    x, y = np.arange(32, dtype="f4"), np.zeros(32, "f4")
    run(func, x, y)
    return y


def test_copies_are_there_after_wait_and_barrier():
    func = threads(STEPS)
    assert parse(show(func)) == func
    x = np.arange(32, dtype="f4")
    np.testing.assert_array_equal(outcome(func), np.roll(x, -1) + np.roll(x, -2))


@pytest.mark.parametrize(
    ("left_out", "fault"),
    [
        (4, r"t\[1\] is read while a copy into it is pending; call wait_copies"),
        (5, r"race: t\[\d+\]"),
        (7, r"u\[2\] is read while a copy into it is pending"),
        (8, r"race: u\[\d+\]"),
        (1, r"is read while a copy into it is pending"),
    ],
)
def test_what_is_left_out_is_found(left_out, fault):
    steps = [step for number, step in enumerate(STEPS) if number != left_out]
    with pytest.raises(InterpreterError, match=fault):
        outcome(threads(steps))


def test_a_barrier_before_the_wait_does_not_help():
    steps = [*STEPS[:4], STEPS[5], STEPS[4], *STEPS[6:]]
    with pytest.raises(InterpreterError, match=r"race: t\[\d+\]"):
        outcome(threads(steps))


def test_nobody_writes_where_a_copy_goes():
    steps = [STEPS[0], "t[i] = 1.0", *STEPS[1:]]
    with pytest.raises(InterpreterError, match="is written while a copy into it"):
        outcome(threads(steps))


def test_threads_that_copy_wait_themselves():
    steps = [*STEPS[:2], "if i < 16:", "    evaluate(wait_copies(0))", "y[i] = 0.0"]
    with pytest.raises(InterpreterError, match="some threads that started a copy"):
        outcome(threads(steps))


def test_forms():
    with pytest.raises(DTypeError, match="takes a number of groups"):
        native("wait_copies", True)
    func = parse("def f(y: Out[bool[1]]):\n    y[0] = commit_copies()\n")
    with pytest.raises(IRError, match="has an effect"):
        verify(func)


def test_barriers_are_placed_after_the_wait():
    """Without a barrier in the text: the analysis finds where each has to stand."""
    body = """
def f(x: f32[2, 128], y: Out[f32[128]]):
    for b in bound(1, "block.x"):
        t = alloc(f32[2, 128], scope="shared")
        for i in bound(32, "thread.x"):
            for v in vectorized(4):
                store(t[0, i * 4 + v], x[0, i * 4 + v], hints=("async",))
        evaluate(commit_copies())
        for i in bound(32, "thread.x"):
            for v in vectorized(4):
                store(t[1, i * 4 + v], x[1, i * 4 + v], hints=("async",))
        evaluate(commit_copies())
        evaluate(wait_copies(0))
        for i in bound(128, "thread.x"):
            y[i] = t[0, 127 - i] + t[1, 127 - i]
"""
    made = lower(parse(body), GPU)
    text = show(made)
    assert text.count("barrier(") == 1
    assert text.index("wait_copies") < text.index("barrier(")
    x, y = np.arange(256, dtype="f4"), np.zeros(128, "f4")
    run(made, x, y)
    np.testing.assert_array_equal(y, x.reshape(2, 128).sum(0)[::-1])
    source = render(made, GPU)
    assert "copy_async_16(t + at, x + at, 16);" in source
    assert "cp.async.wait_group 0;" in source


def test_elsewhere_they_are_plain_stores():
    func = threads(STEPS)
    plain = lower_for_a_cpu(
        parse(
            "def f(x: f32[4], y: Out[f32[4]]):\n    for i in range(4):\n"
            '        store(y[i], x[i], hints=("async",))\n'
            "    evaluate(wait_copies(0))\n"
        ),
        host(),
    )
    assert "async" not in show(plain)
    assert "wait_copies" not in show(plain)
    assert "async" in show(lower(func, GPU))  # 4 bytes of a thread alone
    halves = parse(show(func).replace("f32", "f16"))
    assert "async" not in show(lower(halves, GPU))  # no instruction copies so few
