"""Cached calls with NumPy arrays of the same shapes, dtypes and flags.

The slow path costs some fifteen microseconds, most of it repeating what was derived
from such arrays before.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from tensorlang.runtime import calling
from tensorlang.runtime.arrays.host_arrays import Foreign
from tensorlang.runtime.signature import Scalars, Signature

_MOST_KEPT: Final = 64


class CallCache:
    """A kernel's bound scalars, by the shapes, dtypes and flags of its arrays.

    Args:
        signature: The kernel's signature.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._count = len(signature.buffers)
        self._arity = self._count + len(signature.free)
        written = [spec.written for spec in signature.buffers]
        self._pairs = [
            (i, j)
            for i in range(self._count)
            for j in range(i)
            if written[i] or written[j]
        ]
        self._bound: dict[Hashable, Scalars] = {}

    def call(self, args: Sequence[Foreign]) -> calling.Call | None:
        """The prepared call with these arguments; None if it needs the slow path."""
        key = self._key(args)
        bound = None if key is None else self._bound.get(key)
        if bound is None:
            return None
        arrays = list(args[: self._count])
        begins = [array.ctypes.data for array in arrays]
        for i, j in self._pairs:
            if (
                begins[i] < begins[j] + arrays[j].nbytes
                and begins[j] < begins[i] + arrays[i].nbytes
            ):
                return None
        scalars = dict(bound)
        for spec, value in zip(self._signature.free, args[self._count :], strict=True):
            scalars[spec.name] = calling.scalar(self._signature.name, spec, value)
        if any(scalars[name] < 0 for name in self._signature.sizes):
            return None
        return calling.Call(arrays, scalars)

    def keep(self, args: Sequence[Foreign], call: calling.Call) -> None:
        """Cache a call that took the slow path and used its arrays in place."""
        key = self._key(args)
        taken = all(a is b for a, b in zip(args, call.arrays, strict=False))
        if key is None or call.back or not taken:
            return
        if len(self._bound) >= _MOST_KEPT:
            self._bound.clear()
        names = {spec.name for spec in self._signature.scalars if spec.bound}
        self._bound[key] = {name: call.scalars[name] for name in names}

    def _key(self, args: Sequence[Foreign]) -> Hashable:
        """The cache key; None if some array is not NumPy's."""
        if len(args) != self._arity:
            return None
        arrays = args[: self._count]
        for array in arrays:
            if type(array) is not np.ndarray:
                return None
        return tuple([(a.shape, a.dtype, a.flags.num) for a in arrays])
