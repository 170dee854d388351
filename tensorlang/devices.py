"""The OpenCL devices of this machine, GPUs first, and its CUDA devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tensorlang import lazy

with lazy.modules(__name__):  # optional, and slow to import
    import pyopencl
    from pycuda import driver as pycuda_driver

if TYPE_CHECKING:
    from pycuda import driver

REMEDY: Final = "pip install 'tensorlang[opencl]' and an OpenCL driver"


@dataclass(frozen=True, slots=True)
class Device:
    """Properties of a device for a target.

    Attributes:
        title: Its name; with OpenCL, also its platform's.
        arch: With OpenCL, `gpu` or `cpu` and the address width; with CUDA, `sm_80`.
        driver: The driver's version; with OpenCL, also the platform's.
        units: Compute units, or multiprocessors.
        block_threads: Maximum number of threads per block.
        shared_bytes: Maximum (opt-in) shared memory per block.
        vector_bits: Width of one thread's widest access.
        features: OpenCL's extensions.
        l2_bytes: The size of the L2 cache; 0 if unknown.
    """

    title: str
    arch: str
    driver: str
    units: int
    block_threads: int
    shared_bytes: int
    vector_bits: int = 128
    features: tuple[str, ...] = ()
    l2_bytes: int = 0

    @property
    def slug(self) -> str:
        """The title, usable in a file name."""
        return re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_")


def problem() -> str:
    """Why OpenCL is unavailable here, as a clause; empty if it is available."""
    if find_spec("pyopencl") is None:
        return f"pyopencl is not installed; it needs {REMEDY}"
    try:
        handles()
    except Exception as reason:  # noqa: BLE001 - loaders raise what they like
        return f"PyOpenCL finds no platform ({reason}); it needs an OpenCL driver"
    return "" if handles() else "no platform has a device; it needs an OpenCL driver"


@cache
def handles() -> tuple[pyopencl.Device, ...]:
    """PyOpenCL's device objects, GPUs first."""
    found = [d for p in pyopencl.get_platforms() for d in p.get_devices()]
    return tuple(sorted(found, key=lambda d: not d.type & pyopencl.device_type.GPU))


@cache
def devices() -> tuple[Device, ...]:
    """The properties of each device."""
    return tuple(map(_described, handles()))


def _described(handle: pyopencl.Device) -> Device:
    platform = handle.platform
    title = " ".join(f"{handle.name.strip()} by {platform.name.strip()}".split())
    kind = "gpu" if handle.type & pyopencl.device_type.GPU else "cpu"
    return Device(
        title=title,
        arch=f"{kind}{handle.address_bits}",
        driver=f"{platform.version}; {handle.driver_version}",
        units=handle.max_compute_units,
        block_threads=handle.max_work_group_size,
        shared_bytes=handle.local_mem_size,
        vector_bits=128 if kind == "gpu" else 32 * handle.native_vector_width_float,
        features=tuple(sorted(handle.extensions.split())),
    )


# ------------------------------------------------------------------------- CUDA

CUDA_REMEDY: Final = "pip install 'tensorlang[cuda]' and NVIDIA's driver"


def cuda_problem() -> str:
    """Why no NVIDIA GPU is available here, as a clause; empty if one is."""
    if find_spec("pycuda") is None:
        return f"pycuda is not installed; it needs {CUDA_REMEDY}"
    try:
        count = len(cuda_devices())
    except Exception as reason:  # noqa: BLE001 - loaders raise what they like
        return f"no GPU: PyCUDA finds no driver ({reason}); it needs {CUDA_REMEDY}"
    return "" if count else "no GPU: NVIDIA's driver finds none"


@cache
def _cuda_driver() -> Any:
    """PyCUDA's driver module, initialized."""
    pycuda_driver.init()
    return pycuda_driver


def cuda_handle(index: int) -> driver.Device:
    """PyCUDA's device object."""
    return _cuda_driver().Device(index)


@cache
def cuda_devices() -> tuple[Device, ...]:
    """The properties of each GPU."""
    count = _cuda_driver().Device.count()
    return tuple(_cuda_described(cuda_handle(index)) for index in range(count))


def _cuda_described(handle: driver.Device) -> Device:
    driver = _cuda_driver()
    attributes, version = driver.device_attribute, driver.get_driver_version()
    return Device(
        title=handle.name(),
        arch="sm_{}{}".format(*handle.compute_capability()),
        driver=f"{version // 1000}.{version % 1000 // 10}",
        units=handle.get_attribute(attributes.MULTIPROCESSOR_COUNT),
        block_threads=handle.get_attribute(attributes.MAX_THREADS_PER_BLOCK),
        shared_bytes=handle.get_attribute(attributes.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        l2_bytes=handle.get_attribute(attributes.L2_CACHE_SIZE),
    )
