"""Checks of arrays that are updated in place.

A set has one array per parameter. Its arrays have the same shape, as they are updated
elementwise, and do not overlap. All sets are checked before any is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Final

import numpy as np

from tensorlang import ir, runtime
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.calls.dispatch import own
from tensorlang.ops.spec.signature import FLOATS, NARROW

# owners that are unique per memory block; several PyTorch tensors may share one
_OWNERS: Final = {"ndarray", "Lease"}


@dataclass(slots=True)
class Sets:
    """The arrays of a call."""

    id: str  # id of the operator
    names: Sequence[str]  # names of its arrays
    read: Collection[str]  # names of read-only arrays
    arrays: Sequence[tuple[Any, ...]]  # for each name, the array of each set

    def placed(self) -> list[tuple[Any, ...]]:
        """The arrays as NumPy arrays or `DeviceArray`s over the same memory.

        Raises:
            ArgumentError: one is not an array, or is immutable in its library.
        """

        def one(name: str, array: object) -> Any:
            reason = "" if name in self.read else runtime.host_arrays.immutable(array)
            if reason:
                raise ArgumentError(f"{self.id}: {name} {reason}; pass a NumPy array")
            return runtime.foreign_arrays.as_placed(array, f"{self.id}: {name}")

        own(*self.arrays)
        held = zip(self.names, self.arrays, strict=True)
        return [tuple([one(name, array) for array in of]) for name, of in held]

    def checked(self) -> list[tuple[Any, ...]]:
        """The sets, checked, as arrays over the same memory.

        Raises:
            ShapeError, DTypeError, ArgumentError: a set does not fit.
        """
        found = list(zip(*self.placed(), strict=True))
        for n, arrays in enumerate(found):
            names = [f"{name}[{n}]" if len(found) > 1 else name for name in self.names]
            for name, title, array in zip(self.names, names, arrays, strict=True):
                if name not in self.read:
                    check_writable(f"{self.id}: {title}", array)
            of_one_shape(self.id, names, [array.shape for array in arrays])
            kinds_of(self.id, names, [array.dtype for array in arrays])
            for (a, one), (b, other) in combinations(
                zip(arrays, names, strict=True), 2
            ):
                if runtime.overlaps.share(a, b):
                    raise ArgumentError(
                        f"{self.id}: {one} and {other} share memory, and what is "
                        "updated in place needs memory of its own"
                    )
        return found

    def check_apart(self) -> None:
        """Refuse sets that update the same memory.

        Cheap if all written arrays are NumPy arrays with distinct owners.

        Raises:
            ArgumentError: two overlap, or one is not an array.
        """
        pairs = list(zip(self.names, self.arrays, strict=True))
        written = [(name, of) for name, of in pairs if name not in self.read]
        arrays = [array for _, of in written for array in of]
        try:
            owners = [a if a.base is None else a.base for a in arrays]
        except AttributeError:  # of another library
            owners = []
        alone = len(set(map(id, owners))) == len(arrays)
        kinds = {kind.__name__ for kind in set(map(type, owners))}
        if not alone or not kinds <= _OWNERS:
            names, lists = zip(*written, strict=True)
            _check_ranges(Sets(self.id, names, (), lists))


def check_updated(
    id: str, updated: Sequence[tuple[int, str]], arrays: Sequence[object]
) -> None:
    """Refuse arrays that cannot be updated in place; notify PyTorch of the writes.

    Args:
        id: The id of the operator.
        updated: The position and name of each array that is updated.
        arrays: All arrays of the call.

    Raises:
        ArgumentError: one is read-only, or not contiguous.
    """
    for at, name in updated:
        ((array,),) = Sets(id, (name,), (), [(arrays[at],)]).placed()
        check_writable(f"{id}: {name}", array)
    runtime.host_arrays.written(arrays[at] for at, _ in updated)


def check_writable(where: str, array: Any) -> None:
    """Refuse an array that cannot be updated in place.

    Raises:
        ArgumentError: it is read-only, or not contiguous.
    """
    if not array.flags.writeable:
        raise ArgumentError(
            f"{where} is read-only, and it is updated in place; pass an array "
            "of your own"
        )
    if not array.flags.carray:
        raise ArgumentError(
            f"{where} is updated in place and must be contiguous; pass the result of "
            "np.ascontiguousarray"
        )


def of_one_shape(
    id: str, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> None:
    """Refuse shapes that differ; ShapeError if they do."""
    for name, shape in zip(names, shapes, strict=False):
        if shape != shapes[0]:
            raise ShapeError(
                f"{id}: {name} has shape {shape}, and {names[0]} has {shapes[0]}; "
                "they are updated element by element"
            )


def kinds_of(
    id: str, names: Sequence[str], dtypes: Sequence[np.dtype]
) -> tuple[str, ...]:
    """The types' names: one, or f32 beside f16 and bf16; DTypeError for others."""
    for name, dtype in zip(names, dtypes, strict=True):
        if not dtype.isnative:
            raise DTypeError(f"{id}: {name} is {dtype!r}, of another byte order")
    first, *_ = kinds = tuple(ir.as_dtype(dtype).name for dtype in dtypes)
    if first not in FLOATS:
        raise DTypeError(f"{id} takes {', '.join(FLOATS)}, not {first}")
    allowed = (first, "f32") if first in NARROW else (first,)
    for name, kind in zip(names, kinds, strict=True):
        if kind not in allowed:
            raise DTypeError(
                f"{id}: {name} is {kind}; beside {names[0]} of {first} it is "
                f"{' or '.join(allowed)}"
            )
    return kinds


def _check_ranges(sets: Sets) -> None:
    """Compare address ranges; non-contiguous arrays are refused later."""
    ranges = sorted(
        (str(memory), begin, end, n, name)
        for name, of in zip(sets.names, sets.placed(), strict=True)
        for n, array in enumerate(of)
        if array.size and array.flags.carray
        for memory, begin, end in [runtime.device_arrays.extent_of(array)]
    )
    for (same, _, end, *one), (memory, begin, _, *other) in pairwise(ranges):
        if memory == same and begin < end:
            first, second = (f"{name}[{n}]" for n, name in sorted((one, other)))
            raise ArgumentError(
                f"{sets.id}: {first} and {second} share memory, and would be "
                "updated twice; pass each array once"
            )
