"""C literals: the shortest decimal that reads back to the same bits."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tensorlang.errors import CodegenError
from tensorlang.ir.nodes import Const

_SUFFIX: Final = {"u32": "u", "u64": "ul"}
_INT_MAX: Final = (1 << 31) - 1


def literal(expr: Const) -> str:
    """A constant as a C literal; f16 and bf16 as their bits."""
    if expr.dtype.is_bool:
        return "true" if expr.value else "false"
    if expr.dtype.name in ("f16", "bf16"):
        raw = np.array([expr.value]).astype(expr.dtype.numpy).view(np.uint16)
        return f"{int(raw[0]):#06x}"
    if expr.dtype.is_float:
        return _float(float(expr.value), single=expr.dtype.name == "f32")
    return _integer(int(expr.value), expr.dtype.name)


def _float(value: float, *, single: bool) -> str:
    if math.isnan(value):
        raise CodegenError("NaN has no literal in C: it is written by its bits")
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}INFINITY" if single else f"{sign}(f64)INFINITY"
    text = str(np.float32(value)) if single else repr(value)
    return f"{text}f" if single else text


def _integer(value: int, name: str) -> str:
    if name in _SUFFIX:
        return f"{value}{_SUFFIX[name]}"
    if -_INT_MAX <= value <= _INT_MAX:
        return str(value)
    if value == -(1 << 63):
        return "(-9223372036854775807l - 1)"
    return f"({value}l)" if value < 0 else f"{value}l"
