"""Random bits, uniform floats and Bernoulli draws.

Every draw consumes its key. `offset` is the position in the key's stream of the first
element drawn; `stream` is the layout of the stream: `jax`, or `packed`, a different
sequence that discards no bits. For a batch of keys, each with its own stream, the
result has the shape `[*key.shape, *shape]`.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.calls.dispatch import own
from tensorlang.ops.random.continuous import between, fine_unit, unit
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

with lazy.modules(__name__):
    from tensorlang.ops.random import definitions

_UNIT: Final = ("", ())  # draws from [0, 1) have no scalars


@from_bits("random.bits", ("u8", "u16", "u32", "u64"), "uint32")
def bits(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Random bits: uniformly distributed unsigned integers of 8, 16, 32 or 64 bits."""
    return bits.cast(dtype)


def _range(
    dtype: object, minval: object, maxval: object, resolution: str
) -> tuple[str, tuple[object, ...]]:
    """The bounds rounded to the element type, whose difference must be finite in it."""
    name = "random.uniform"
    if type(minval) is not float or type(maxval) is not float:
        own(minval, maxval)
        minval, maxval = number(name, "minval", minval), number(name, "maxval", maxval)
    if minval == 0.0 and maxval == 1.0 and resolution == "usual":
        return _UNIT
    kind = element_type(name, dtype, FLOATS)
    low, high = number(name, "minval", minval), number(name, "maxval", maxval)
    if low > high:
        raise ArgumentError(f"{name}: minval {low} is above maxval {high}")
    ends = rounded(low, kind), rounded(high, kind)
    if not math.isfinite(rounded(ends[1] - ends[0], kind)):
        raise ArgumentError(
            f"{name}: {kind} does not hold the range from {low} to {high}; scale "
            "smaller numbers"
        )
    wide = "f64" if kind == "f64" else "f32"
    return f"minval:{wide} maxval:{wide}", ends


def rounded(value: float, dtype: str) -> float:
    """The number rounded to an element type; infinite if it is too large."""
    with np.errstate(over="ignore"):
        return float(np.asarray(value).astype(ir.DType(dtype).numpy))


@drawn("random.uniform", derive=_range, measured=({}, {"minval": -1.0, "maxval": 1.0}))
def uniform(
    key: Key,
    shape: Elements = (),
    dtype: ElementType = "float32",
    minval: Derived = 0.0,
    maxval: Derived = 1.0,
    *,
    resolution: Literal["usual", "high"] = "usual",
    offset: Offset = 0,
    stream: Stream = "jax",
) -> ir.Tensor:
    """Floats uniformly distributed over [minval, maxval).

    Args:
        minval: The lower bound, inclusive.
        maxval: The upper bound, exclusive; rounding may reach it, as in JAX.
        resolution: `usual`: multiples of 2^-23 (f32), as in JAX. `high`: all floats
            near 0 too, each with its exact probability; a different sequence, which
            takes twice as many bits.
    """
    fine = resolution == "high"
    unit_of = fine_unit if fine else unit

    def element(bits: ir.Expr) -> ir.Expr:
        u = unit_of(bits, dtype)
        if minval is None:
            return u
        return between(u, minval.cast(dtype), maxval.cast(dtype))

    source = definitions.Source.of(key, stream, offset)
    width = width_of("fine" if fine else "uniform", dtype.name)
    return source.drawn(shape, dtype, width, element)


def _threshold(p: object) -> tuple[str, tuple[int]]:
    """The number of the 2^23 values of an f32 uniform that are below p."""
    if type(p) is not float:
        if isinstance(p, np.ndarray) and p.ndim:
            raise ArgumentError(
                "random.bernoulli takes one probability; for an array of them compare "
                "random.uniform(key, p.shape) < p"
            )
        p = number("random.bernoulli", "p", p)
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"random.bernoulli: p is in [0, 1], not {p}")
    return "p:u32", (math.ceil(float(np.float32(p)) * (1 << 23)),)


@drawn("random.bernoulli", ("f32",), derive=_threshold)
def bernoulli(
    key: Key,
    p: Derived = 0.5,
    shape: Elements = (),
    *,
    offset: Offset = 0,
    stream: Stream = "jax",
) -> ir.Tensor:
    """Booleans that are True with probability p.

    Equal to `uniform(key, shape) < p` in f32, but compared as integers.

    Args:
        p: The probability, 0 <= p <= 1, rounded to f32.
    """
    source = definitions.Source.of(key, stream, offset)
    return source.drawn(shape, "bool", 32, lambda bits: (bits >> 9) < p)
