"""The C that is printed: golden sources, the same on every run, and small parts."""

import pytest

from tensorlang import targets
from tensorlang.codegen.c_family.literals import literal
from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Const
from tensorlang.ir.text.parser import parse
from tensorlang.ops.kernels.building import default
from tensorlang.ops.registry import find
from tensorlang.targets import Target

OPENCL = Target(kind="opencl", device="a test", arch="gpu64", block_threads=256)
CUDA = targets.get("cuda:sm_80")

ROWS = """
def rows(x: f32[m, 256], y: Out[f32[m, 256]], z: Out[bf16[m]], *, m: i64):
    for i in bound(m, "block.x"):
        t = alloc(f32[256], scope="shared")
        s = alloc(f32[1], scope="shared")
        for j in bound(64, "thread.x"):
            for v in vectorized(4):
                t[j * 4 + v] = x[i, j * 4 + v] * 2.0
        s[0] = 0.0
        for k in range(256):
            with block("b", vk=reduction(256, k)):
                reduce(sum, s[0], t[vk])
        for j in bound(64, "thread.x"):
            for v in vectorized(4):
                y[i, j * 4 + v] = t[255 - (j * 4 + v)] / s[0]
        for j in bound(32, "thread.x"):
            if j == 0:
                z[i] = cast(bf16, s[0])
"""


@pytest.mark.parametrize("target", [OPENCL, CUDA], ids=["opencl", "cuda"])
def test_rows(golden, target):
    lowered = lower(parse(ROWS), target)
    source = render(lowered, target, {"threads": 64})
    assert source == render(lower(parse(ROWS), target), target, {"threads": 64})
    golden(source)


@pytest.mark.parametrize("name", ["math.add", "random.bits"])
def test_operator(name, golden):
    op = find(name)
    made = default(op, op.default, CUDA, {})[0]
    golden(render(lower(made.function, CUDA), CUDA, dict(made.knobs)))


def test_rows_lowered(golden):
    golden(str(lower(parse(ROWS), CUDA)))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "f32", "0.1f"),
        (1e-45, "f32", "1e-45f"),
        (0.1, "f64", "0.1"),
        (float("-inf"), "f32", "-INFINITY"),
        (1.0, "f16", "0x3c00"),
        (1.0, "bf16", "0x3f80"),
        (5, "u32", "5u"),
        (-(1 << 31), "i32", "(-2147483648l)"),
        (1 << 40, "i64", "1099511627776l"),
        (True, "bool", "true"),
    ],
)
def test_literals(value, dtype, text):
    assert literal(Const(value, DType(dtype))) == text
