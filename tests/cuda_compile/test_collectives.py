"""Collectives become the instructions that they are named after."""

import pytest

from tensorlang import build
from tensorlang.ir.text.parser import parse

TYPES = ["f16", "bf16", "f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64"]


@pytest.mark.parametrize("dtype", TYPES)
def test_shuffles_compile_for_every_type(dtype):
    func = parse(
        f"""
def f(x: {dtype}[64], y: Out[{dtype}[64]]):
    for t in bound(64, "thread.x"):
        a: {dtype} = shuffle_xor(x[t], 16)
        b: {dtype} = shuffle_down(a, 1)
        y[t] = shuffle_index(b, t // 2)
"""
    )
    sass = build(func, "cuda:sm_80").asm
    assert "SHFL.BFLY" in sass
    assert "SHFL.DOWN" in sass
    assert "SHFL.IDX" in sass
