"""Indices of tiles: vectors `base + row * pitch + column`, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorlang.codegen.folding import add, mul
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Binary, Const, Expr, Ramp, Splat

Steps: TypeAlias = NDArray[np.int64]
_LANEWISE: Final = {
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "xor": np.bitwise_xor,
}
_ONE: Final = Const(1, i64)
_ZERO: Final = Const(0, i64)


@dataclass(frozen=True)
class _Vector:
    """`base + steps[a] * a + ...` for scalars `a`; steps are by lane."""

    base: Expr
    steps: Mapping[Expr, Steps]


def rows_of(index: Expr, columns: int) -> tuple[Expr, Expr] | None:
    """The first index of a tile and the pitch of its rows; None if it is not one."""
    found, lanes = _vector(index), np.arange(index.dtype.lanes)
    if found is None:
        return None
    steps = {_ONE: np.zeros_like(lanes), **found.steps}
    steps[_ONE] = steps[_ONE] - lanes % columns
    pitch: Expr = _ZERO
    for scalar, each in steps.items():
        by = int(each[columns]) if len(lanes) > columns else 0
        if (each != by * (lanes // columns)).any():
            return None
        pitch = add(pitch, mul(scalar, Const(by, i64)))
    return found.base, pitch if len(lanes) > columns else Const(columns, i64)


def steps_of(index: Expr) -> tuple[Expr, Steps] | None:
    """A vector index as a scalar plus constants by lane; None if it is not one."""
    found = _vector(index)
    if found is None or not set(found.steps) <= {_ONE}:
        return None
    lanes = np.zeros(index.dtype.lanes, np.int64)
    return found.base, found.steps.get(_ONE, lanes)


def _vector(index: Expr) -> _Vector | None:
    """A vector made of ramps, splats and arithmetic on them."""
    match index:
        case Splat(value=value):
            return _Vector(value, {})
        case Ramp(base=base, stride=stride, lanes=lanes):
            return _sum(_Vector(base, {}), _times(np.arange(lanes), stride))
        case Binary(op=op, a=a, b=b):
            x, y = _vector(a), _vector(b)
            return None if x is None or y is None else _combined(op, x, y)
    return None


def _times(steps: Steps, scalar: Expr) -> _Vector:
    if isinstance(scalar, Const):
        return _Vector(_ZERO, {_ONE: steps * int(scalar.value)})
    return _Vector(_ZERO, {scalar: steps})


def _combined(op: str, x: _Vector, y: _Vector) -> _Vector | None:
    if op == "add":
        return _sum(x, y)
    if op == "sub":
        return _sum(x, _product(y, Const(-1, i64)))
    if op == "mul" and not (x.steps and y.steps):
        return _product(x, y.base) if x.steps else _product(y, x.base)
    if op in _LANEWISE and not y.steps:
        return _by_lane(op, x, y.base)
    return None


def _sum(x: _Vector | None, y: _Vector | None) -> _Vector | None:
    if x is None or y is None:
        return None
    steps = dict(x.steps)
    for scalar, each in y.steps.items():
        steps[scalar] = steps[scalar] + each if scalar in steps else each
    return _Vector(add(x.base, y.base), steps)


def _product(x: _Vector, scalar: Expr) -> _Vector | None:
    """A vector times a scalar, if no two scalars are multiplied in it."""
    if not (isinstance(scalar, Const) or set(x.steps) <= {_ONE}):
        return None
    made: _Vector | None = _Vector(mul(x.base, scalar), {})
    for of, each in x.steps.items():
        known = isinstance(scalar, Const)
        part = each * int(scalar.value) if known else each  # type: ignore[attr-defined]
        made = _sum(made, _times(part, of if known else scalar))
    return made


def _by_lane(op: str, x: _Vector, by: Expr) -> _Vector | None:
    """An operation on a vector of constants."""
    match x.base, by:
        case Const(value=first), Const(value=number) if set(x.steps) == {_ONE}:
            made = _LANEWISE[op](x.steps[_ONE] + int(first), int(number))
            return _Vector(_ZERO, {_ONE: made})
    return None
