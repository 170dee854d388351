"""Atomic updates of every type, on PoCL, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import run
from tensorlang.ir.text.parser import parse
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.reductions import one_result
from tensorlang.scheduling import Knobs, Schedule

# of each operation: what a block folds in its own memory, then of all blocks
HEAD = """
def fold(x: {T}[{N}, 1000], y: InOut[{T}[{N}, 3]]):
"""
FOLD = """\
    for b{n} in bound(4, "block.x"):
        s{n} = alloc({T}[3], scope="shared")
        for i{n} in bound(3, "thread.x"):
            s{n}[i{n}] = {START}
        for j{n} in bound(250, "thread.x"):
            atomic("{OP}", s{n}[j{n} % 3], x[{n}, b{n} * 250 + j{n}])
        for k{n} in bound(3, "thread.x"):
            atomic("{OP}", y[{n}, k{n}], s{n}[k{n}])
"""
FLOATS = ["f16", "bf16", "f32", "f64"]
# each way to do it, of each width: an instruction, a word swapped, a part of a word
CASES = [
    ("i8", ["add", "min"]),
    ("u8", ["xor"]),
    ("i16", ["mul"]),
    ("u16", ["max"]),
    ("i32", ["add", "min"]),
    ("u32", ["or", "mul"]),
    ("i64", ["add", "max"]),
    ("u64", ["and"]),
    ("f16", ["add"]),
    ("bf16", ["add", "max"]),
    ("f32", ["add", "min"]),
    ("f64", ["mul"]),
    ("bool", ["or"]),
]
NUMPY = {"bf16": ml_dtypes.bfloat16, "bool": np.bool_}


def start(kind, op):
    """The neutral element, as the IR writes it."""
    bits = int(kind.lstrip("iubf") or 1) if kind != "bool" else 1
    whole = {"i": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), "u": (0, 2**bits - 1)}
    low, high = whole.get(kind[0], (0, 0))
    value = {"mul": 1, "and": -1 if low else high, "min": high, "max": low}.get(op, 0)
    if kind == "bool":
        return str(op == "and")
    if kind in FLOATS:
        ends = {"min": '"inf"', "max": '"-inf"'}
        return f"{kind}({ends.get(op, float(op == 'mul'))})"
    return f"{kind}({value})"


def numbers(kind, op):
    """What folds to one result in any order: small, or one of which most are 1."""
    rng = np.random.default_rng(3)
    dtype = np.dtype(
        NUMPY.get(kind)
        or {"f": "f", "i": "i", "u": "u"}[kind[0]] + str(int(kind[1:]) // 8)
    )
    if kind == "bool":
        return rng.random(1000) < 0.5
    if kind in FLOATS:
        few = rng.random(1000) < (0.01 if op == "mul" else 0.05)
        ends = (2.0, 1.0) if op == "mul" else (1.0, 0.0)
        return (
            np.where(few, *ends).astype(dtype)
            if op in ("add", "mul")
            else (rng.standard_normal(1000).astype(dtype))
        )
    return rng.integers(0, 256, 1000).astype(dtype)


@pytest.mark.parametrize(("kind", "ops"), CASES)
def test_a_type(gpu_like, kind, ops):
    text = HEAD
    for n, op in enumerate(ops):
        part = FOLD.replace("{START}", start(kind, op)).replace("{OP}", op)
        text += part.replace("{n}", str(n))
    func = parse(text.replace("{T}", kind).replace("{N}", str(len(ops))))
    x = np.stack([numbers(kind, op) for op in ops])
    wanted, got = x[:, :3].copy(), x[:, :3].copy()
    run(func, x, wanted)
    build(func, gpu_like, store=False).launch(x, got)
    assert (got == wanted).all()
    assert all(len(np.unique(row)) > 1 for row in x)


def test_an_update_of_ones_own_memory_is_a_plain_one(gpu_like):
    func = parse("""
def f(x: f32[64, 4], y: Out[f32[64]]):
    for i in bound(64, "thread.x"):
        s = alloc(f32[2], scope="private")
        s[0] = 0.0
        for j in range(4):
            atomic("add", s[0], x[i, j])
        y[i] = s[0]
""")
    kernel = build(func, gpu_like, store=False)
    assert "atomic" not in kernel.source
    x, y = np.ones((64, 4), "f4"), np.zeros(64, "f4")
    kernel.launch(x, y)
    assert (y == 4).all()


def test_a_total_of_integers_by_atomic_updates(gpu_like):
    func = parse("""
def total(x: i32[40000], y: Out[i32[1]]):
    for i in range(1):
        for k in range(40000):
            with block("y", vi=spatial(1, i), vk=reduction(40000, k)):
                reduce(sum, y[vi], x[vk])
""")
    s = Schedule(func, gpu_like)
    one_result(s, Knobs(pinned={"across_blocks": "atomics"}), stage_named(s, "y"))
    kernel = build(s.function, gpu_like, store=False)
    assert "atomic_add" in kernel.source
    x, y = np.arange(40000, dtype="i4") % 1000, np.zeros(1, "i4")
    kernel.launch(x, y)
    assert y[0] == x.sum()
