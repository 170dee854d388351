"""Random integers, permutations and categorical draws: argument checks and launches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np

from tensorlang import ir, lazy, runtime
from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops.calls import results
from tensorlang.ops.calls.dispatch import own
from tensorlang.ops.random.division import by
from tensorlang.ops.random.draw import Stream, drawn, element_type
from tensorlang.ops.spec.definition import algorithm, operator
from tensorlang.ops.spec.signature import (
    Arrays,
    Derived,
    Elements,
    ElementType,
    Floats,
    Key,
    Offset,
    Other,
    Shape,
)

with lazy.modules(__name__):
    from tensorlang.ops.random import block_sort, definitions, integer_definitions

if TYPE_CHECKING:
    from tensorlang.ops.kernels.tracing import KeyWords
    from tensorlang.ops.operator import Launch

INTEGERS: Final = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_MOST: Final = (1 << 31) - 1
_NUMBERS: Final = {
    bits: f"minval:u{bits} maxval:{','.join([f'u{bits}'] * 5)}" for bits in (32, 64)
}


def _division(
    dtype: object, minval: object, maxval: object
) -> tuple[str, tuple[int, ...]]:
    """The scalars of a draw: the minimum, and the constants of the remainder.

    These are the span, 2^width modulo it, and the magic numbers for division by it;
    they are left out if the span is 2^width.
    """
    name = "random.randint"
    kind = element_type(name, dtype, INTEGERS)
    low, high = _whole(name, "minval", minval), _whole(name, "maxval", maxval)
    least, most = ir.DType(kind).limits
    if not least <= low < high <= most + 1:
        raise ArgumentError(
            f"{name}: {kind} needs {least} <= minval < maxval <= {most + 1}, "
            f"not {low} and {high}"
        )
    bits = max(32, ir.DType(kind).bits)
    span, base = high - low, low % (1 << bits)
    if span == 1 << bits:
        return f"minval:u{bits}", (base,)
    return _NUMBERS[bits], (base, span, _multiplier(span, bits), *by(span, bits))


@drawn(
    "random.randint",
    INTEGERS,
    derive=_division,
    measured=({"minval": 0, "maxval": 10}, {"minval": -(1 << 31), "maxval": 1 << 31}),
)
def randint(
    key: Key,
    shape: Elements,
    minval: Derived,
    maxval: Derived,
    dtype: ElementType = "int32",
    *,
    offset: Offset = 0,
    stream: Stream = "jax",
) -> ir.Tensor:
    """Integers uniformly distributed over [minval, maxval).

    Each is the remainder of a random number of twice the width: the bias is below
    (maxval - minval) / 2^64 (2^128 for 64-bit types).

    Args:
        minval: The lower bound, inclusive; within the range of the type.
        maxval: The upper bound, exclusive; at most one above the type's maximum.
        dtype: Any integer type; 8- and 16-bit integers are truncated 32-bit draws.
    """
    source = definitions.Source.of(key, stream, offset)
    return integer_definitions.randint(source, shape, dtype, minval, maxval)


def checked_axis(name: str, axis: object, shape: tuple[int, ...]) -> int:
    """The axis, counted from 0; ArgumentError unless it is an axis of the shape."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"{name}: axis is a whole number, not {axis!r:.80}")
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"{name}: an array of shape {shape} has no axis {axis}")
    return int(axis) % len(shape)


