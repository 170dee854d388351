"""Blocks that a warp, a warpgroup or a block of threads runs together."""

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify

# each warpgroup adds a row of x to its rows of registers, thread by thread
TOGETHER = """
def f(x: f32[256], y: Out[f32[256]]):
    for b in bound(1, "block.x"):
        acc = alloc(f32[2, 128], scope="register", layout=lambda i, j: (i * 128 + j, 0))
        never = barrier_object(1, 1)
        for t in bound(256, "thread.x"):
            with block("all", vg=spatial(2, t // 128), scope="warpgroup"):
                for j in range(128):
                    acc[vg, j] = x[vg * 128 + j]
            y[t] = acc[t // 128, t % 128]
"""


def outcome(old="", new=""):
    assert old in TOGETHER
    func = parse(TOGETHER.replace(old, new))
    verify(func)
    x, y = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    run(func, x, y)
    return x, y


def test_a_warpgroup_writes_the_registers_of_its_threads():
    x, y = outcome()
    assert (y == x).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "            with block(",
            "            if t < 200:\n              with block(",
            "divergent collective: 56 of 128 threads of a warpgroup do not reach block",
        ),
        ("t // 128), scope", "t // 64 % 2), scope", "disagree on axis vg of block all"),
        (
            "acc[t // 128, t % 128]",
            "acc[t // 128, 127 - t % 128]",
            r"acc\[0, 127\] is in a register of thread 127, and thread 0 touches it",
        ),
        (
            "acc[vg, j]",
            "acc[1 - vg, j]",
            r"acc\[1, 0\] is in a register of thread 128, and thread 0 touches it",
        ),
    ],
)
def test_threads_that_do_not_come_together(old, new, message):
    text = TOGETHER.replace("                for j", "                  for j")
    text = text.replace("                    acc[vg", "                      acc[vg")
    text = text if "if t" in new else TOGETHER
    with pytest.raises(InterpreterError, match=message):
        run(parse(text.replace(old, new)), np.zeros(256, "f4"), np.zeros(256, "f4"))
