"""Callers' arrays of any library, in host memory or on a device, accessed in place.

The module that reads a library's arrays is imported at the first such array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.runtime.arrays import host_arrays as arrays
from tensorlang.runtime.arrays.device_arrays import DeviceArray
from tensorlang.runtime.arrays.host_arrays import Foreign

with lazy.modules(__name__):  # loaded at the first such array
    from tensorlang.runtime.cuda import arrays as cuda_arrays
    from tensorlang.runtime.opencl import arrays as opencl_arrays

if TYPE_CHECKING:
    import jax


def as_placed(value: object, name: str) -> Any:
    """A caller's array in place: a NumPy array for host memory, or a `DeviceArray`.

    Args:
        value: An array of any library.
        name: Its name in error messages.

    Raises:
        ArgumentError: not an array, or one that cannot be used in place.
    """
    if type(value) in _SEEN:
        return value
    found = on_device(value, name)
    return arrays.view(value, name) if found is None else found


def on_device(value: object, name: str) -> DeviceArray | None:
    """A caller's array on a device; None for anything else.

    Raises:
        ArgumentError: it cannot be used in place.
    """
    if type(value) is DeviceArray:
        return value
    read = _reader(value)
    if read is None:
        return None
    try:
        made = read(value, name)
    except (TypeError, ValueError, LookupError, BufferError) as error:
        if isinstance(error, TensorlangError):
            raise
        raise ArgumentError(
            f"{name}: the interface of this {type(value).__name__} cannot be read "
            f"({type(error).__name__}: {error})"
        ) from error
    if made.dtype.hasobject:
        raise ArgumentError(f"{name} has Python objects as elements")
    return made


def _reader(value: Foreign) -> Callable[[Foreign, str], DeviceArray] | None:
    """The function that reads a device array; None for other values."""
    match arrays.kind_of(value):
        case "numpy" | "builtins":
            return None
        case "torch":
            return cuda_arrays.from_torch if _is_torch_cuda(value) else None
        case "jax":
            return cuda_arrays.from_dlpack if _is_jax_cuda(value) else None
        case "pyopencl":
            return opencl_arrays.from_pyopencl if _is_opencl_array(value) else None
    return cuda_arrays.from_interface if _speaks_cuda(value) else None


def _speaks_cuda(value: object) -> bool:
    return getattr(value, "__cuda_array_interface__", None) is not None


def _is_torch_cuda(value: object) -> bool:
    return getattr(getattr(value, "device", None), "type", "") == "cuda"


def _is_jax_cuda(value: jax.Array) -> bool:
    if not hasattr(value, "devices") or "Tracer" in type(value).__name__:
        return False
    if value.is_deleted():
        return False  # deleted: `arrays.view` raises
    return {device.platform for device in value.devices()} <= {"cuda", "gpu"}


def _is_opencl_array(value: object) -> bool:
    return hasattr(value, "base_data")


_SEEN: Final = (np.ndarray, DeviceArray)


def target_of(name: str, values: Iterable[object]) -> str | None:
    """Name of the target where the arrays are; None if none is on a device.

    Args:
        name: The operator's name in error messages.
        values: Arrays of any library, or None.

    Raises:
        ArgumentError: they are on several devices.
    """
    given = [v for v in values if v is not None and type(v) is not np.ndarray]
    return where(on_device(value, f"{name}: an array") for value in given)


def where(values: Iterable[object]) -> str | None:
    """Name of the target where arrays are; None if none is on a device.

    Raises:
        ArgumentError: they are on several devices.
    """
    found = {v.place.key: v.place.name for v in values if type(v) is DeviceArray}
    if len(found) > 1:
        raise ArgumentError(
            f"the arrays of a call are on {' and '.join(sorted(found.values()))}; move "
            "them to one device and context"
        )
    return next(iter(found.values()), None)
