"""Dropout: a random mask that costs no memory, forward, backward and threaded.

The mask is `uniform(key) < 1 - rate` in f32 for every element type, JAX's own with the
default stream. Srivastava et al., "Dropout", JMLR 2014 (inverted: scaled in training).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import on_torch
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import declared
from tensorlang.ops.random.draw import CHUNK, Plan, Run, check_batch
from tensorlang.ops.random.impls import STREAMS, elements_per_hash, impl
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.stateful import StatefulKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorlang.ops.operator import Front, Launch, Operator
    from tensorlang.workload import Workload

FLOATS: Final = ("f32", "bf16", "f16", "f64")
_HERE: Final = "tensorlang.ops.nn.dropout_definitions"
_SHIFT: Final = 9  # an f32 uniform is the upper 23 of its 32 bits
_STEPS: Final = 1 << 23


def _declared(name: str, define: str) -> Callable[[Front], Operator]:
    default = {
        "shapes": ((1 << 24,),),
        "dtypes": ("f32",),
        "impl": "threefry2x32",
        "stream": "jax",
        "batch": False,
        "carries": False,
    }
    return declared(
        f"nn.{name}",
        f"{_HERE}:{define}",
        shapes=default,
        dtypes=FLOATS,
        aliases=(name,),
        family="threefry",
        sizes=_sizes,
        scalars=lambda _: {"limit": (_STEPS << (_SHIFT - 1)) - 1, "keep": 0.5},
        result=lambda workload: workload.shapes[0],
    )


def _sizes(workload: Workload) -> dict[str, int]:
    shape = workload.shapes[0]
    if workload.named["batch"]:
        return {"m": shape[0], "n": math.prod(shape[1:])}
    return {"n": math.prod(shape)}


@lru_cache(maxsize=256)
def scalars(rate: float, dtype: np.dtype[Any]) -> tuple[int, float]:
    """What the kernels take for a rate: the last bits kept, and the divisor.

    `bits <= limit` is `uniform < 1 - rate` with the uniform a multiple of 2^-23 and
    `1 - rate` rounded to f32; the divisor is `1 - rate` rounded to the element type.

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


