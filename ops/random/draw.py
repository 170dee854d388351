"""A draw from call to launch: checks, counters, memory; the key is used up last.

Whatever can be refused is refused before the key is consumed, so a call that fails
consumes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import on_torch
from tensorlang.ops.dispatch import own
from tensorlang.ops.random.formats import result_of, width_of
from tensorlang.ops.random.impls import STREAMS, Impl, elements_per_hash, impl
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.stateful import StatefulKey
from tensorlang.ops.random.states import consume

if TYPE_CHECKING:
    from tensorlang.ops.operator import Kernel, Launch, Operator

FLOATS: Final = ("f16", "bf16", "f32", "f64")
CHUNK: Final = 1 << 31  # elements of one launch: an index fits 32 bits
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


def draw(  # noqa: PLR0917 - by position, for speed
    op: Operator,
    key: Any,
    shape: Any,
    dtype: Any,
    allowed: tuple[str, ...],
    variant: str,
    scalars: tuple[Any, ...],
    offset: int,
    stream: str,
    target: Any,
    out: Any,
) -> Launch:
    """The launch of an elementwise draw; consumes the key as its last step.

    The first condition is the short way of a call that was made before: one key, a
    matching `out`, no offset.
    """
    if type(key) is Key and type(out) is np.ndarray and not offset:
        try:
            plan = op.kernels.get((key.impl, dtype, stream, target, variant))
        except TypeError:  # a list among them: the long way says what is wrong
            plan = None
        element = key._ids  # noqa: SLF001 - its class's own, for speed
        if (
            plan is not None
            and type(element) is int
            and out.shape == shape
            and out.dtype is plan.dtype
            and out.size < CHUNK
            and out.flags.carray
        ):
            consume(key._ledger, element, "drawn from", 3)  # noqa: SLF001 - the same
            flat = out if len(shape) == 1 else out.reshape(-1)
            return plan.launch, (key.words, flat, 0, 0) + scalars, out  # noqa: RUF005
    facts = (key.impl, dtype, stream, target, variant) if type(key) is Key else ()
    alone = bool(facts) and not offset and type(key._ids) is int  # noqa: SLF001
    if alone and out is not None and type(out) is not np.ndarray:
        again = on_torch.again(op, (out,), *facts)
        if again is not None and again.shape == shape:
            consume(key._ledger, key._ids, "drawn from", 3)  # noqa: SLF001 - the same
            return again.launch, (key.words, out, 0, 0, *scalars), out
    own(key)
    request = Request.of(op.id, key, shape, offset, stream)
    kind = element_type(op.id, dtype, allowed)
    check_target(target)
    if target is None and out is not None and type(out) is not np.ndarray:
        from tensorlang.runtime.given_arrays import target_of  # noqa: PLC0415

        target = target_of(op.id, (out,))
    batch, wide = key.ndim > 0, request.wide
    memo = (key.impl, dtype, stream, target, variant)
    plan = op.kernels.get((*memo, batch, wide)) or planned(
        op, memo, kind, batch=batch, carries=wide
    )
    array, shown = request.memory(plan.dtype, out)
    run = Run(plan, impl(key.impl), request.offset, scalars)
    if alone and out is not None and request.count < CHUNK:
        shapes = (key.words.shape, request.flat)
        on_torch.keep(op, (out,), facts, plan.kernel, shapes, request.shape, plan.dtype)
    return run, (key.take("drawn from"), array, request.flat), shown


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
        if not isinstance(stream, str) or stream not in STREAMS:
            raise ArgumentError(f"{name}: stream {stream!r} is none of {STREAMS}")
        if (
            isinstance(offset, bool)
            or not isinstance(offset, (int, np.integer))
            or not 0 <= offset < 2**64
        ):
            raise ArgumentError(
                f"{name}: offset counts elements, 0 <= offset < 2^64, not {offset!r}"
            )
        made = cls(name, key, checked_shape(name, shape), int(offset), stream)
        check_batch(name, key, made.count)
        return made

    @property
    def wide(self) -> bool:
        """Whether its counters pass 2^32."""
        return self.offset + self.count > _WORD

    @property
    def flat(self) -> tuple[int, ...]:
        """The result's shape for a kernel: elements, of each key for a batch."""
        return (self.key.size, self.count) if self.key.ndim else (self.count,)

    @property
    def count(self) -> int:
        """The elements each key draws."""
        return math.prod(self.shape)

    def memory(self, dtype: np.dtype[Any], out: Any) -> tuple[Any, Any]:
        """The result's memory as a NumPy array, and what the caller gets."""
        from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime

        full = self.key.shape + self.shape
        if out is None:
            return results.empty(self.name, full, dtype)
        return results.given(self.name, out, full, dtype), out


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The general way to run a draw: any offset, any size, any memory.

    Attributes:
        plan: The kernel and what is known of it.
        how: The key's hash.
        offset: The first element, counted in the stream.
        scalars: The kernel's scalars after the counter.
        inputs: Arrays that are read element by element, in the shape of the result.
        more: Buffers that the kernel takes after the result.
    """

    plan: Plan
    how: Impl
    offset: int
    scalars: tuple[Any, ...]
    inputs: tuple[Any, ...] = ()
    more: tuple[Any, ...] = ()

    @property
    def kernel(self) -> Any:
        """The kernel that runs."""
        return self.plan.kernel

    def __call__(self, keys: Any, array: Any, flat: tuple[int, ...]) -> None:
        """Fill `array`, seen in the shape `(elements,)` or `(keys, elements)`."""
        first, skipped = divmod(self.offset, self.plan.per_hash)
        keys = keys.reshape(*flat[:-1], keys.shape[-1])
        inputs = [values.reshape(flat) for values in self.inputs]
        if not skipped and array.flags.c_contiguous:
            self._fill(keys, inputs, array.reshape(flat), first)
            return
        if type(array) is not np.ndarray:
            raise ArgumentError(
                f"offset={self.offset} of a result on a device is no multiple of "
                f"{self.plan.per_hash}, or it is not contiguous; give a NumPy array"
            )
        # not at a hash's first element, or not in a row: by way of fresh memory
        spare = np.empty((*flat[:-1], flat[-1] + skipped), array.dtype)
        self._fill(keys, inputs, spare, first)
        np.copyto(array, spare[..., skipped:].reshape(array.shape))

    def _fill(self, keys: Any, inputs: list[Any], out: Any, first: int) -> None:
        if out.ndim == 2:
            self._launch(keys, inputs, out, first)
            return
        for start in range(0, max(len(out), 1), CHUNK):
            part = slice(start, start + CHUNK)
            given = [values[part] for values in inputs]
            self._launch(keys, given, out[part], first + start // self.plan.per_hash)

    def _launch(self, keys: Any, inputs: list[Any], out: Any, index: int) -> None:
        index %= 1 << 64
        high, low = (index >> 32, index & _WORD) if self.how.bits == 32 else (0, index)
        self.plan.launch(keys, *inputs, out, *self.more, high, low, *self.scalars)


def planned(
    op: Operator,
    memo: tuple[Any, ...],
    dtype: str,
    *,
    batch: bool,
    carries: bool,
) -> Plan:
    """Build the kernel of a draw and remember it."""
    from tensorlang.ir.dtypes import DType  # noqa: PLC0415 - off the short way

    how, _, stream, target, variant = memo
    shapes = ((4096, 4096),) if batch else ((1 << 24,),)
    given = {"impl": how, "stream": stream, "batch": batch, "carries": carries}
    if variant:
        given["variant"] = variant
    workload = op.workload(*shapes, dtypes=dtype, **given)
    name = variant or op.__name__
    kernel = op.build(workload, target)
    per = elements_per_hash(impl(how), stream, width_of(name, dtype))
    plan = Plan(kernel, kernel.launch, DType(result_of(name, dtype)).numpy, per)
    op.kernels[(*memo, batch, carries)] = plan
    if not batch and not carries:
        op.kernels[memo] = plan
    return plan


def check_batch(name: str, key: Any, count: int) -> None:
    """Refuse a batch of keys with so many elements each that one launch is too small.

    Raises:
        ShapeError: there are 2^31 or more.
    """
    if key.ndim and count >= CHUNK:
        raise ShapeError(
            f"{name}: each key of a batch draws fewer than 2^31 elements, not {count}; "
            "draw in parts with offset="
        )


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


def check_target(target: Any) -> None:
    """Refuse what cannot even be looked up as a target.

    Raises:
        TargetError: it is a list, a dictionary or the like.
    """
    if type(target).__hash__ is None:
        from tensorlang import targets  # noqa: PLC0415 - which says what there is

        targets.get(target)


def checked_axis(name: str, axis: Any, shape: tuple[int, ...]) -> int:
    """An axis of an array, counted from its first.

    Raises:
        ArgumentError: it is no whole number, or the array has no such axis.
    """
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"{name}: axis is a whole number, not {axis!r:.80}")
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"{name}: an array of shape {shape} has no axis {axis}")
    return int(axis) % len(shape)


def number(name: str, what: str, value: Any) -> float:
    """A finite or infinite number as a Python float.

    Raises:
        ArgumentError: it is no number.
    """
    try:
        result = math.nan if isinstance(value, (str, bytes)) else float(value)
    except OverflowError:
        raise ArgumentError(f"{name}: {what} is larger than all floats") from None
    except (TypeError, ValueError):
        result = math.nan
    if math.isnan(result):
        raise ArgumentError(f"{name}: {what} is a number, not {value!r:.80}")
    return result
