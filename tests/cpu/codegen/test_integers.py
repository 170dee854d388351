"""Integers wrap in compiled code as in the interpreter."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tensorlang.ir.dtypes import DType
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.runtime import build

KINDS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


@pytest.mark.parametrize("loop", ["serial", "vectorized"])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_every_operation_on_all_pairs(programs: ModuleType, kind: str, loop: str):
    integers = programs.integers
    integers.check(DType(kind), loop, integers.every_operation, "llvm")


@pytest.mark.parametrize("loop", ["serial", "vectorized"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_told_of_what_may_wrap(programs: ModuleType, kind: str, loop: str):
    integers = programs.integers
    integers.check(DType(kind), loop, integers.what_integers_would_tell, "llvm")


def test_random_expressions_compute_the_same(programs: ModuleType) -> None:
    programs.fuzzing.search(programs.fuzzers.fuzzer("lanewise", "llvm"), 3, 25)


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
def test_names_of_numbers_that_no_integer_is(number: str) -> None:
    func = parse(f"""
def f(x: f32[64], y: Out[f32[64]]):
    for i in vectorized(64):
        a: f32 = f32("{number}")
        y[i] = x[i] + a
""")
    x, wanted, got = (np.ones(64, np.float32) for _ in range(3))
    run(func, x, wanted)
    build(func, store=False)(x, got)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kinds", [("u8", "i8"), ("i8", "u8"), ("i8", "i8")])
@pytest.mark.parametrize("lanes", [2, 4, 7, 8, 16, 32, 64])
def test_sums_of_products_of_bytes_use_all_lanes(kinds: tuple[str, str], lanes: int):
    """LLVM 22 selects dot products for some, and drops lanes of sums in halves."""
    func = parse(f"""
def f(a: {kinds[0]}[{lanes}], b: {kinds[1]}[{lanes}], y: Out[i32[1]]):
    for k in vectorized({lanes}):
        with block("y", vk=reduction({lanes}, k)):
            reduce(sum, y[0], cast(i32, a[vk]) * cast(i32, b[vk]))
""")
    a, b = (
        np.arange(-n, lanes - n).astype(DType(k).numpy) for n, k in enumerate(kinds)
    )
    got = np.zeros(1, np.int32)
    build(func, store=False)(a, b, got)
    assert got[0] == a.astype(int) @ b.astype(int)
