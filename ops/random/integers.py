"""Random integers, permutations and categorical draws: argument checks and launches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops import lazy
from tensorlang.ops.definition import operator
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import Algorithm, check_target, declared, imported
from tensorlang.ops.random import keys
from tensorlang.ops.random.division import by
from tensorlang.ops.random.draw import Stream, drawn, element_type
from tensorlang.ops.random.stateful import StatefulKey
from tensorlang.ops.signature import (
    Derived,
    Elements,
    ElementType,
    Floats,
    Key,
    Offset,
    Shape,
)

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ops.operator import Kernel, Launch, Operator
    from tensorlang.ops.random import definitions, integer_definitions
else:
    definitions = lazy.module("tensorlang.ops.random.definitions")
    integer_definitions = lazy.module("tensorlang.ops.random.integer_definitions")

INTEGERS: Final = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_HERE: Final = "tensorlang.ops.random.integer_definitions"
_MOST: Final = (1 << 31) - 1
_NUMBERS: Final = {
    bits: f"minval:u{bits} maxval:{','.join([f'u{bits}'] * 5)}" for bits in (32, 64)
}


def _division(dtype: Any, minval: Any, maxval: Any) -> tuple[str, tuple[int, ...]]:
    """The scalars of a draw: the minimum, and the constants of the remainder.

    These are the span, 2^width modulo it, and the magic numbers for division by it;
    they are left out if the span is 2^width.
    """
    from tensorlang.ir.dtypes import DType  # noqa: PLC0415 - known by then

    name = "random.randint"
    kind = element_type(name, dtype, INTEGERS)
    low, high = _whole(name, "minval", minval), _whole(name, "maxval", maxval)
    least, most = DType(kind).limits
    if not least <= low < high <= most + 1:
        raise ArgumentError(
            f"{name}: {kind} needs {least} <= minval < maxval <= {most + 1}, "
            f"not {low} and {high}"
        )
    bits = max(32, DType(kind).bits)
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
) -> Tensor:
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


def checked_axis(name: str, axis: Any, shape: tuple[int, ...]) -> int:
    """The axis as a non-negative number.

    Raises:
        ArgumentError: it is not an integer, or the array has no such axis.
    """
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"{name}: axis is a whole number, not {axis!r:.80}")
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"{name}: an array of shape {shape} has no axis {axis}")
    return int(axis) % len(shape)


def _multiplier(span: int, bits: int) -> int:
    """2^bits modulo the span, by squaring in `bits`-bit arithmetic as JAX does."""
    half = (1 << (bits // 2)) % span
    return half * half % (1 << bits) % span


def _whole(name: str, what: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{name}: {what} is a whole number, not {value!r}")
    return int(value)


def _built(op: Operator, target: Any, *dtypes: str, **given: Any) -> Kernel:
    """An operator's launch for these types, memoised."""
    check_target(target)
    memo = (dtypes, tuple(given.items()), target)
    found = op.kernels.get(memo)
    if found is None:
        shapes = () if op.default is None else op.default.shapes
        kernel = op.build(op.workload(*shapes, dtypes=dtypes, **given), target)
        found = op.kernels[memo] = kernel.launch
    return found


def _one_key(name: str, key: Any, values: Any) -> Any:
    own(key, values)
    if not isinstance(key, (keys.Key, StatefulKey)):
        raise ArgumentError(f"{name} takes a Key first, not {type(key).__name__}")
    if key.ndim:
        raise ArgumentError(
            f"{name} takes one key, not a batch of shape {key.shape}; loop over them"
        )
    return key


@declared(
    "random.permutation",
    f"{_HERE}:permutation",
    shapes={"shapes": ((1 << 20,),), "dtypes": ("i32",), "impl": "threefry2x32"},
    dtypes=("i32",),
    aliases=("permutation",),
    family="threefry",
    scheduled_as="sort",
    sizes=lambda workload: {"n": workload.shapes[0][0]},
    scalars=lambda workload: {"rounds": _rounds(workload.shapes[0][0])},
    result=lambda workload: workload.shapes[0],
)
def permutation(
    key: keys.Key, x: Any, *, axis: int = 0, target: Any = None, out: Any = None
) -> Launch:
    """A random permutation of 0, ..., x - 1, or of the slices of `x` along an axis.

    Args:
        key: A single key; consumed.
        x: The number of integers, or an array of any element type.
        axis: The axis along which slices are shuffled.
        target: Where to compute.
        out: The array for the result.

    Returns:
        An int32 array `[x]`, or an array of the shape and type of `x`.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError: `x` is negative or too large, or has no such axis.
    """
    from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime

    name = "random.permutation"
    _one_key(name, key, x)
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        if not 0 <= x <= _MOST:
            raise ArgumentError(f"{name}: 0 <= n < 2^31, not {x}")
        checked_axis(name, axis, (int(x),))
        launch = _built(permutation, target, "i32", impl=key.impl)
        order, shown = results.made(name, out, (int(x),), np.dtype(np.int32))
        return launch, (key.take("shuffled with"), order, _rounds(len(order))), shown
    return _shuffled(name, key, x, axis, target, out)


