"""A draw from call to launch: checks, counters, memory; the key is used up last.

Whatever can be refused is refused before the key is consumed, so a call that fails
consumes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.random.impls import STREAMS, Impl, elements_per_hash, impl
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.stateful import StatefulKey

if TYPE_CHECKING:
    from tensorlang.ops.operator import Kernel, Launch, Operator

FLOATS: Final = ("f16", "bf16", "f32", "f64")
_CHUNK: Final = 1 << 31  # elements of one launch: its counters stay below 2^32
_WORD: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A built kernel with what a call needs to know: memoised by impl, type, stream.

    Attributes:
        kernel: The kernel.
        launch: Its fastest call.
        dtype: The result's NumPy type.
        per_hash: Elements that one hash yields.
    """

    kernel: Any
    launch: Kernel
    dtype: np.dtype[Any]
    per_hash: int


def draw(
    op: Operator,
    key: Any,
    shape: Any,
    dtype: Any,
    allowed: tuple[str, ...],
    *,
    variant: str = "",
    scalars: tuple[Any, ...] = (),
    offset: int = 0,
    stream: str = "jax",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The launch of an elementwise draw; consumes the key as its last step.

    The first condition is the short way of a call that was made before: one key, a
    matching `out`, no offset.
    """
    if type(key) is Key and type(out) is np.ndarray and not offset:
        plan = op.kernels.get((key.impl, dtype, stream, target, variant))
        if (
            plan is not None
            and out.shape == shape
            and out.dtype is plan.dtype
            and key.words.ndim == 1
            and out.size < _CHUNK
            and out.flags.c_contiguous
        ):
            key.consume("drawn from")
            flat = out if len(shape) == 1 else out.reshape(-1)
            return plan.launch, (key.words, flat, 0, 0, *scalars), out
    request = Request.of(op.id, key, shape, offset, stream)
    kind = element_type(op.id, dtype, allowed)
    memo = (key.impl, dtype, stream, target, variant)
    return request.launch(op, kind, memo, scalars, target, out)


@dataclass(frozen=True, slots=True)
class Request:
    """A checked call: which keys, how many elements each, from where."""

    name: str
    key: Any
    shape: tuple[int, ...]
    offset: int
    stream: str

    @classmethod
    def of(cls, name: str, key: Any, shape: Any, offset: Any, stream: Any) -> Request:
        """The request of a call's arguments.

        Raises:
            ArgumentError, ShapeError: one of them is out of its domain.
        """
        if not isinstance(key, (Key, StatefulKey)):
            raise ArgumentError(
                f"{name} takes a Key first, not {type(key).__name__}; "
                "make one with random.key(seed)"
            )
        if stream not in STREAMS:
            raise ArgumentError(f"{name}: stream {stream!r} is none of {STREAMS}")
        if (
            isinstance(offset, bool)
            or not isinstance(offset, (int, np.integer))
            or not 0 <= offset < 2**64
        ):
            raise ArgumentError(
                f"{name}: offset counts elements, 0 <= offset < 2^64, not {offset!r}"
            )
        return cls(name, key, checked_shape(name, shape), int(offset), stream)

    @property
    def rows(self) -> int:
        """The number of keys."""
        return int(self.key.size)

    @property
    def count(self) -> int:
        """The elements each key draws."""
        return math.prod(self.shape)

    def launch(
        self,
        op: Operator,
        dtype: str,
        memo: tuple[Any, ...],
        scalars: tuple[Any, ...],
        target: Any,
        out: Any,
    ) -> Launch:
        """Find or build the kernel, get memory, and take the key."""
        from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime

        batch = self.key.ndim > 0
        wide = self.offset + self.count > _WORD
        plan = op.kernels.get((*memo, batch, wide)) or planned(
            op, memo, dtype, self.key, batch=batch, carries=wide, target=target
        )
        full = self.key.shape + self.shape
        if out is None:
            array, shown = results.empty(self.name, full, plan.dtype)
        else:
            array, shown = results.given(self.name, out, full, plan.dtype), out
        keys = self.key.take("drawn from")
        run = _Run(plan, impl(self.key.impl), self.offset, scalars)
        return run, (keys, array.reshape(full), self.rows, self.count, batch), shown


@dataclass(frozen=True, slots=True)
class _Run:
    """The general way to run a draw: any offset, any size, any memory."""

    plan: Plan
    how: Impl
    offset: int
    scalars: tuple[Any, ...]

    @property
    def kernel(self) -> Any:
        """The kernel that runs."""
        return self.plan.kernel

    def __call__(
        self, keys: Any, array: Any, rows: int, count: int, batch: bool
    ) -> None:
        per = self.plan.per_hash
        first, skipped = divmod(self.offset, per)
        flat = (rows, count) if batch else (count,)
        if not skipped and array.flags.c_contiguous:
            self._fill(keys.reshape(-1, keys.shape[-1]), array.reshape(flat), first)
            return
        # not at a hash's first element, or not in a row: by way of fresh memory
        spare = np.empty((*flat[:-1], count + skipped), array.dtype)
        self._fill(keys.reshape(-1, keys.shape[-1]), spare, first)
        np.copyto(array, spare[..., skipped:].reshape(array.shape))

    def _fill(self, keys: Any, out: Any, first: int) -> None:
        if out.ndim == 2:
            if out.shape[1] < _CHUNK:
                self.plan.launch(keys, out, *self._counter(first), *self.scalars)
                return
            raise ShapeError(
                f"a batch of keys draws fewer than {_CHUNK} elements each, "
                f"not {out.shape[1]}; draw in parts with offset="
            )
        for start in range(0, max(len(out), 1), _CHUNK):
            at = self._counter(first + start // self.plan.per_hash)
            part = out[start : start + _CHUNK]
            self.plan.launch(keys[0], part, *at, *self.scalars)

    def _counter(self, index: int) -> tuple[int, int]:
        """The high and low word of a hash's counter."""
        index %= 1 << 64
        return (index >> 32, index & _WORD) if self.how.bits == 32 else (0, index)


def planned(
    op: Operator,
    memo: tuple[Any, ...],
    dtype: str,
    key: Any,
    *,
    batch: bool,
    carries: bool,
    target: Any,
) -> Plan:
    """Build the kernel of a draw and remember it."""
    from tensorlang.ops.random import distributions  # noqa: PLC0415 - imports the IR

    _, _, stream, _, variant = memo
    shapes = ((4096, 4096),) if batch else ((1 << 24,),)
    given = {"impl": key.impl, "stream": stream, "batch": batch, "carries": carries}
    if variant:
        given["variant"] = variant
    workload = op.workload(*shapes, dtypes=dtype, **given)
    width, result = distributions.width_and_result(variant or op.__name__, dtype)
    kernel = op.build(workload, target)
    per = elements_per_hash(impl(key.impl), stream, width)
    plan = Plan(kernel, getattr(kernel, "launch", kernel), result, per)
    op.kernels[(*memo, batch, carries)] = plan
    if not batch and not carries:
        op.kernels[memo] = plan
    return plan


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of whole numbers.

    Raises:
        ShapeError: it is none.
    """
    given = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if isinstance(shape, bool) or not isinstance(given, (tuple, list)):
        raise ShapeError(f"{name}: a shape is a tuple of whole numbers, not {shape!r}")
    for extent in given:
        whole = isinstance(extent, (int, np.integer)) and not isinstance(extent, bool)
        if not whole or extent < 0:
            raise ShapeError(
                f"{name}: a shape is of whole numbers, 0 or more, not {shape!r}"
            )
    return tuple(int(extent) for extent in given)


def element_type(name: str, dtype: Any, allowed: tuple[str, ...]) -> str:
    """Our name of an element type that the operator draws.

    Raises:
        DTypeError: it draws no such type.
    """
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only off the short way

    kind = as_dtype(dtype).name
    if kind not in allowed:
        raise DTypeError(f"{name} draws {', '.join(allowed)}, not {kind}")
    return kind


def number(name: str, what: str, value: Any) -> float:
    """A finite or infinite number as a Python float.

    Raises:
        ArgumentError: it is no number.
    """
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}: {what} is a number, not {value!r}") from None
    if math.isnan(result):
        raise ArgumentError(f"{name}: {what} is NaN")
    return result


Front = Callable[..., Any]
