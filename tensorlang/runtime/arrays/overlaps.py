"""Overlapping arrays of a call: which are rejected, and which are copied first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays.device_arrays import DeviceArray, PlacedArray, extent_of
from tensorlang.runtime.signature import Signature

if TYPE_CHECKING:
    from tensorlang.runtime.calling import Call

_OVERLAP_WORK: Final = 10_000  # bound on NumPy's exact overlap test


def separate_written(signature: Signature, call: Call) -> None:
    """Reject written arrays that overlap: the result would depend on the order."""
    written = [i for i, spec in enumerate(signature.buffers) if spec.written]
    for position, i in enumerate(written):
        for j in written[position + 1 :]:
            if share(call.arrays[i], call.arrays[j]):
                a, b = signature.buffers[i].name, signature.buffers[j].name
                raise ArgumentError(
                    f"{signature.name}: {a} and {b} overlap, and both are written; "
                    f"pass separate arrays"
                )


def separate_inputs(signature: Signature, call: Call) -> None:
    """Copy an input that a written array overlaps, unless the kernel allows it."""
    for i, out in enumerate(signature.buffers):
        if not out.written:
            continue
        for j, spec in enumerate(signature.buffers):
            if spec.written or not _touch(call.arrays[i], call.arrays[j]):
                continue
            a, b = call.arrays[i], call.arrays[j]
            same = extent_of(a) == extent_of(b) and a.shape == b.shape
            if not (same and a.dtype == b.dtype and (i, j) in signature.aliases):
                call.arrays[j] = b.copy()


def _touch(a: PlacedArray, b: PlacedArray) -> bool:
    """Whether the address ranges of two contiguous arrays overlap."""
    memory, first, first_end = extent_of(a)
    other, second, second_end = extent_of(b)
    return bool(memory == other and first < second_end and second < first_end)


def share(a: PlacedArray, b: PlacedArray) -> bool:
    """Whether two arrays share an element; True if undecided."""
    if isinstance(a, DeviceArray) or isinstance(b, DeviceArray):
        return _touch(a, b)
    try:
        return bool(np.shares_memory(a, b, _OVERLAP_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
