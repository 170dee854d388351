"""All named functions of the IR: the natives, and mathematics with an expansion.

A native is one instruction on every backend. A mathematical function is *defined* by
its expansion in `tensorlang.ir.math` into arithmetic, bit tricks and fma, with the
error bound of its entry: the same bits everywhere, the interpreter included.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.ir.natives import (
    NATIVES,
    Intrinsic,
    call,
    ceil,
    check,
    clz,
    copysign,
    floats,
    floor,
    fma,
    isinf,
    isnan,
    mulhi,
    popcount,
    prefetch,
    rotl,
    round,
    sqrt,
    trunc,
)
from tensorlang.ir.nodes import Call, ExprLike

__all__ = [
    "INTRINSICS",
    "Intrinsic",
    "ceil",
    "check",
    "clz",
    "copysign",
    "cos",
    "erf",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fma",
    "intrinsic",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "mulhi",
    "popcount",
    "pow",
    "prefetch",
    "rotl",
    "round",
    "sigmoid",
    "sin",
    "sqrt",
    "tanh",
    "trunc",
]

_BOUNDS = {"f16": 0.51, "bf16": 0.51, "f32": 2.0, "f64": 2.0}
_MATH: Final = (
    Intrinsic("exp", 1, floats("exp"), np.exp, "e to the x", _BOUNDS),
    Intrinsic("exp2", 1, floats("exp2"), np.exp2, "2 to the x", _BOUNDS),
    Intrinsic("expm1", 1, floats("expm1"), np.expm1, "exp(x) - 1", _BOUNDS),
    Intrinsic("log", 1, floats("log"), np.log, "natural logarithm", _BOUNDS),
    Intrinsic("log2", 1, floats("log2"), np.log2, "logarithm to base 2", _BOUNDS),
    Intrinsic("log1p", 1, floats("log1p"), np.log1p, "log(1 + x)", _BOUNDS),
    Intrinsic("tanh", 1, floats("tanh"), np.tanh, "hyperbolic tangent", _BOUNDS),
    Intrinsic(
        "sigmoid",
        1,
        floats("sigmoid"),
        lambda x: 1 / (1 + np.exp(-x)),
        "1 / (1 + exp(-x))",
        _BOUNDS,
    ),
    Intrinsic("erf", 1, floats("erf"), np.tanh, "the error function", _BOUNDS),
    Intrinsic("erfinv", 1, floats("erfinv"), np.arctanh, "the inverse of erf", _BOUNDS),
    Intrinsic("sin", 1, floats("sin"), np.sin, "sine of radians", _BOUNDS),
    Intrinsic("cos", 1, floats("cos"), np.cos, "cosine of radians", _BOUNDS),
    Intrinsic("pow", 2, floats("pow"), np.power, "a to the power b", _BOUNDS),
)
INTRINSICS: Final = NATIVES | {entry.name: entry for entry in _MATH}


def intrinsic(name: str, *args: ExprLike) -> Call:
    """The call of an intrinsic; Python numbers take the first argument's type.

    Raises:
        IRError: no such intrinsic, or a wrong number of arguments.
        DTypeError: the arguments' types do not fit it.
    """
    return call(INTRINSICS, name, *args)


def exp(x: ExprLike) -> Call:
    """`e` to the power `x`."""
    return intrinsic("exp", x)


def exp2(x: ExprLike) -> Call:
    """2 to the power `x`."""
    return intrinsic("exp2", x)


def expm1(x: ExprLike) -> Call:
    """`exp(x) - 1` without cancellation near 0."""
    return intrinsic("expm1", x)


def log(x: ExprLike) -> Call:
    """The natural logarithm; -inf at 0, NaN below."""
    return intrinsic("log", x)


def log2(x: ExprLike) -> Call:
    """The logarithm to base 2; exact at powers of two."""
    return intrinsic("log2", x)


def log1p(x: ExprLike) -> Call:
    """`log(1 + x)` without cancellation near 0."""
    return intrinsic("log1p", x)


def tanh(x: ExprLike) -> Call:
    """The hyperbolic tangent."""
    return intrinsic("tanh", x)


def sigmoid(x: ExprLike) -> Call:
    """The logistic function, `1 / (1 + exp(-x))`."""
    return intrinsic("sigmoid", x)


def erf(x: ExprLike) -> Call:
    """The error function."""
    return intrinsic("erf", x)


def erfinv(x: ExprLike) -> Call:
    """The inverse of `erf` (f32: Giles 2010, the polynomials that JAX uses)."""
    return intrinsic("erfinv", x)


def sin(x: ExprLike) -> Call:
    """The sine of `x` radians."""
    return intrinsic("sin", x)


def cos(x: ExprLike) -> Call:
    """The cosine of `x` radians."""
    return intrinsic("cos", x)


def pow(a: ExprLike, b: ExprLike) -> Call:
    """`a` to the power `b`, with C's special cases."""
    return intrinsic("pow", a, b)
