"""Integers wrap on every device as in the interpreter."""

from __future__ import annotations

from types import ModuleType

import pytest

from tensorlang.ir.dtypes import DType
from tensorlang.targets import Target

KINDS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


def loops(device: Target) -> tuple[str, ...]:
    """The kinds of loops that a device has."""
    return ("bound",) if device.kind == "cuda" else ("bound", "vectorized")


@pytest.mark.parametrize("kind", KINDS[:2])
def test_every_operation_on_all_pairs(programs: ModuleType, device: Target, kind: str):
    integers = programs.integers
    for loop in loops(device):
        integers.check(DType(kind), loop, integers.every_operation, device)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_told_of_what_may_wrap(
    programs: ModuleType, device: Target, kind: str
):
    integers = programs.integers
    for loop in loops(device):
        integers.check(DType(kind), loop, integers.what_integers_would_tell, device)


def test_random_expressions_compute_the_same(programs: ModuleType, device: Target):
    fuzzer = programs.fuzzers.fuzzer("lanewise", device.kind)
    programs.fuzzing.search(fuzzer, 5, 20)