def _multiplier(span: int, bits: int) -> int:
    """2^bits modulo the span, by squaring in `bits`-bit arithmetic as JAX does."""
    half = (1 << (bits // 2)) % span
    return half * half % (1 << bits) % span


def _whole(name: str, what: str, value: object) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{name}: {what} is a whole number, not {value!r}")
    return int(value)


class _Slices(NamedTuple):
    """An array to shuffle, of any library."""

    given: Any


def _counted(id: str, _: str, value: object) -> int | _Slices:
    """The number of elements, or an array."""
    own(value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return _Slices(value)
    if not 0 <= value <= _MOST:
        raise ArgumentError(f"{id}: 0 <= n < 2^31, not {value}")
    return int(value)


def _shuffled(
    *, key: object, x: _Slices, axis: int, target: object, out: object
) -> Launch:
    """The launch that shuffles slices: a permutation, then a gather of words."""
    name = permutation.id
    values = runtime.foreign_arrays.as_placed(x.given, f"{name}: x")
    at = checked_axis(name, axis, values.shape)
    size = values.dtype.itemsize
    if size not in (1, 2, 4, 8) or values.dtype.kind in "OSU":
        raise DTypeError(f"{name} shuffles numbers of 1 to 8 bytes, not {values.dtype}")
    facts, shown = (values.shape, values.dtype), out
    if out is None:
        array, shown = results.empty(name, *facts, x.given)
    else:
        array = results.given(name, out, *facts)
    order = _order(values, values.shape[at])
    source, moved = (_words(each, np.dtype(f"u{size}")) for each in (values, array))
    move, given, _ = gather.prepare(source, order, at, target=target, out=moved)
    sort, asked, _ = permutation.prepare(key, len(order), target=target, out=order)

    def run() -> None:
        sort(*asked)
        move(*given)

    return run, (), shown


def _order(like: Any, count: int) -> Any:
    """Memory for the order of elements, where the array is."""
    if type(like) is np.ndarray:
        return np.empty(count, np.int32)
    return runtime.device_arrays.empty_like(like, (count,), np.dtype(np.int32))


def _words(array: Any, word: np.dtype) -> Any:
    """The same memory as words."""
    if type(array) is np.ndarray:
        return array.view(word)
    return replace(array, dtype=word)


Shuffled: TypeAlias = Annotated["KeyWords", Other("key", verb="shuffled with")]
Count: TypeAlias = Annotated["tuple[ir.Size, ...]", Other("elements", counted=_counted)]
Words: TypeAlias = Annotated["ir.Tensor", Arrays("words", ("u8", "u16", "u64", "u32"))]
Order: TypeAlias = Annotated["ir.Tensor", Arrays("positions", ("i32",))]


@drawn(
    "random.permutation",
    ("i32",),
    scheduled_as="sort",
    shapes=((1 << 20,),),
    instead={"x": (_Slices, _shuffled)},
)
def permutation(key: Shuffled, x: Count, *, axis: int = 0) -> ir.Tensor:
    """A random permutation of 0, ..., x - 1, or of the slices of `x` along an axis.

    Args:
        key: A single key; consumed.
        x: The number of integers, or an array of any element type.
        axis: The axis along which slices are shuffled.
        out: The array for the result.

    Returns:
        An int32 array `[x]`, or an array of the shape and type of `x`.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError: `x` is negative or too large, or has no such axis.
    """
    ir.rows.axis_of(axis, 1)
    return integer_definitions.permutation(definitions.Source.of_one(key), *x)


@algorithm(permutation, "blocks")
def _blocks(key: Shuffled, x: Count, *, axis: int) -> ir.Tensor:
    """The same, with each pass in parallel blocks."""
    del axis
    return block_sort.permutation(definitions.Source.of_one(key), *x)


@operator("random.gather", aliases=(), shapes=((1 << 20,), (1 << 20,)), whole=True)
def gather(x: Words, order: Order, axis: int = 0) -> ir.Tensor:
    """`out[..., i, ...] = x[..., order[i], ...]` on words, as in `permutation`.

    Args:
        x: Unsigned integers.
        order: Integers in [0, n), int32 `[n]`.
        axis: The axis of `x` of length n that is indexed.
    """
    at = ir.rows.axis_of(axis, x.ndim)
    ir.require(
        order.shape == x.shape[at : at + 1],
        f"order has shape {order.shape}, the axis {x.shape[at : at + 1]}",
    )

    def element(*i: ir.Var) -> ir.Expr:
        return x[(*i[:at], order[i[at]].cast(ir.i64), *i[at + 1 :])]

    return ir.compute(x.shape, element, "out")


@operator(
    "random.categorical",
    family="threefry",
    scheduled_as="rows",
    shapes=((1024, 1024),),
    whole=True,
    meanings={"key": "A single key; consumed."},
)
def categorical(
    key: Key, logits: Floats, axis: int = -1, shape: Shape | None = None
) -> ir.Tensor:
    """Sample class indices with probabilities softmax(logits), by the Gumbel-max trick.

    Args:
        logits: Unnormalized log probabilities.
        axis: The axis of the classes.
        shape: The shape of the result. It must end in the shape of `logits` without
            the axis, which is the default; leading dimensions are independent samples.
        out: The array for the result, int32.

    Returns:
        An int32 array of that shape; equal to JAX's unless logarithms round
        differently.
    """
    source = definitions.Source.of_one(key)
    return integer_definitions.categorical(source, logits, axis, shape)