@_declared("dropout", "dropout")
def dropout(
    x: Any,
    rate: float,
    *,
    key: Key,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """`x / (1 - rate)` where the mask keeps it, else 0.

    Args:
        x: Floats of any shape: f32, bf16, f16 or f64.
        rate: The share that is dropped, 0 <= rate < 1.
        key: Consumed. A batch of keys draws a mask for each leading element: its shape
            must be the first dimensions of `x`.
        stream: `jax`, or `packed`: another mask, faster.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    return _masked(dropout, x, rate, key, stream, target, out)


@_declared("dropout_grad", "dropout")
def dropout_grad(
    dy: Any,
    rate: float,
    *,
    key: Key,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `dropout` with respect to x: the mask is drawn again.

    Args:
        dy: The gradient of the result.
        rate: As in the forward call.
        key: The forward call's key: it is replayed, which is no use of it.
        stream: As in the forward call.
        target: Where to compute.
        out: Where the result goes; may be `dy`.

    Raises:
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    return _masked(dropout_grad, dy, rate, key, stream, target, out)


@_declared("dropout_train", "dropout_train")
def dropout_train(
    x: Any,
    state: Key,
    rate: float,
    *,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """Dropout that threads its key: it returns y and the next state.

    One kernel splits the state and draws the mask: with `after, key = split(state)`,
    y is `dropout(x, rate, key=key)` and the state that is returned is `after`.

    Args:
        x: Floats of any shape: f32, bf16, f16 or f64.
        state: One key; consumed.
        rate: The share that is dropped, 0 <= rate < 1.
        stream: `jax`, or `packed`: another mask, faster.
        target: Where to compute.
        out: Where y goes; may be `x`.

    Raises:
        KeyReuseError: the state was used before.
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    own(x, state)
    if not isinstance(state, Key) or state.ndim:
        raise ArgumentError(
            f"nn.dropout_train takes one Key as its state, not {state!r:.80}"
        )
    after = np.empty_like(state.words)
    kernel, arguments, y = _masked(
        dropout_train, x, rate, state, stream, target, out, after
    )
    return kernel, arguments, (y, Key(state.impl, after))


def _number(rate: Any) -> float:
    """A rate as a Python number; an array without dimensions is one."""
    if isinstance(rate, np.ndarray) and not rate.ndim:
        rate = rate[()]
    if isinstance(rate, (bool, np.bool_)) or not isinstance(
        rate, (int, float, np.number)
    ):
        raise ArgumentError(f"nn.dropout: rate is a number, not {rate!r}")
    return rate if isinstance(rate, int) else float(rate)


def _masked(  # noqa: PLR0917 - by position, for speed
    op: Operator,
    x: Any,
    rate: float,
    key: Any,
    stream: str,
    target: Any,
    out: Any,
    *more: Any,
) -> Launch:
    """The launch of a dropout; a replay (`*_grad`) does not take the key.

    The first condition is the short way of a call that was made before.
    """
    if type(rate) is not float:
        rate = _number(rate)
    if type(key) is Key and type(x) is np.ndarray and type(out) is np.ndarray:
        launch = op.kernels.get((key.impl, x.dtype, stream, target))
        if (
            launch is not None
            and out.shape == x.shape
            and out.dtype is x.dtype
            and key.words.ndim == 1
            and x.ndim == 1
            and x.size < CHUNK
            and out.flags.carray
        ):
            limits = scalars(rate, x.dtype)
            if op is not dropout_grad:
                key.consume("drawn from", 4)
            return launch, (key.words, x, out, *more, 0, 0, *limits), out
    if type(key) is Key and not more and key.words.ndim == 1:
        again = on_torch.again(op, (x,), key.impl, stream, target)
        result = None if again is None else again.result(x, out)
        if again is not None and result is not None:
            limits = scalars(rate, again.numpy)
            if op is not dropout_grad:
                key.consume("drawn from", 4)
            return again.launch, (key.words, x, result, 0, 0, *limits), result
    return _general(op, x, rate, key, stream, target, out, *more)


def _general(  # noqa: PLR0917 - as _masked
    op: Operator,
    x: Any,
    rate: float,
    key: Any,
    stream: str,
    target: Any,
    out: Any,
    *more: Any,
) -> Launch:
    """Any arrays, any size, batches of keys: with every check."""
    from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.given_arrays import seen, target_of  # noqa: PLC0415

    own(x, key)
    if not isinstance(key, (Key, StatefulKey)) or (
        op is dropout_grad and not isinstance(key, Key)
    ):
        raise ArgumentError(f"{op.id} takes a Key as key=, not {type(key).__name__}")
    if stream not in STREAMS:
        raise ArgumentError(f"{op.id}: stream {stream!r} is none of {STREAMS}")
    values, asked = seen(x, f"{op.id}: x"), target
    beside = None if out is None else seen(out, f"{op.id}: out")
    target = target_of(op.id, (values, beside)) if target is None else target
    kind = _float_type(op.id, values.dtype)
    limits = scalars(rate, values.dtype)
    if key.shape != values.shape[: key.ndim]:
        raise ShapeError(
            f"{op.id}: keys of shape {key.shape} do not lead x of shape {values.shape}"
        )
    flat: tuple[int, ...] = (values.size,)
    if key.ndim:
        flat = (key.size, values.size // max(key.size, 1))
    check_batch(op.id, key, flat[-1])
    if out is None:
        array, shown = results.empty(op.id, values.shape, values.dtype, x)
    else:
        array = results.given(op.id, out, values.shape, values.dtype, beside)
        shown = out
    memo = (key.impl, values.dtype, stream, target)
    wide = flat[-1] >= 2 * CHUNK
    plan = op.kernels.get((*memo, key.ndim > 0, wide)) or _planned(
        op, memo, kind, batch=key.ndim > 0, carries=wide
    )
    run = Run(plan, impl(key.impl), 0, limits, (values,), more)
    if isinstance(key, Key) and not (more or key.ndim) and values.size < CHUNK:
        facts, shapes = (key.impl, stream, asked), (key.words.shape, flat, flat)
        on_torch.keep(op, (x,), facts, plan.kernel, shapes, values.shape, values.dtype)
    if op is dropout_grad and isinstance(key, Key):
        return run, (key.words, array, flat), shown
    words = key.take("drawn from")
    return run, (words, array, flat), shown


def _planned(
    op: Operator, memo: tuple[Any, ...], kind: str, *, batch: bool, carries: bool
) -> Plan:
    """Build a kernel and remember it, for the short way too."""
    how, dtype, stream, target = memo
    shapes = ((4096, 4096),) if batch else ((1 << 24,),)
    given = {"impl": how, "stream": stream, "batch": batch, "carries": carries}
    kernel = op.build(op.workload(*shapes, dtypes=kind, **given), target)
    per = elements_per_hash(impl(how), stream, 32)
    plan = Plan(kernel, kernel.launch, dtype, per)
    op.kernels[(*memo, batch, carries)] = plan
    if not batch and not carries:
        op.kernels[memo] = plan.launch
    return plan


def _float_type(name: str, dtype: np.dtype[Any]) -> str:
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - off the short way

    kind = as_dtype(dtype).name
    if kind not in FLOATS:
        raise DTypeError(f"{name} takes {', '.join(FLOATS)}, not {kind}; cast x first")
    return kind
