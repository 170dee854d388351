"""Calls of operators, with cached launches for repeated shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang import ir, lazy, runtime
from tensorlang.errors import ArgumentError, ShapeError, TensorlangError
from tensorlang.frozen import frozen
from tensorlang.ops.calls import on_torch, results
from tensorlang.ops.calls.dispatch import NOWHERE, Late, own
from tensorlang.ops.calls.update_checks import check_updated

with lazy.modules(__name__):  # it stands on operators
    from tensorlang.ops.random import keys

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch, Operator
    from tensorlang.ops.random.keys import Key

Shape: TypeAlias = tuple[int, ...]
MOST_ELEMENTS: Final = 1 << 48  # per array: more than any memory holds
MOST_DIMENSIONS: Final = 64  # NumPy's limit
_MOST_KNOWN: Final = 4096
_SHAPE_AND_TYPE: Final = attrgetter("shape", "dtype")


@frozen(eq=False)
class Ready:
    """A kernel, with the canonical shapes of a call's arrays.

    Attributes:
        launch: The kernel's fastest entry point.
        inputs: The canonical shapes; None if the caller's shape is canonical.
        results: The caller's shape, canonical shape and type of each result.
        updated: The position and name of each input that is updated in place.
        looked_at: Whether inputs must be reshaped, or are updated.
        single: The only result, or None if results are a tuple.
        small: Whether that result is so small that NumPy's allocator is fastest.
        check: Refuses scalars outside their domain.
        plain: The only result, if inputs are passed unchanged; its two shapes are one
            object if they are equal.
        quick: The shape and type of the only result, if it is plain and small, and the
            caller's shape is canonical.
        keys: The hash of each result that is a key, an empty string for arrays; empty
            if all results are arrays.
    """

    launch: Callable[..., Any]
    inputs: tuple[Shape | None, ...]
    results: tuple[tuple[Shape, Shape, np.dtype], ...]
    updated: tuple[tuple[int, str], ...]
    looked_at: bool
    single: tuple[Shape, Shape, np.dtype] | None
    small: bool
    check: Callable[[Sequence[Any]], None] | None = None
    plain: tuple[Shape, Shape, np.dtype] | None = None
    quick: tuple[Shape, np.dtype] | None = None
    keys: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        launch: Callable[..., object],
        inputs: tuple[Shape | None, ...],
        results: tuple[tuple[Shape, Shape, np.dtype], ...],
        check: Callable[[Sequence[Any]], None] | None = None,
        *,
        several: bool = False,
        updated: tuple[tuple[int, str], ...] = (),
        keys: tuple[str, ...] = (),
    ) -> Ready:
        """A kernel, with all that is derived from its canonical shapes."""
        single = results[0] if len(results) == 1 and not several else None
        small = (
            single
            and not any(keys)
            and math.prod(single[0]) * single[2].itemsize < runtime.buffers.SMALLEST
        )
        looked_at = bool(updated) or any(shape is not None for shape in inputs)
        plain = quick = None
        if single and not (looked_at or check):
            shape, inner, dtype = single
            plain = shape, shape if inner == shape else inner, dtype
            quick = (shape, dtype) if small and inner == shape else None
        rest = looked_at, single, bool(small), check, plain, quick
        return cls(launch, inputs, results, updated, *rest, keys if any(keys) else ())


# ----------------------------------------------------------------------- calls


def call(  # noqa: PLR0917 - by position, for speed
    op: Operator,
    arrays: Sequence[Any],
    attributes: dict[str, Any],
    scalars: tuple[Any, ...],
    target: Any,
    out: Any = None,
) -> Launch:
    """The launch of a call: the final step of all generated call functions.

    Args:
        arrays: The caller's arrays.
        attributes: Static attributes by name, in the operator's own order; hashable.
        scalars: The kernel's scalars.
        target: Where to compute.
        out: An array, or a tuple of arrays for several results.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    given, asked = arrays, target
    for array in arrays:
        if type(array) is not np.ndarray:
            if getattr(array, "is_cuda", False):
                again = on_torch.repeated(op, arrays, attributes, scalars, target, out)
                if again is not None:
                    return again
            held = on_torch.in_host_memory(arrays)
            like, arrays, there = (array, held, None) if held else _views(op, arrays)
            break
    else:
        like = there = None
        if out is not None and type(out) is not np.ndarray and type(out) is not tuple:
            again = on_torch.repeated(op, arrays, attributes, scalars, target, out)
            if again is not None:
                return again
    if target is None:
        if there is None and out is not None and type(out) is not np.ndarray:
            there = _place_of(op, out)
        target = there
    key: Hashable
    if attributes or len(arrays) not in (1, 2):
        key = (target, *attributes.values(), *map(_SHAPE_AND_TYPE, arrays))
    elif len(arrays) == 1:  # in half the time
        key = target, arrays[0].shape, arrays[0].dtype
    else:
        a, b = arrays
        key = target, a.shape, a.dtype, b.shape, b.dtype
    ready = op.kernels.get(key) or _prepared(op, key, arrays, attributes, target)
    if ready.quick and out is None and like is None:
        made = np.empty(*ready.quick)
        return ready.launch, (*arrays, made, *scalars), made
    if ready.check is not None:
        ready.check(scalars)
    if there is not None and not ready.updated:
        facts = (op, given, attributes, scalars, asked, out)
        if (again := on_torch.remembered(ready, *facts)) is not None:
            return again
    if ready.looked_at:
        if ready.updated:
            check_updated(op.id, ready.updated, given)
        arrays = [
            array if shape is None else array.reshape(shape)
            for array, shape in zip(arrays, ready.inputs, strict=True)
        ]
    if not ready.results:
        return ready.launch, (*arrays, *scalars), None
    if out is None:
        if ready.small and ready.single and there is None:
            shape, inner, dtype = ready.single
            made = np.empty(shape, dtype)
            flat = made if shape == inner else made.reshape(inner)
            result = made if like is None else Late(made, _kind(like))
            return ready.launch, (*arrays, flat, *scalars), result
        outs, shown = _fresh(op, ready, like)
        return ready.launch, (*arrays, *outs, *scalars), shown
    if type(out) is np.ndarray and ready.single:
        shape, inner, dtype = ready.single
        if out.shape == shape and out.dtype is dtype and out.flags.carray:
            flat = out if shape == inner else out.reshape(inner)
            return ready.launch, (*arrays, flat, *scalars), out
    return _into(op, ready, arrays, scalars, out)


