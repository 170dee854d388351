"""All named functions of the IR: natives, and mathematical functions with expansions.

A native is one instruction on every backend. A mathematical function is *defined* by
its expansion in `tensorlang.ir.math` into arithmetic, bit manipulation and fma, with
the error bound in its entry: results are bitwise the same everywhere, including the
interpreter. Functions of a warp's lanes are in `tensorlang.ir.collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tensorlang.ir.collectives import COLLECTIVES, collective
from tensorlang.ir.cpu_natives import CPU_NATIVES
from tensorlang.ir.gpu_effects import GPU_EFFECTS
from tensorlang.ir.gpu_natives import GPU_NATIVES
from tensorlang.ir.natives import NATIVES, Intrinsic, call, entry, floats
from tensorlang.ir.nodes import Call, Expr, ExprLike, as_expr, binary, compare, select


def intrinsic(name: str, *args: ExprLike) -> Call:
    """The call of an intrinsic; Python numbers take the first argument's type.

    Raises:
        IRError: no such intrinsic, or a wrong number of arguments.
        DTypeError: the arguments' types do not fit it.
    """
    if name in COLLECTIVES:
        return collective(name, *args)
    return call(INTRINSICS, name, *args)


def exp(x: ExprLike) -> Call:
    """`e` to the power `x`."""
    return intrinsic("exp", x)


def exp2(x: ExprLike) -> Call:
    """2 to the power `x`."""
    return intrinsic("exp2", x)


def approximate_exp2(x: ExprLike) -> Call:
    """2 to the power `x`, by one instruction of a CUDA GPU (`gpu_natives`).

    Lowering refuses it for other targets; `exp2` is for all.
    """
    return intrinsic("approximate_exp2", x)


def greater_number(a: ExprLike, b: ExprLike) -> Call:
    """The greater of two numbers, by one instruction of a CUDA GPU (`gpu_natives`).

    If one is NaN, it is the other one. Lowering refuses it for other targets.
    """
    return intrinsic("greater_number", a, b)


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
    """The sine of `x` radians, of any magnitude."""
    return intrinsic("sin", x)


def cos(x: ExprLike) -> Call:
    """The cosine of `x` radians, of any magnitude."""
    return intrinsic("cos", x)


def far_sin(x: ExprLike) -> Call:
    """`sin` as it is for large `x`; slower for others, and as accurate."""
    return intrinsic("far_sin", x)


def far_cos(x: ExprLike) -> Call:
    """`cos` as it is for large `x`; slower for others, and as accurate."""
    return intrinsic("far_cos", x)


def pow(a: ExprLike, b: ExprLike) -> Call:
    """`a` to the power `b`, with C's special cases."""
    return intrinsic("pow", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The maximum of two elements; NaN if either is NaN."""
    if as_expr(a).dtype.is_float or as_expr(b).dtype.is_float:
        return select(compare("gt", a, b) | compare("ne", a, a), a, b)
    return binary("max", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The minimum of two elements; NaN if either is NaN."""
    if as_expr(a).dtype.is_float or as_expr(b).dtype.is_float:
        return select(compare("lt", a, b) | compare("ne", a, a), a, b)
    return binary("min", a, b)


def _math(function: Callable[..., Call], single: float, double: float) -> Intrinsic:
    bounds = {"f16": 0.52, "bf16": 0.52, "f32": single, "f64": double}
    return entry(function, floats, None, bounds)


# measured over dense samples, then rounded up
_MATH: Final = (
    _math(exp, 0.9, 0.95),
    _math(exp2, 0.9, 0.95),
    _math(expm1, 1.5, 1.9),
    _math(log, 1.6, 1.2),
    _math(log2, 1.2, 1.1),
    _math(log1p, 1.8, 1.8),
    _math(tanh, 1.1, 1.1),
    _math(sin, 1.0, 1.0),
    _math(cos, 1.0, 1.0),
    _math(far_sin, 1.0, 1.0),
    _math(far_cos, 1.0, 1.0),
    _math(pow, 0.6, 1.0),
    _math(sigmoid, 2.3, 2.2),
    _math(erf, 1.1, 1.1),
    _math(erfinv, 6.0, 6.0),  # of x perturbed by up to half an ulp
)
INTRINSICS: Final[Mapping[str, Intrinsic]] = {
    **NATIVES,
    **CPU_NATIVES,
    **COLLECTIVES,
    **GPU_EFFECTS,
    **GPU_NATIVES,
    **{each.name: each for each in _MATH},
}
