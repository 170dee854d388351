"""Dropout with a recomputed mask: forward, backward, and with a threaded key.

The gradient is written by hand: it replays the key and draws the mask again.

The mask is `uniform(key) < 1 - rate` in f32 for every dtype, with the default stream
the same as JAX's. Srivastava et al., "Dropout", JMLR 2014 (inverted dropout).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.random.draw import Stream
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Derived, Floats, Key, Replayed

with lazy.modules(__name__):
    from tensorlang.ops.kernels import tracing
    from tensorlang.ops.random import definitions

if TYPE_CHECKING:
    from tensorlang.ops.kernels.tracing import KeyWords
    from tensorlang.ops.random.definitions import Source

FLOATS: Final = ("f32", "bf16", "f16", "f64")
_LONG: Final = 1 << 24
_WIDTH: Final = 32  # random bits per mask element, for every dtype of x
_SHIFT: Final = 9  # an f32 uniform is the upper 23 of its 32 bits
_STEPS: Final = 1 << 23
_MEANINGS: Final = {
    "rate": "Probability of dropping an element, 0 <= rate < 1.",
    "stream": "`jax` for the mask of JAX, or `packed` for a different, faster one.",
}


def _of_x(rate: object, x: object) -> tuple[str, tuple[int, float]]:
    """The kernel arguments of a rate; see `scalars`."""
    return _scalars(
        rate if type(rate) is float else _number(rate), getattr(x, "dtype", None)
    )


def _of_dy(rate: object, dy: object) -> tuple[str, tuple[int, float]]:
    return _of_x(rate, dy)


@lru_cache(maxsize=256)
def _scalars(rate: float, dtype: Any) -> tuple[str, tuple[int, float]]:
    try:
        kind = ir.as_dtype(dtype)
    except DTypeError:  # reported when x is checked
        kind = ir.f32
    made = scalars(rate, kind.numpy)
    return f"rate:u32,{'f64' if kind == ir.f64 else 'f32'}", made


def scalars(rate: float, dtype: np.dtype) -> tuple[int, float]:
    """The kernel arguments of a rate: the largest bits that are kept, and the divisor.

    `bits <= limit` is `uniform < 1 - rate` with the uniform a multiple of 2^-23 and
    `1 - rate` rounded to f32; the divisor is `1 - rate` rounded to the dtype.

    Raises:
        ArgumentError: not 0 <= rate < 1.
    """
    if not 0.0 <= rate < 1.0:
        raise ArgumentError(
            f"nn.dropout: 0 <= rate < 1, not {rate}; rate is the share that is dropped "
            "(a rate of 1 would divide by 0)"
        )
    kept = 1.0 - float(rate)
    steps = math.ceil(float(np.float32(kept)) * _STEPS)
    divisor = float(np.asarray(kept).astype(dtype))
    return (steps << _SHIFT) - 1, divisor


def _number(rate: object) -> float:
    """A rate as a Python number; zero-dimensional arrays are accepted."""
    if isinstance(rate, np.ndarray) and not rate.ndim:
        rate = rate[()]
    if isinstance(rate, (bool, np.bool_)) or not isinstance(
        rate, (int, float, np.number)
    ):
        raise ArgumentError(f"nn.dropout: rate is a number, not {rate!r}")
    return rate if isinstance(rate, int) else float(rate)


def _operator(name: str, derive: Callable[..., object]) -> Callable[[Body], Operator]:
    return operator(
        f"nn.{name}",
        family="threefry",
        shapes=((_LONG,),),
        whole=True,
        derive=derive,
        measured=({"rate": 0.5},),
        meanings=_MEANINGS,
    )


@_operator("dropout", _of_x)
def dropout(x: Floats, rate: Derived, *, key: Key, stream: Stream = "jax") -> ir.Tensor:
    """Inverted dropout: `x / (1 - rate)` where the random mask keeps it, else 0.

    Args:
        key: Random key; consumed. A batch of keys draws a mask per leading element of
            `x`; its shape must equal the leading dimensions of `x`.
        out: Output array; may be `x`.
    """
    return _by_keys(x, rate, key, stream)


@_operator("dropout_grad", _of_dy)
def dropout_grad(
    dy: Floats, rate: Derived, *, key: Replayed, stream: Stream = "jax"
) -> ir.Tensor:
    """The gradient of `nn.dropout` for x; recomputes the mask.

    Args:
        key: The key of the forward call; replayed, which does not consume it.
        out: Output array; may be `dy`.
    """
    return _by_keys(dy, rate, key, stream)


@_operator("dropout_train", _of_x)
def dropout_train(
    x: Floats, state: Key, rate: Derived, *, stream: Stream = "jax"
) -> tuple[ir.Tensor, KeyWords]:
    """Dropout that threads its key: returns y and the next state.

    One kernel splits the state and draws the mask: with `after, key = split(state)`,
    the results are `dropout(x, rate, key=key)` and `after`.

    Args:
        state: A single key; consumed.
        out: Output array for y; may be `x`.
    """
    ir.require(
        state.words.ndim == 1,
        f"takes one Key as its state, not a batch of shape {state.words.shape[:-1]}",
        ArgumentError,
    )
    after, second = definitions.Source.of(state, stream).children()
    return _masked(x, rate, second), tracing.KeyWords(state.impl, after.words())


def _by_keys(x: ir.Tensor, rate: object, key: KeyWords, stream: str) -> ir.Tensor:
    """Dropout with one key, or with a batch of keys over the leading dimensions."""
    lead = key.words.shape[:-1]
    ir.require(
        x.shape[: len(lead)] == lead,
        f"keys of shape {lead} do not lead x of shape {x.shape}",
    )
    return _masked(x, rate, definitions.Source.of(key, stream), len(lead))


def _masked(x: ir.Tensor, rate: Any, source: Source, rank: int = 0) -> ir.Tensor:
    """`x / keep` where the bits of an element are at most `limit`, else 0.

    `rate` is `(limit, keep)`; see `scalars`.
    """
    limit, keep = rate
    flat = ir.reshaped(x, (*source.rows, math.prod(x.shape[rank:])))

    def value(bits: ir.Expr, given: ir.Expr) -> ir.Expr:
        scaled = given / keep.cast(given.dtype)
        return ir.select(bits <= limit, scaled, ir.Const(0.0, given.dtype))

    made = source.drawn(flat.shape[-1:], x.dtype, _WIDTH, value, inputs=(flat,))
    return ir.reshaped(made, x.shape)
