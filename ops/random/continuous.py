"""Draws from continuous laws: normal, truncated normal, exponential, Gumbel.

Arguments that all draws share are told in `tensorlang.ops.random.drawing`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.ops.random.draw import FLOATS, draw, element_type, number
from tensorlang.ops.random.drawing import declared_draw

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.random.keys import Key


@declared_draw("normal")
def normal(
    key: Key,
    shape: Any = (),
    dtype: Any = "float32",
    *,
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """Standard normal floats, `sqrt(2) * erfinv(u)`.

    Within 3 ulp of JAX's, and the same bits on all of our targets.

    Args:
        key: Consumed; a batch gives `[*key.shape, *shape]`.
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
    return draw(normal, key, shape, dtype, FLOATS, "", (), offset, stream, target, out)


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


@declared_draw("exponential")
def exponential(
    key: Key,
    shape: Any = (),
    dtype: Any = "float32",
    *,
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """Exponential floats of rate 1, `-log1p(-u)`.

    Args:
        key: Consumed; a batch gives `[*key.shape, *shape]`.
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
    return draw(
        exponential, key, shape, dtype, FLOATS, "", (), offset, stream, target, out
    )


@declared_draw("gumbel")
def gumbel(
    key: Key,
    shape: Any = (),
    dtype: Any = "float32",
    *,
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """Standard Gumbel floats, `-log(-log(u))`.

    Args:
        key: Consumed; a batch gives `[*key.shape, *shape]`.
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
    return draw(gumbel, key, shape, dtype, FLOATS, "", (), offset, stream, target, out)