permutation.algorithms["blocks"] = Algorithm(
    "blocks", imported("tensorlang.ops.random.block_sort:permutation")
)


def _shuffled(  # noqa: PLR0917 - as permutation
    name: str, key: Any, x: Any, axis: int, target: Any, out: Any
) -> Launch:
    from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.foreign_arrays import as_placed  # noqa: PLC0415 - the same

    values = as_placed(x, f"{name}: x")
    at = checked_axis(name, axis, values.shape)
    if values.dtype.itemsize not in (1, 2, 4, 8) or values.dtype.kind in "OSU":
        raise DTypeError(f"{name} shuffles numbers of 1 to 8 bytes, not {values.dtype}")
    n = values.shape[at]
    flat = (math.prod(values.shape[:at]), n, math.prod(values.shape[at + 1 :]))
    words = np.dtype(f"u{values.dtype.itemsize}")
    target = _place(name, values, target)
    sort = _built(permutation, target, "i32", impl=key.impl)
    move = _built(gather, target, f"u{8 * words.itemsize}", "i32")
    array, shown = results.made(name, out, values.shape, values.dtype, x)
    if type(values) is not np.ndarray:
        return _on_device(name, key, values, array, flat, sort, move), (), shown
    source = np.array(values, order="C")  # a copy: out may be x
    moved = np.empty(values.shape, values.dtype)
    order = np.empty(n, np.int32)
    taken = key.take("shuffled with")

    def run() -> None:
        sort(taken, order, _rounds(n))
        move(source.view(words).reshape(flat), order, moved.view(words).reshape(flat))
        array[...] = moved

    return run, (), shown


def _place(name: str, values: Any, target: Any) -> Any:
    """The target of a call: by default, where the array is."""
    if target is not None or type(values) is np.ndarray:
        return target
    from tensorlang.runtime.foreign_arrays import target_of  # noqa: PLC0415 - runtime

    return target_of(name, (values,))


def _on_device(  # noqa: PLR0917 - of one call
    name: str,
    key: Any,
    values: Any,
    array: Any,
    flat: tuple[int, int, int],
    sort: Kernel,
    move: Kernel,
) -> Kernel:
    """The launch that shuffles an array on its device: sort, then gather."""
    from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime

    n = flat[1]
    order, _ = results.empty(name, (n,), np.dtype(np.int32), values)
    words = np.dtype(f"u{values.dtype.itemsize}")
    source, moved = (
        replace(each, dtype=words).reshape(flat) for each in (values, array)
    )
    taken = key.take("shuffled with")

    def run() -> None:
        sort(taken, order, _rounds(n))
        move(source, order, moved)

    return run


def _rounds(n: int) -> int:
    """The number of sorts that makes colliding sort keys harmless, as in JAX."""
    return math.ceil(3 * math.log(max(1, n)) / math.log((1 << 32) - 1))


@declared(
    "random.gather",
    f"{_HERE}:gather",
    shapes={"shapes": ((1, 1 << 20, 1), (1 << 20,)), "dtypes": ("u32", "i32")},
    dtypes=("u8", "u16", "u32", "u64"),
    sizes=lambda workload: dict(
        zip(("outer", "n", "inner"), workload.shapes[0], strict=True)
    ),
    result=lambda workload: workload.shapes[0],
)
def gather(x: Any, order: Any, out: Any, *, target: Any = None) -> Launch:
    """`out[o, i, j] = x[o, order[i], j]` on words: the gather of `permutation`.

    `order` must hold integers in [0, n).
    """
    kind = f"u{8 * x.dtype.itemsize}"
    return _built(gather, target, kind, "i32"), (x, order, out), out


@operator(
    "random.categorical",
    aliases=("categorical",),
    family="threefry",
    scheduled_as="rows",
    shapes=((1024, 1024),),
    whole=True,
    meanings={"key": "A single key; consumed."},
)
def categorical(
    key: Key, logits: Floats, axis: int = -1, shape: Shape | None = None
) -> Tensor:
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