def _into(
    op: Operator,
    ready: Ready,
    arrays: Sequence[object],
    scalars: tuple[object, ...],
    out: object,
) -> Launch:
    """The launch of a call into `out`, whatever it is."""
    if ready.keys and type(out) is np.ndarray:
        threaded = _with_key(ready, arrays, scalars, out)
        if threaded is not None:
            return threaded
    outs, back = _given(op, ready, out)
    launch = _CopiedBack(ready.launch, back) if back else ready.launch
    shown = out
    if ready.keys:
        outs, shown = _among_keys(ready, outs, out)
    return launch, (*arrays, *outs, *scalars), shown


def viewed(  # noqa: PLR0917 - as `call`
    op: Operator,
    arrays: Sequence[object],
    attributes: dict[str, Any],
    scalars: tuple[object, ...],
    target: object,
    out: object,
) -> Launch:
    """The launch of a call whose result is the first array in another shape.

    It is a view, unless `out` is given; JAX arrays and device arrays are copied.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    if out is not None:
        return call(op, arrays, attributes, scalars, target, out)
    array, like = arrays[0], None
    if type(array) is not np.ndarray:
        like, (array, *_), _ = _views(op, arrays)
        if type(array) is not np.ndarray or _kind(like) != "torch":
            return call(op, arrays, attributes, scalars, target, out)
    key = (array.shape, array.dtype, *attributes.values())
    shape = op.kernels.get(key)
    if shape is None:
        shape = _seen_as(op, key, array, attributes)
    shown = array.reshape(shape)
    return _nothing, (), shown if like is None else Late(shown, "torch")


def _seen_as(
    op: Operator, key: Hashable, array: Any, attributes: dict[str, Any]
) -> Shape:
    """The shape of the view, found without tracing."""
    assert op.view is not None
    try:
        ir.as_dtype(array.dtype)
        shape = op.view(array.shape, **attributes)
    except TensorlangError:
        # names the operator in errors
        ready = _prepared(op, key, [array], attributes, NOWHERE)
        shape = ready.results[0][0]
    check_result(op.id, shape)
    if len(op.kernels) > _MOST_KNOWN:
        op.kernels.clear()
    op.kernels[key] = shape
    return shape


def _prepared(
    op: Operator,
    key: Hashable,
    arrays: Sequence[Any],
    attributes: dict[str, Any],
    target: Any,
) -> Ready:
    if len(op.kernels) > _MOST_KNOWN:  # bounds memory for ever new shapes
        op.kernels.clear()
    ready: Ready = op.prepared(arrays, attributes, target)
    op.kernels[key] = ready
    return ready


def _nothing() -> None:
    """Launch nothing: the result is a view."""


def _kind(like: object) -> str:
    return runtime.host_arrays.kind_of(like)


def _views(
    op: Operator, arrays: Sequence[object]
) -> tuple[object, list[object], str | None]:
    """An array that results should resemble, views of the arrays, and their target.

    Raises:
        ArgumentError: they are on different devices, or one is not an array.
    """
    own(*arrays)
    found = [
        runtime.foreign_arrays.as_placed(array, f"{op.id}: argument {at}")
        for at, array in enumerate(arrays)
    ]
    there = runtime.foreign_arrays.where(found)
    like: Any = next(a for a in arrays if type(a) is not np.ndarray)
    if there is not None:
        like = next(a for a in found if type(a) is not np.ndarray)
    return like, found, there


def _place_of(op: Operator, out: object) -> str | None:
    """The target where `out` is; None for host memory."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    if all(type(each) is np.ndarray for each in outs):
        return None
    return runtime.foreign_arrays.target_of(op.id, outs)


