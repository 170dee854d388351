"""Draws of bits, uniform floats and coins: each a front over one kernel.

Every draw consumes its key. `offset` starts that many elements into the key's stream,
`stream` names the layout of the stream (`jax`, or `packed`, which wastes no bits and is
another sequence), `target` says where to compute, `out` where the result goes. A batch
of keys gives a result of shape `[*key.shape, *shape]`, each key its own stream.
"""

from __future__ import annotations

import math
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import declared
from tensorlang.ops.random.division import by
from tensorlang.ops.random.draw import FLOATS, draw, element_type, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Expr, Function
    from tensorlang.ops.operator import Define, Front, Launch, Operator
    from tensorlang.ops.random.keys import Key
    from tensorlang.workload import Workload

UNSIGNED: Final = ("u8", "u16", "u32", "u64")
_SPELLED: Final = {
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
}
_ARGUMENTS: Final = """Args:
    key: Consumed; a batch gives `[*key.shape, *shape]`.
    shape: The result's shape for each key.
    dtype: %s.
    offset: The first element to draw, counted in the key's stream.
    stream: `jax`, or `packed`, which wastes no bits: another sequence.
    target: Where to compute.
    out: Where the result goes.

Raises:
    KeyReuseError: the key was used before.
    ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
"""
_RESOLUTIONS: Final = ("usual", "high")
_ELEMENTWISE: Final = "tensorlang.ops.random.definitions:elementwise"
Formula: TypeAlias = "Callable[[Expr, DType], Expr]"


def _sizes(workload: Workload) -> dict[str, int]:
    shape = workload.shapes[0]
    if workload.named["batch"]:
        return {"m": shape[0], "n": math.prod(shape[1:])}
    return {"n": math.prod(shape)}


def _usual(workload: Workload) -> dict[str, Any]:
    """Scalars to measure with: inside of every distribution's domain.

    Where the counter may carry from word to word, it soon does.
    """
    carried = {"high": 1, "low": (1 << 32) - 1000} if workload.named["carries"] else {}
    bits = 64 if workload.dtypes[0] in ("i64", "u64") else 32
    divisor = dict(zip(("reciprocal", "first", "then"), by(10, bits), strict=True))
    return (
        carried
        | divisor
        | {
            "minval": -1.0,
            "maxval": 1.0,
            "threshold": 1 << 22,
            "base": 0,
            "span": 10,
            "multiplier": 6,
            "lower": -2.0,
            "upper": 2.0,
            "above": -2.0,
            "below": 2.0,
        }
    )


def declared_draw(
    name: str,
    dtype: str = "f32",
    dtypes: tuple[str, ...] = FLOATS,
    define: str | Define = _ELEMENTWISE,
    **attributes: Any,
) -> Callable[[Front], Operator]:
    """A draw's operator: an elementwise kernel, symbolic in its sizes."""
    default = {
        "shapes": ((1 << 24,),),
        "dtypes": (dtype,),
        "impl": "threefry2x32",
        "stream": "jax",
        "batch": False,
        "carries": False,
    }
    return declared(
        f"random.{name}",
        define,
        shapes=default | attributes,
        dtypes=dtypes,
        aliases=(name,),
        family="threefry",
        sizes=_sizes,
        scalars=_usual,
        result=lambda workload: workload.shapes[0],
    )


def drawn(
    name: str, dtype: str = "f32", dtypes: tuple[str, ...] = FLOATS
) -> Callable[[Formula], Operator]:
    """A draw without parameters of its own: the formula of an element, from its bits.

    Of the docstring the formula has what is drawn; the rest is said here, once.
    """
    *most, last = (f"`{_SPELLED[kind]}`" for kind in dtypes)
    usual, types = _SPELLED[dtype], f"{', '.join(most)} or {last}"

    def make(formula: Formula) -> Operator:
        def define(workload: Workload) -> Function:
            from tensorlang.ops.random import definitions  # noqa: PLC0415 - loads IR

            return definitions.drawn(workload, name, formula)

        def front(
            key: Key,
            shape: Any = (),
            dtype: Any = usual,
            *,
            offset: int = 0,
            stream: str = "jax",
            target: Any = None,
            out: Any = None,
        ) -> Launch:
            return draw(
                op, key, shape, dtype, dtypes, "", (), offset, stream, target, out
            )

        front.__doc__ = f"{cleandoc(formula.__doc__ or '')}\n\n{_ARGUMENTS % types}"
        front.__module__ = formula.__module__
        op = declared_draw(name, dtype, dtypes, define)(front)
        return op

    return make


