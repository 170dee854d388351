"""The shape of every scheduling test: text, one step, golden text, equality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Const, Function
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify


def _arrays(func: Function, sizes: dict[str, int], seed: int) -> list[Any]:
    """Small integers in every array, so that sums of floats are exact in any order."""
    rng = np.random.default_rng(seed)
    arrays = []
    for param in func.params:
        shape = tuple(
            int(e.value) if isinstance(e, Const) else sizes[e.name]  # type: ignore[attr-defined]
            for e in param.buffer.shape
        )
        values = rng.integers(-4, 5, shape)
        if param.role == "out":
            values = np.full(shape, 77)
        arrays.append(values.astype(param.buffer.dtype.numpy))
    return arrays


def outcome(func: Function, sizes: dict[str, int], seed: int = 0) -> list[Any]:
    """The arrays after a run on seeded inputs."""
    arrays = _arrays(func, sizes, seed)
    run(func, *arrays)
    return arrays


@pytest.fixture
def same_meaning() -> Callable[..., None]:
    """Compare two functions bit by bit in the interpreter, for given sizes."""

    def check(before: Function, after: Function, **sizes: int) -> None:
        verify(after)
        assert parse(show(after)) == after
        for old, new in zip(outcome(before, sizes), outcome(after, sizes), strict=True):
            np.testing.assert_array_equal(old, new)

    return check


@pytest.fixture
def wrong(same_meaning: Callable[..., None]) -> Callable[..., None]:
    """Expect that two functions differ, or that the second one faults."""

    def check(before: Function, after: Function, **sizes: int) -> None:
        outcome(before, sizes)
        with pytest.raises((TensorlangError, AssertionError)):  # a fault, or different
            same_meaning(before, after, **sizes)

    return check