def check_result(id: str, shape: Shape) -> None:
    """Refuse a result that cannot be an array.

    Raises:
        ShapeError: it has more elements than any memory, too many dimensions, or a
            negative size.
    """
    if min(shape, default=0) < 0:
        raise ShapeError(
            f"{id}: a result of shape {shape} is impossible: the arrays are too small"
        )
    if math.prod(extent or 1 for extent in shape) > MOST_ELEMENTS:
        raise ShapeError(
            f"{id}: a result of shape {shape} cannot be allocated: it has more than "
            "2**48 elements, or so long a side; ask for fewer"
        )
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(
            f"{id}: a result of {len(shape)} dimensions has more than the 64 that "
            "arrays may have"
        )


def _fresh(op: Operator, ready: Ready, like: object) -> tuple[list[Any], Any]:
    if ready.keys and ready.single:
        return _one_key(op, ready)
    outs, shown = [], []
    for shape, inner, dtype in _arrays(ready):
        array, result = results.empty(op.id, shape, dtype, like)
        outs.append(array if shape == inner else array.reshape(inner))
        shown.append(result)
    if ready.keys:
        return _among_keys(ready, outs, tuple(shown))
    return outs, shown[0] if ready.single else tuple(shown)


def _one_key(op: Operator, ready: Ready) -> tuple[list[object], Key]:
    """The memory of the only result, and the key or batch of keys in it."""
    (shape, inner, dtype), how = ready.results[0], ready.keys[0]
    try:
        words = np.empty(shape, dtype)
    except MemoryError as problem:
        raise ShapeError(
            f"{op.id}: {math.prod(shape[:-1])} keys cannot be allocated; make fewer at "
            "once"
        ) from problem
    flat = words if shape == inner else words.reshape(inner)
    return [flat], _key_class()(how, words)


def _arrays(ready: Ready) -> Sequence[tuple[Shape, Shape, np.dtype]]:
    """The results that are not keys."""
    if not ready.keys:
        return ready.results
    pairs = zip(ready.results, ready.keys, strict=True)
    return [result for result, how in pairs if not how]


def _among_keys(
    ready: Ready, arrays: Sequence[Any], shown: Any
) -> tuple[list[Any], tuple[Any, ...]]:
    """The memory and the caller's view of all results, with fresh keys inserted."""
    held, seen = iter(arrays), iter(shown if type(shown) is tuple else (shown,))
    outs, made = [], []
    for (shape, _, dtype), how in zip(ready.results, ready.keys, strict=True):
        if how:
            outs.append(np.empty(shape, dtype))
            made.append(_key_class()(how, outs[-1]))
        else:
            outs.append(next(held))
            made.append(next(seen))
    return outs, tuple(made)


def _with_key(
    ready: Ready, arrays: Sequence[object], scalars: tuple[object, ...], out: Any
) -> Launch | None:
    """Fast path for a matching `out` array and one key; None for all other calls."""
    if len(ready.keys) != 2 or ready.keys[0]:
        return None
    (shape, inner, dtype), (of_key, _, word) = ready.results
    if not (out.shape == shape and out.dtype is dtype and out.flags.carray):
        return None
    flat = out if shape == inner else out.reshape(inner)
    words = np.empty(of_key, word)
    state = _key_class()(ready.keys[1], words)
    return ready.launch, (*arrays, flat, words, *scalars), (out, state)


@cache
def _key_class() -> type[keys.Key]:
    return keys.Key


def _given(
    op: Operator, ready: Ready, out: object
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """The memory for results, and the pairs to copy back to `out` after the launch."""
    several, expected = ready.single is None, _arrays(ready)
    wanted = tuple(out) if several and isinstance(out, (tuple, list)) else (out,)
    if len(wanted) != len(expected):
        raise ArgumentError(
            f"{op.id} has {len(expected)} results, out= gives {len(wanted)}"
        )
    outs, back = [], []
    for held, (shape, inner, dtype) in zip(wanted, expected, strict=True):
        array = held
        plain = type(held) is np.ndarray and held.dtype is dtype
        if not (plain and held.shape == shape and held.flags.carray):
            array = results.given(op.id, held, shape, dtype)
        if shape == inner:
            outs.append(array)
        elif array.flags.carray:
            outs.append(array.reshape(inner))
        else:
            if type(array) is not np.ndarray:
                raise ArgumentError(
                    runtime.device_arrays.layout_error(f"{op.id}: out", array)
                )
            spare = np.empty(inner, dtype)
            outs.append(spare)
            back.append((array, spare))
    return outs, back


@frozen(eq=False)
class _CopiedBack:
    """A launch that copies results into non-contiguous arrays."""

    launch: Callable[..., Any]
    back: list[tuple[Any, Any]]

    def __call__(self, *args: object) -> None:
        self.launch(*args)
        for array, spare in self.back:
            np.copyto(array, spare.reshape(array.shape))