@drawn("bits", "u32", UNSIGNED)
def bits(bits: Expr, dtype: DType) -> Expr:
    """Random bits: unsigned integers of 8, 16, 32 or 64 bits, all values alike."""
    return bits.cast(dtype)


@declared_draw("uniform", variant="unit")
def uniform(
    key: Key,
    shape: Any = (),
    dtype: Any = "float32",
    minval: float = 0.0,
    maxval: float = 1.0,
    *,
    resolution: str = "usual",
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """Floats evenly spread over [minval, maxval).

    Args:
        key: Consumed; a batch gives `[*key.shape, *shape]`.
        shape: The result's shape for each key.
        dtype: `float16`, `bfloat16`, `float32` or `float64`.
        minval: The smallest value.
        maxval: The bound of the values; rounding may reach it, as in JAX.
        resolution: `usual`, JAX's grid of 2^-23 (f32), or `high`: every float near 0
            too, with its right probability; another sequence, and twice the bits.
        offset: The first element to draw, counted in the key's stream.
        stream: `jax`, or `packed`, which wastes no bits: another sequence.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    if type(minval) is not float or type(maxval) is not float:
        own(key, minval, maxval)
        minval = number("random.uniform", "minval", minval)
        maxval = number("random.uniform", "maxval", maxval)
    if type(resolution) is not str or resolution not in _RESOLUTIONS:
        raise ArgumentError(
            f"random.uniform: resolution {resolution!r} is neither 'usual' nor 'high'"
        )
    if resolution == "usual" and minval == 0.0 and maxval == 1.0:
        return draw(
            uniform, key, shape, dtype, FLOATS, "unit", (), offset, stream, target, out
        )
    kind = element_type("random.uniform", dtype, FLOATS)
    scalars = _range(minval, maxval, kind)
    variant = "fine" if resolution == "high" else "uniform"
    return draw(
        uniform, key, shape, kind, FLOATS, variant, scalars, offset, stream, target, out
    )


def _range(minval: float, maxval: float, kind: str) -> tuple[float, float]:
    """The two ends as an element type holds them, and their difference too."""
    name = "random.uniform"
    low, high = number(name, "minval", minval), number(name, "maxval", maxval)
    if low > high:
        raise ArgumentError(f"{name}: minval {low} is above maxval {high}")
    ends = rounded(low, kind), rounded(high, kind)
    if not math.isfinite(rounded(ends[1] - ends[0], kind)):
        raise ArgumentError(
            f"{name}: {kind} does not hold the range from {low} to {high}; scale "
            "smaller numbers"
        )
    return ends


def rounded(value: float, dtype: str) -> float:
    """The number as an element type holds it; infinite where it is too large."""
    from tensorlang.ir.dtypes import DType  # noqa: PLC0415 - only with scalars

    with np.errstate(over="ignore"):
        return float(np.asarray(value).astype(DType(dtype).numpy))


@declared_draw("bernoulli", dtypes=("f32",))
def bernoulli(
    key: Key,
    p: Any = 0.5,
    shape: Any = (),
    *,
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """True with probability p: `uniform(key) < p` in f32, compared as integers.

    Args:
        key: Consumed; a batch gives `[*key.shape, *shape]`.
        p: The probability, 0 <= p <= 1, rounded to f32.
        shape: The result's shape for each key; `()` by default.
        offset: The first element to draw, counted in the key's stream.
        stream: `jax`, or `packed`, which wastes no bits: another sequence.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, ShapeError: an argument is out of its domain.
    """
    if isinstance(p, np.ndarray) and p.ndim:
        raise ArgumentError(
            "random.bernoulli takes one probability; for an array of them compare "
            "random.uniform(key, p.shape) < p"
        )
    probability = number("random.bernoulli", "p", p)
    if not 0.0 <= probability <= 1.0:
        raise ArgumentError(f"random.bernoulli: p is in [0, 1], not {probability}")
    counts = (threshold(probability),)
    return draw(
        bernoulli, key, shape, "f32", ("f32",), "", counts, offset, stream, target, out
    )


def threshold(p: float) -> int:
    """How many of the 2^23 values of an f32 uniform are below p (rounded to f32)."""
    return math.ceil(float(np.float32(p)) * (1 << 23))
