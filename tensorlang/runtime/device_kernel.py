"""Common base of device kernels: outputs are allocated where the inputs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensorlang.runtime.arrays import buffers
from tensorlang.runtime.arrays import host_arrays as arrays
from tensorlang.runtime.arrays.device_arrays import DeviceArray, PlacedArray, empty_like
from tensorlang.runtime.arrays.foreign_arrays import on_device
from tensorlang.runtime.arrays.outputs import output_maker
from tensorlang.runtime.kernel import Artifact, Kernel
from tensorlang.targets import Target


class DeviceKernel(Kernel):
    """A kernel that runs on a device; see `Kernel`.

    Arrays on that device are used in place, and fresh outputs are allocated there as
    arrays of the first argument's library. Host arrays are copied to the device for the
    call, and written ones are copied back.
    """

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        self._make = self._outputs

    def _outputs(
        self, args: Sequence[object], named: Mapping[str, object]
    ) -> list[PlacedArray]:
        """Fresh outputs, on the device of the first argument that is on one."""
        like = self._first_there(args)

        def empty(shape: tuple[int, ...], dtype: np.dtype) -> PlacedArray:
            if like is None:
                return buffers.empty(shape, dtype)
            return empty_like(like, shape, dtype)

        return output_maker(self.signature, empty)(args, named)

    def _first_there(self, args: Sequence[object]) -> DeviceArray | None:
        for spec, arg in zip(self.signature.buffers, args, strict=False):
            found = on_device(arg, f"{self.name}: {spec.name}")
            if found is not None:
                return found
        return None

    def _as_callers(
        self, args: tuple[object, ...], fresh: PlacedArray
    ) -> arrays.Foreign:
        if isinstance(fresh, DeviceArray):
            return arrays.as_kind(fresh, fresh.kind)
        return super()._as_callers(args, fresh)
