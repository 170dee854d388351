"""Type promotion: the one type in which an operator reads arrays of several types.

The rule is PyTorch's for arrays, which is NumPy's within a kind:

| arrays | common type |
|---|---|
| floats, beside anything | the widest float; f32 of f16 and bf16 |
| integers, beside bool | the smallest integer that holds the values of all |
| bool | bool |

An operator of floats reads integers and bool as f32, as in PyTorch. There is no common
type of u64 and signed integers: NumPy's, f64, does not hold their values.

A Python number takes the type of the arrays, unless its kind is higher (bool, integer,
float): a float makes integers f32, an integer makes bool i64. Arrays without dimensions
are arrays like others, as in NumPy and JAX.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Final

import numpy as np

from tensorlang import ir

# the type that a number of a kind gives to arrays of a lower kind, lowest first
_RAISED: Final = {bool: "", int: "i64", float: "f32"}


@cache
def promoted(names: tuple[str, ...], allowed: tuple[str, ...], raised: str = "") -> str:
    """The common type of element types; an empty string if there is none.

    Args:
        names: The types.
        allowed: The types that the operator reads.
        raised: The type that numbers give to arrays of a lower kind; see `raised_by`.
    """
    common = _common({*names})
    if raised and common and _rank(common) < _rank(raised):
        common = raised
    if common in allowed or not common:
        return common
    floats = all(ir.DType(name).is_float for name in allowed)
    return "f32" if floats and not ir.DType(common).is_float else ""


def raised_by(numbers: Iterable[type]) -> str:
    """The type that Python numbers of these types give to arrays of a lower kind."""
    kinds = [next(k for k in _RAISED if issubclass(each, k)) for each in numbers]
    return _RAISED[max(kinds, key=[*_RAISED].index)] if kinds else ""


def _rank(name: str) -> int:
    return ("bool", "int", "uint", "float").index(ir.DType(name).kind)


def _common(names: Collection[str]) -> str:
    kinds = [ir.DType(name) for name in names]
    floats = {kind.name for kind in kinds if kind.is_float}
    if floats:
        widest = max(floats, key=lambda name: ir.DType(name).bits)
        return "f32" if floats == {"f16", "bf16"} else widest
    made = np.result_type(*(kind.numpy for kind in kinds))
    return "" if made.kind == "f" else ir.as_dtype(made).name
