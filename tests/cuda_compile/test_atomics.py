"""Atomic updates in CUDA: an instruction where there is one, else compare and swap."""

import re

import pytest

from tensorlang import build
from tensorlang.ir.text.parser import parse

FOLD = """
def fold(x: {T}[1000], y: InOut[{T}[3]]):
    for b in bound(4, "block.x"):
        for j in bound(250, "thread.x"):
            atomic("{OP}", y[j % 3], x[b * 250 + j])
"""
NATIVE = [("add", "i32"), ("add", "i64"), ("add", "f32"), ("add", "f64")]
NATIVE += [("max", "i64"), ("min", "u32"), ("xor", "u64"), ("and", "i64")]
SWAPPED = [("add", "bf16"), ("add", "u8"), ("max", "f32"), ("mul", "f64")]
SWAPPED += [("min", "f16"), ("mul", "i64"), ("or", "bool")]


def sass(op, kind):
    func = parse(FOLD.replace("{T}", kind).replace("{OP}", op))
    return build(func, "cuda:sm_90a", store=False).asm


@pytest.mark.parametrize(("op", "kind"), NATIVE)
def test_an_instruction(op, kind):
    text = sass(op, kind)
    assert re.search(r"\b(REDG|RED|ATOMG|ATOM)\.E\.", text)
    assert "CAS" not in text


@pytest.mark.parametrize(("op", "kind"), SWAPPED)
def test_compare_and_swap(op, kind):
    assert re.search(r"ATOMG?\.E\.CAS", sass(op, kind))
