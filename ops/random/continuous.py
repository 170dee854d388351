"""Draws from continuous laws: normal, truncated normal, exponential, Gumbel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops import lazy
from tensorlang.ops.random.draw import FLOATS, draw, element_type, number
from tensorlang.ops.random.drawing import declared_draw, drawn

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Expr
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.random import distributions
    from tensorlang.ops.random.keys import Key
else:
    distributions = lazy.module("tensorlang.ops.random.distributions")


@drawn("normal")
def normal(bits: Expr, dtype: DType) -> Expr:
    """Standard normal floats, `sqrt(2) * erfinv(u)`.

    Within 3 ulp of JAX's, and the same bits on all of our targets.
    """
    u = distributions.between_ones(bits, dtype)
    return ir.Const(math.sqrt(2), dtype) * ir.erfinv(u)


@drawn("exponential")
def exponential(bits: Expr, dtype: DType) -> Expr:
    """Exponential floats of rate 1, `-log1p(-u)`."""
    return -ir.log1p(-distributions.unit(bits, dtype))


@drawn("gumbel")
def gumbel(bits: Expr, dtype: DType) -> Expr:
    """Standard Gumbel floats, `-log(-log(u))`."""
    return distributions.gumbel(bits, dtype)


@declared_draw("truncated_normal")
def truncated_normal(
    key: Key,
    lower: float,
    upper: float,
    shape: Any = (),
    dtype: Any = "float32",
    *,
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """Standard normal floats on the condition lower < x < upper.

    Args:
        key: Consumed; a batch gives `[*key.shape, *shape]`.
        lower: The bound below; -inf for none.
        upper: The bound above; inf for none.
        shape: The result's shape for each key.
        dtype: `float16`, `bfloat16`, `float32` or `float64`.
        offset: The first element to draw, counted in the key's stream.
        stream: `jax`, or `packed`, which wastes no bits: another sequence.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    from tensorlang.ir.dtypes import DType  # noqa: PLC0415 - only with scalars

    name = "random.truncated_normal"
    low, high = number(name, "lower", lower), number(name, "upper", upper)
    if not low < high:
        raise ArgumentError(f"{name}: lower {low} is not below upper {high}")
    kind = element_type(name, dtype, FLOATS)
    held = DType(kind).numpy.type
    bounds = held(low), held(high)
    inside = (
        np.nextafter(bounds[0], held(math.inf)),
        np.nextafter(bounds[1], held(-math.inf)),
    )
    scalars = tuple(float(value) for value in (*bounds, *inside))
    return draw(
        truncated_normal,
        key,
        shape,
        kind,
        FLOATS,
        "",
        scalars,
        offset,
        stream,
        target,
        out,
    )
