"""What goes wrong between threads, each fault alone in a kernel that is right without.

Rows of 60 numbers are reversed through shared memory, by blocks of 64 threads that take
two rows each; a barrier object tells when the second row may overwrite the first.
"""

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify

REVERSED = """
def reversed_rows(x: i32[4, 60], y: Out[i32[4, 60]]):
    for b in bound(2, "block.x"):
        s = alloc(i32[64], scope="shared")
        read = barrier_object(64, 1)
        for t in bound(64, "thread.x"):
            for r in range(2):
                wait(read[0], r - 1)
                if t < 60:
                    s[t] = x[b * 2 + r, t]
                barrier("block")
                if t < 60:
                    y[b * 2 + r, t] = s[59 - t]
                arrive(read[0])
"""
FAULTS = {
    "a missing barrier": (
        'barrier("block")',
        "pass",
        r"s\[59\] is read, but nothing wrote it|race: s\[\d+\]: .* reads what another",
    ),
    "a thread out of bounds": (
        "if t < 60:\n                    s[t] =",
        "if t < 64:\n                    s[t] =",
        r"x\[0, 60\] is out of bounds: dimension 1 has extent 60 \(at b=0, t=60, r=0\)",
    ),
    "a divergent barrier": (
        'barrier("block")\n                if t < 60:\n                    y',
        'if t < 60:\n                    barrier("block")\n                    y',
        "divergent barrier: 8 of 128 lanes of scope 'block' do not reach it",
    ),
    "a race through the shared tile": (
        "s[59 - t]",
        "s[(59 - t) // 2]\n                    s[t] = 0",
        r"race: s\[0\]: .* writes what another one",
    ),
    "a phase mixed up": (
        "wait(read[0], r - 1)",
        "wait(read[0], r - 2)",
        r"a wait for phase -2 of read\[0\], where phase 0 is open",
    ),
    "a phase not waited for": (
        "wait(read[0], r - 1)",
        "pass",
        r"race: s\[\d+\]: a warp writes what another one, or a copy, read",
    ),
    "an arrival that is missing": (
        "arrive(read[0])",
        "if t < 60:\n                    arrive(read[0])",
        r"deadlock: all threads wait for phase 0 of read\[0\] \(60 of 64 arrived\)",
    ),
}


def test_the_kernel_without_a_fault():
    func = parse(REVERSED)
    verify(func)
    x, y = np.arange(240, dtype="i4").reshape(4, 60), np.zeros((4, 60), "i4")
    run(func, x, y)
    assert (y == x[:, ::-1]).all()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name):
    old, new, message = FAULTS[name]
    assert old in REVERSED
    func = parse(REVERSED.replace(old, new).replace(" = 0\n", " = i32(0)\n"))
    x, y = np.arange(240, dtype="i4").reshape(4, 60), np.zeros((4, 60), "i4")
    with pytest.raises(InterpreterError, match=message) as found:
        run(func, x, y)
    assert str(found.value).count("\n") == 0
