"""What the host runs: numbers that it has not are computed by the threads."""

import pytest

from tensorlang import targets
from tensorlang.codegen.simt.host import host_program
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.text.parser import parse

CUDA = targets.get("cuda:sm_80")


def lowered(before, use):
    return lower(
        parse(f"""
def f(x: f32[16], y: Out[f32[16]], *, a: f32, n: i64):
    {before}
    for b in bound(1, "block.x"):
        for t in bound(16, "thread.x"):
            y[t] = x[t] * {use}
"""),
        CUDA,
    )


@pytest.mark.parametrize(
    ("before", "use"),
    [
        ("twice: f32 = a * 2.0", "twice"),
        ("seven: f32 = cast(f32, n) + 7.0", "seven"),
    ],
)
def test_a_float_is_computed_by_the_threads(before, use):
    program = host_program(lowered(before, use))
    assert program["program"] == [["launch", 0]]
    assert before.partition(": f32 = ")[2] in str(lowered(before, use))


def test_an_integer_is_computed_once_by_the_host():
    made = lowered("many: i64 = n * 3", "cast(f32, many)")
    assert host_program(made)["program"] == [
        ["let", "many", ["mul", "n", 3]],
        ["launch", 0],
    ]
