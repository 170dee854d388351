"""NVIDIA's GPUs as PyCUDA shows them, or cuda-bindings where PyCUDA is not installed.

Only this is asked of a library: which GPUs there are, and their primary contexts. All
else goes to the driver itself (`tensorlang.runtime.cuda.driver`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tensorlang import lazy
from tensorlang.errors import DeviceError, DeviceMemoryError
from tensorlang.frozen import frozen

with lazy.modules(__name__):  # optional, and slow to import
    from cuda.bindings import driver as bindings_driver
    from pycuda import driver as pycuda_driver

REMEDY: Final = "pip install 'tensorlang[cuda]' and NVIDIA's driver"
# what the driver says of a device, without `CU_DEVICE_ATTRIBUTE_`
_ATTRIBUTES: Final = (
    "COMPUTE_CAPABILITY_MAJOR",
    "COMPUTE_CAPABILITY_MINOR",
    "MULTIPROCESSOR_COUNT",
    "MAX_THREADS_PER_BLOCK",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "L2_CACHE_SIZE",
)


@frozen
class Gpu:
    """A GPU."""

    name: str  # what the driver calls it
    bus: str  # its place on the PCI bus
    version: int  # driver's version: 13000 for CUDA 13.0
    attributes: tuple[int, ...]  # values of `_ATTRIBUTES`
    # retains the context that PyTorch, JAX and CuPy share, for good, and returns its
    # handle; raises `DeviceError` or `DeviceMemoryError`
    primary_context: Callable[[], int]


def _of_pycuda() -> tuple[Gpu, ...]:
    pycuda_driver.init()
    return tuple(map(_by_pycuda, range(pycuda_driver.Device.count())))


def _by_pycuda(index: int) -> Gpu:
    device, kinds = pycuda_driver.Device(index), pycuda_driver.device_attribute
    rest = (getattr(kinds, name) for name in _ATTRIBUTES[2:])

    def primary_context() -> int:
        try:
            held = device.retain_primary_context()
        except Exception as error:
            memory = type(error).__name__ == "MemoryError"
            raise (DeviceMemoryError if memory else DeviceError)(str(error)) from error
        # Leaked on purpose: at exit PyCUDA would detach the context, with a warning
        # and perhaps before the last array is freed, instead of releasing it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        return int(held.handle)

    return Gpu(
        name=device.name(),
        bus=device.pci_bus_id(),
        version=pycuda_driver.get_driver_version(),
        attributes=(*device.compute_capability(), *map(device.get_attribute, rest)),
        primary_context=primary_context,
    )


def _of_bindings() -> tuple[Gpu, ...]:
    _call("cuInit", 0)
    return tuple(map(_by_bindings, range(_call("cuDeviceGetCount"))))


def _by_bindings(index: int) -> Gpu:
    device, kinds = _call("cuDeviceGet", index), bindings_driver.CUdevice_attribute
    asked = (getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}") for name in _ATTRIBUTES)
    return Gpu(
        name=_text(_call("cuDeviceGetName", 256, device)),
        bus=_text(_call("cuDeviceGetPCIBusId", 32, device)),
        version=_call("cuDriverGetVersion"),
        attributes=tuple(_call("cuDeviceGetAttribute", kind, device) for kind in asked),
        primary_context=lambda: int(_call("cuDevicePrimaryCtxRetain", device)),
    )


def _call(name: str, *args: object) -> Any:
    """The result of a driver function through cuda-bindings; None if it has none.

    Raises:
        DeviceMemoryError: out of device memory.
        DeviceError: any other error.
    """
    code, *found = getattr(bindings_driver, name)(*args)
    if int(code):
        memory = code.name == "CUDA_ERROR_OUT_OF_MEMORY"
        kind = DeviceMemoryError if memory else DeviceError
        raise kind(f"{name} failed: {code.name}")
    return found[0] if found else None


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode()


# importable package -> the GPUs that it shows, in the order of preference
_LIBRARIES: Final[dict[str, Callable[[], tuple[Gpu, ...]]]] = {
    "pycuda": _of_pycuda,
    "cuda.bindings": _of_bindings,
}


@cache
def gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine, by the first library that works.

    Raises:
        DeviceError: none is installed, or the driver is missing or does not start.
    """
    problems = []
    for package, shown in _LIBRARIES.items():
        try:
            return shown()
        except ModuleNotFoundError as error:
            if not f"{package}.driver.".startswith(f"{error.name}."):  # it lacks more
                problems.append(str(error))
        except Exception as error:  # noqa: BLE001 - loaders raise what they like
            problems.append(" ".join(str(error).split()))
    if not problems:
        raise DeviceError(
            f"neither cuda-bindings nor pycuda is installed; it needs {REMEDY}"
        )
    found = "; ".join(dict.fromkeys(problems))
    raise DeviceError(f"no GPU: no driver is found ({found}); it needs {REMEDY}")
