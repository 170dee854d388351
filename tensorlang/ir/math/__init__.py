"""Expansions of the mathematical functions: the definition of `exp` on every backend.

`expand(call, name)` expands one call to `Let`s of basic operations: polynomials with
explicit fma, bit manipulation, and selects instead of branches, so that it vectorizes.
f16 and bf16 are computed in f32. Error bounds are in `tensorlang.ir.intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang.errors import IRError
from tensorlang.ir.dtypes import DType, f32
from tensorlang.ir.math import error, exponential, logarithm, power, trig
from tensorlang.ir.math.scope import Scope
from tensorlang.ir.nodes import Call, Cast, Expr, Let, Var

EXPANSIONS: Final[dict[str, Callable[..., Expr]]] = {
    "cos": trig.cos,
    "erf": error.erf,
    "erfinv": error.erfinv,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "far_cos": trig.far_cos,
    "far_sin": trig.far_sin,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "pow": power.pow,
    "sigmoid": exponential.sigmoid,
    "sin": trig.sin,
    "tanh": exponential.tanh,
}


def expand(
    call: Call, variable: Callable[[str, DType], Var]
) -> tuple[tuple[Let, ...], Expr]:
    """Expand a call of a mathematical function.

    Args:
        call: A call whose intrinsic `expands`.
        variable: Makes one of an unused name like the given one, and of the given type.

    Returns:
        `Let`s in order, each used by later ones, and the resulting value.

    Raises:
        IRError: the intrinsic has no expansion.
    """
    if call.name not in EXPANSIONS:
        raise IRError(f"{call.name} has no expansion; it is not in {set(EXPANSIONS)}")
    narrow = call.dtype.bits < f32.bits
    scope = Scope(f32.vector(call.dtype.lanes) if narrow else call.dtype, variable)
    args = [scope.let(arg.cast(scope.dtype), "arg") for arg in call.args]
    result = scope.named(EXPANSIONS[call.name](scope, *args), "result")
    value = Cast(call.dtype, result) if narrow else result
    return tuple(scope.lets), value
