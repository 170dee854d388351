"""What operators that update in place ask of the arrays that they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.dispatch import own

FLOATS: Final = ("f32", "bf16", "f16", "f64")
# what memory has once: several tensors of PyTorch may stand for the same
_OWNERS: Final = {"ndarray", "Lease"}
_OVERLAP_WORK: Final = 10_000  # how hard NumPy looks for a common element


@dataclass(frozen=True, slots=True)
class Arrays:
    """What an operator takes, for checks and their messages.

    Attributes:
        id: The operator's id.
        names: Of all arrays, in calling order.
        read: Of those that are not written.
    """

    id: str
    names: tuple[str, ...]
    read: tuple[str, ...] = ()


def kinds_of(
    by: Arrays, names: Sequence[str], dtypes: Sequence[np.dtype[Any]]
) -> tuple[str, ...]:
    """Our names of the types: all as the first one's, or f32 beside f16 and bf16."""
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to prepare

    for name, dtype in zip(names, dtypes, strict=True):
        if not dtype.isnative:
            raise DTypeError(f"{by.id}: {name} is {dtype!r}, of another byte order")
    kinds = tuple(as_dtype(dtype).name for dtype in dtypes)
    first = kinds[0]
    if first not in FLOATS:
        raise DTypeError(f"{by.id} takes {', '.join(FLOATS)}, not {first}")
    allowed = (first, "f32") if first in ("f16", "bf16") else (first,)
    for name, kind in zip(names, kinds, strict=True):
        if kind not in allowed:
            raise DTypeError(
                f"{by.id}: {name} is {kind}; beside {names[0]} of {first} it is "
                f"{' or '.join(allowed)}"
            )
    return kinds


def checked(
    by: Arrays, names: Sequence[str], arrays: Sequence[tuple[Any, ...]]
) -> list[tuple[np.ndarray[Any, Any], ...]]:
    """The sets as NumPy arrays over the same memory, found to fit.

    Raises:
        ShapeError, DTypeError, ArgumentError: a set does not fit.
    """
    count = len(arrays[0])
    given = dict(zip(names, arrays, strict=True))
    seen = [of for of in views(by, [given.get(n) for n in by.names]) if of]
    sets = []
    for n, of in enumerate(zip(*seen, strict=True)):
        called = [f"{name}[{n}]" if count > 1 else name for name in names]
        for name, title, array in zip(called, names, of, strict=True):
            if title not in by.read:
                _in_a_row(by, name, array)
        of_one_shape(by.id, called, [array.shape for array in of])
        kinds_of(by, called, [array.dtype for array in of])
        _apart(by, called, of)
        sets.append(of)
    return sets


def views(
    by: Arrays, given: Sequence[tuple[Any, ...] | None]
) -> list[tuple[np.ndarray[Any, Any], ...] | None]:
    """All arrays as NumPy arrays over the same memory.

    Raises:
        ArgumentError: one is no array, or is never written in its library.
    """
    from tensorlang.runtime.arrays import immutable  # noqa: PLC0415 - runtime
    from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - runtime

    def checked_one(name: str, array: Any) -> Any:
        reason = "" if name in by.read else immutable(array)
        if reason:
            raise ArgumentError(f"{by.id}: {name} {reason}; pass a NumPy array")
        return seen(array, f"{by.id}: {name}")

    own(*(of for of in given if of is not None))
    return [
        of and tuple(checked_one(name, array) for array in of)
        for name, of in zip(by.names, given, strict=True)
    ]


def _in_a_row(by: Arrays, name: str, array: Any) -> None:
    """Refuse an array that cannot be updated where it lies."""
    if not array.flags.writeable:
        raise ArgumentError(
            f"{by.id}: {name} is read-only, and it is updated in place; pass an array "
            "of your own"
        )
    if not array.flags.carray:
        raise ArgumentError(
            f"{by.id}: {name} is updated in place and must lie in a row; pass an array "
            "that is contiguous, as np.ascontiguousarray makes it"
        )


def of_one_shape(
    id: str, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> None:
    """Refuse shapes that differ.

    Raises:
        ShapeError: they do.
    """
    for name, shape in zip(names, shapes, strict=False):
        if shape != shapes[0]:
            raise ShapeError(
                f"{id}: {name} has shape {shape}, and {names[0]} has {shapes[0]}; "
                "they are updated element by element"
            )


def _apart(
    by: Arrays, names: Sequence[str], arrays: Sequence[np.ndarray[Any, Any]]
) -> None:
    """Refuse a set whose arrays share memory."""
    for later, b in enumerate(arrays):
        for a, name in zip(arrays[:later], names, strict=False):
            if _share(a, b):
                raise ArgumentError(
                    f"{by.id}: {name} and {names[later]} share memory, and what is "
                    "updated in place needs memory of its own"
                )


def sets_apart(
    by: Arrays, names: Sequence[str], arrays: Sequence[tuple[Any, ...]]
) -> None:
    """Refuse sets of which two update the same memory: it would be updated twice.

    It costs little where each NumPy array that is written is of an owner of its own.

    Raises:
        ArgumentError: they do, or one is no array.
    """
    held = zip(names, arrays, strict=True)
    written = {name: of for name, of in held if name not in by.read}
    try:
        owners = [
            array if array.base is None else array.base
            for of in written.values()
            for array in of
        ]
    except AttributeError:  # of another library
        owners = []
    lone = len(set(map(id, owners))) == len(written) * len(arrays[0])
    if not lone or not {kind.__name__ for kind in set(map(type, owners))} <= _OWNERS:
        _ranges_apart(by, written)


def _ranges_apart(by: Arrays, written: Mapping[str, tuple[Any, ...]]) -> None:
    """The same by where arrays begin and end; those not in a row are refused later."""
    from tensorlang.runtime.device_arrays import extent_of  # noqa: PLC0415 - runtime

    seen = views(by, [written.get(name) for name in by.names])
    ranges = sorted(
        (str(memory), begin, end, f"{name}[{n}]")
        for name, of in zip(by.names, seen, strict=True)
        for n, array in enumerate(of or ())
        if array.size and array.flags.carray
        for memory, begin, end in [extent_of(array)]
    )
    for (same, _, end, one), (memory, begin, _, other) in pairwise(ranges):
        if memory == same and begin < end:
            first, second = sorted((one, other), key=_place)
            raise ArgumentError(
                f"{by.id}: {first} and {second} share memory, and would be updated "
                "twice; pass each array once"
            )


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays have an element in common; where unsure, they do."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return np.may_share_memory(a, b) and np.shares_memory(a, b, _OVERLAP_WORK)  # type: ignore[arg-type]
    from tensorlang.runtime.device_arrays import extent_of  # noqa: PLC0415 - runtime

    memory, first, first_end = extent_of(a)
    other, second, second_end = extent_of(b)
    return memory == other and first < second_end and second < first_end


def _place(name: str) -> tuple[int, str]:
    """A key that sorts `v[2]` before `m[10]`."""
    title, _, n = name.rstrip("]").partition("[")
    return int(n), title
