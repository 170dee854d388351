"""Type promotion: the one type in which an operator reads arrays of several types.

The rule is PyTorch's for arrays, which is NumPy's within a kind:

| arrays | common type |
|---|---|
| floats, beside anything | the widest float; f32 of f16 and bf16 |
| integers, beside bool | the smallest integer that holds the values of all |
| bool | bool |

An operator of floats reads integers and bool as f32, as in PyTorch. There is no common
type of u64 and signed integers: NumPy's, f64, does not hold their values.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np

from tensorlang import ir


@cache
def promoted(names: tuple[str, ...], allowed: tuple[str, ...]) -> str:
    """The common type of element types; an empty string if there is none.

    Args:
        names: The types.
        allowed: The types that the operator reads.
    """
    common = _common({*names})
    if common in allowed or not common:
        return common
    floats = all(ir.DType(name).is_float for name in allowed)
    return "f32" if floats and not ir.DType(common).is_float else ""


def _common(names: Collection[str]) -> str:
    kinds = [ir.DType(name) for name in names]
    floats = {kind.name for kind in kinds if kind.is_float}
    if floats:
        widest = max(floats, key=lambda name: ir.DType(name).bits)
        return "f32" if floats == {"f16", "bf16"} else widest
    made = np.result_type(*(kind.numpy for kind in kinds))
    return "" if made.kind == "f" else ir.as_dtype(made).name
