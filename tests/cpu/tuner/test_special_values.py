"""Kernels that are wrong at a single special value: the gate lets none of them pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Buffer,
    Const,
    Expr,
    Function,
    Load,
    Select,
    Unary,
    compare,
)
from tensorlang.ir.visit import rebuild
from tensorlang.ops import Operator, find
from tensorlang.runtime import build
from tensorlang.tuner.correctness.gate import Gate, Wrong
from tensorlang.tuner.correctness.reference import parallelised

When = Callable[[Expr], Expr]


def both(a: Expr, b: Expr) -> Expr:
    return Binary("and", a, b)


def equal(x: Expr, value: Any) -> Expr:
    return compare("eq", x, value)


def size(x: Expr) -> Expr:
    return Unary("abs", x)


def bits(x: Expr) -> Expr:
    return Bitcast(DType(f"u{x.dtype.bits}"), x)


def limits(x: Expr) -> Any:
    return np.finfo(x.dtype.numpy)


def quiet(x: Expr) -> Expr:
    """The bit that is set in a NaN which is not signalling."""
    return compare("ne", bits(x) & (1 << (limits(x).nmant - 1)), 0)


def negative(x: Expr) -> Expr:
    return compare("ne", bits(x) >> (x.dtype.bits - 1), 0)


def nan(x: Expr) -> Expr:
    return compare("ne", x, x)


# where a planted kernel takes another number for the one that it is given
FLOATS: dict[str, When] = {
    "zero": lambda x: equal(x, 0.0),
    "minus zero": lambda x: equal(bits(x), 1 << (x.dtype.bits - 1)),
    "one": lambda x: equal(x, 1.0),
    "subnormal": lambda x: both(size(x) > 0.0, size(x) < float(limits(x).tiny)),
    "above 100": lambda x: x > 100.0,
    "the largest": lambda x: equal(x, float(limits(x).max)),
    "infinity": lambda x: x > float(limits(x).max),
    "minus infinity": lambda x: x < -float(limits(x).max),
    "quiet NaN": lambda x: both(nan(x), quiet(x)),
    "signalling NaN": lambda x: both(nan(x), Unary("not", quiet(x))),
    "negative NaN": lambda x: both(nan(x), negative(x)),
}
WHOLE: dict[str, When] = {
    "zero": lambda x: equal(x, 0),
    "one": lambda x: equal(x, 1),
    "the least": lambda x: equal(x, x.dtype.limits[0]),
    "the largest": lambda x: equal(x, x.dtype.limits[1]),
}
PLACES: dict[str, When] = {
    "row 0": lambda x: equal(x, 0),
    "the last row": lambda x: equal(x, 30),
}
# an operator with shapes, the input that is misread, and where
OPERATORS: dict[str, tuple[Any, ...]] = {
    "math.add": ((40_000,), (40_000,), "b", FLOATS),
    "math.exp": ((40_000,), "x", FLOATS),
    "math.sum": ((31, 70), "x", FLOATS),
    "math.argmax": ((31, 70), "x", FLOATS),
    "math.cumsum": ((31, 70), "x", FLOATS),
    "math.sort": ((5, 50), "x", FLOATS),
    "nn.softmax": ((31, 70), "x", FLOATS),
    "nn.layer_norm": ((31, 70), (70,), (70,), "x", FLOATS),
    "nn.dense": ((31, 20), (11, 20), "w", FLOATS),
    "nn.conv2d": ((2, 3, 9, 11), (5, 3, 3, 3), "x", FLOATS),
    "nn.max_pool2d": ((2, 3, 9, 11), "x", FLOATS),
    "nn.batch_norm_train": ((3, 5, 30), (5,), (5,), (5,), (5,), "x", FLOATS),
    "optim.adam": ((999,), (999,), (999,), (999,), "m", FLOATS),
    "nn.embedding": ((70,), (31, 5), "table", FLOATS),
    "nn.embedding ids": ((70,), (31, 5), "ids", PLACES),
    "math.floor_divide": ((999,), (999,), "i32", "a", WHOLE),
    "random.uniform": ((999,), "key", {"zero": WHOLE["zero"]}),
}


def gate_of(name: str) -> tuple[Gate, Operator, str, dict[str, When]]:
    *shapes, read, where = OPERATORS[name]
    op = find(name.partition(" ")[0])
    dtypes = shapes.pop() if isinstance(shapes[-1], str) else None
    extra = {"kernel": 3} if "pool" in name else {}
    workload = op.workload(*shapes, dtypes=dtypes, **extra)
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    return gate, op, read, where


def misreading(func: Function, read: str, when: When, replaced: int) -> Function:
    """The function, which takes a number for the elements where `when` says so."""

    def visit(node: Any) -> Any:
        made = node if isinstance(node, Buffer) else rebuild(node, visit)
        if isinstance(made, Load) and made.buffer.name == read:
            return Select(when(made), Const(replaced, made.dtype), made)
        return made

    return Function(func.name, func.params, func.scalars, visit(func.body))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_that_is_wrong_at_one_value_is_found(name: str) -> None:
    gate, op, read, where = gate_of(name)
    cases = [(case, op.function(case.workload)) for case in (*gate.small, gate.full)]
    for case, func in cases:  # what is right passes
        assert gate.check(build(parallelised(func)), case) <= 1
    missed = []
    replaced = -3 if name == "math.argmax" else 3  # a 3 is the largest, as a NaN is
    if name == "math.argmax":  # neither is the largest
        where = {value: when for value, when in where.items() if "minus i" not in value}
    for value, when in where.items():
        wrong = [misreading(func, read, when, replaced) for _, func in cases]
        try:
            for (case, _), func in zip(cases, wrong, strict=True):
                gate.check(build(parallelised(func)), case)
            missed.append(value)
        except Wrong:
            continue
    assert missed == []
