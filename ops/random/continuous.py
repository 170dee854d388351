"""Continuous distributions: normal, truncated normal, exponential, Gumbel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.random.draw import (
    FLOATS,
    Stream,
    drawn,
    element_type,
    from_bits,
    number,
)
from tensorlang.ops.random.formats import width_of
from tensorlang.ops.spec.signature import Derived, Elements, ElementType, Key, Offset

if TYPE_CHECKING:
    from tensorlang.ops.random import definitions, distributions
else:
    definitions = lazy.module("tensorlang.ops.random.definitions")
    distributions = lazy.module("tensorlang.ops.random.distributions")


@from_bits("random.normal")
def normal(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Standard normal floats, `sqrt(2) * erfinv(u)` for u uniform on (-1, 1).

    Within 3 ulp of JAX's, and bitwise equal on all targets.
    """
    u = distributions.between_ones(bits, dtype)
    return ir.Const(math.sqrt(2), dtype) * ir.erfinv(u)


@from_bits("random.exponential")
def exponential(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Exponentially distributed floats of rate 1, `-log1p(-u)`."""
    return -ir.log1p(-distributions.unit(bits, dtype))


@from_bits("random.gumbel")
def gumbel(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Standard Gumbel floats, `-log(-log(u))`."""
    return distributions.gumbel(bits, dtype)


def _bounds(
    lower: object, upper: object, dtype: object
) -> tuple[str, tuple[float, float, float, float]]:
    """The bounds rounded to the element type, and their neighbours inside the range."""
    name = "random.truncated_normal"
    low, high = number(name, "lower", lower), number(name, "upper", upper)
    if not low < high:
        raise ArgumentError(f"{name}: lower {low} is not below upper {high}")
    kind = element_type(name, dtype, FLOATS)
    held = ir.DType(kind).numpy.type
    bounds = held(low), held(high)
    above = np.nextafter(bounds[0], held(math.inf))
    below = np.nextafter(bounds[1], held(-math.inf))
    wide = "f64" if kind == "f64" else "f32"
    said = f"lower:{wide},{wide} upper:{wide},{wide}"
    return said, (float(bounds[0]), float(above), float(bounds[1]), float(below))


@drawn(
    "random.truncated_normal",
    derive=_bounds,
    measured=({"lower": -2.0, "upper": 2.0},),
)
def truncated_normal(
    key: Key,
    lower: Derived,
    upper: Derived,
    shape: Elements = (),
    dtype: ElementType = "float32",
    *,
    offset: Offset = 0,
    stream: Stream = "jax",
) -> ir.Tensor:
    """Standard normal floats truncated to lower < x < upper.

    Args:
        lower: The lower bound; -inf for none.
        upper: The upper bound; inf for none.
    """

    def element(bits: ir.Expr) -> ir.Expr:
        bounds = [value.cast(dtype) for value in (*lower, *upper)]
        return distributions.truncated_normal(bits, dtype, *bounds)

    source = definitions.Source.of(key, stream, offset)
    return source.drawn(shape, dtype, width_of("truncated_normal", dtype.name), element)
