"""No barrier too many: without any single one, the interpreter finds a fault."""

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Barrier, Seq, seq
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import transform, walk
from tensorlang.ops.kernels.building import default
from tensorlang.ops.registry import find
from tensorlang.runtime.describing import signature_of
from tensorlang.tuner.correctness.gate import Gate

GPU = targets.get("cuda:sm_90a")


def barriers(func):
    return sum(isinstance(node, Barrier) for node in walk(func))


def without(func, number):
    """The function without one of its barriers."""
    left = iter(range(barriers(func)))

    def change(node):
        if not isinstance(node, Seq):
            return node
        kept = (
            s for s in node.stmts if not isinstance(s, Barrier) or next(left) != number
        )
        return seq(*kept)

    return transform(func, change)


@pytest.mark.parametrize(
    "name",
    ["math.max", "math.argmax", "math.var", "nn.softmax", "nn.cross_entropy_grad"],
)
def test_each_barrier_is_needed(name):
    op = find(name)
    gate = Gate(op, op.default, 1.0)
    case = gate.compiled(gate.odd)
    func = default(op, case.workload, GPU, {})[0].function
    lowered = lower(func, GPU)
    given = iter(case.scalars)
    sizes = op.sizes(case.workload)
    scalars = {
        var.name: sizes[spec.name] if spec.bound else next(given)
        for spec, var in zip(signature_of(func).scalars, lowered.scalars, strict=True)
    }

    def outcome(func):
        run(
            func,
            *(array.copy().reshape(-1) for array in case.runs[0].inputs),
            **scalars,
        )

    outcome(lowered)
    assert barriers(lowered) > 0
    for number in range(barriers(lowered)):
        with pytest.raises(InterpreterError):
            outcome(without(lowered, number))


TWO = """
def two(x: f32[4, 512], e: Out[f32[4, 512]], y: Out[f32[4, 512]]):
    for i in bound(4, "block.x"):
        for j in bound({threads}, "thread.x"):
            for a in range({each}):
                e[i, {written}] = x[i, j * {each} + a] + 1.0
        for j in bound({threads}, "thread.x"):
            for a in range({each}):
                y[i, j * {each} + a] = e[i, {read}] * 2.0
"""
# what is written and read, elements of each thread, barriers; a second one that is not
# needed is there: that strided elements are a thread's own is not seen
WAYS = [
    ("j * 4 + a", "j * 4 + a", 4, 0),
    ("j + a * 128", "j + a * 128", 4, 1),
    ("j * 4 + a", "j * 4 + (3 - a)", 4, 0),
    ("j * 4 + a", "511 - (j * 4 + a)", 4, 1),
    ("j * 4 + a", "j + a * 128", 4, 1),
    ("j", "j", 1, 0),
    ("j", "(j + 1) % 512", 1, 1),
]


@pytest.mark.parametrize(("written", "read", "each", "count"), WAYS)
def test_a_thread_does_not_wait_for_itself(written, read, each, count):
    text = TWO.format(written=written, read=read, each=each, threads=512 // each)
    lowered = lower(parse(text), GPU)
    assert barriers(lowered) == count
    x = np.arange(4 * 512, dtype="f4")
    e, y = np.zeros_like(x), np.zeros_like(x)
    run(lowered, x, e, y)  # finds a race, were one barrier too few
    np.testing.assert_array_equal(np.sort(y), np.sort(x * 2 + 2))
