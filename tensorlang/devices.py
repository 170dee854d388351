"""The OpenCL devices of this machine, GPUs first, and its CUDA devices."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from typing import Final

from tensorlang import lazy, nvidia
from tensorlang.frozen import frozen

with lazy.modules(__name__):  # optional, and slow to import
    import pyopencl

REMEDY: Final = "pip install 'tensorlang[opencl]' and an OpenCL driver"


@frozen
class Device:
    """Properties of a device for a target."""

    title: str  # its name; with OpenCL, also its platform's
    arch: str  # with OpenCL, `gpu` or `cpu` and the address width; with CUDA, `sm_80`
    driver: str  # driver's version; with OpenCL, also the platform's
    units: int  # compute units, or multiprocessors
    block_threads: int  # maximum number of threads per block
    shared_bytes: int  # maximum (opt-in) shared memory per block
    vector_bits: int = 128  # width of one thread's widest access
    features: tuple[str, ...] = ()  # OpenCL's extensions
    l2_bytes: int = 0  # size of the L2 cache; 0 if unknown

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


def cuda_problem() -> str:
    """Why no NVIDIA GPU is available here, as a clause; empty if one is."""
    try:
        count = len(cuda_devices())
    except Exception as reason:  # noqa: BLE001 - libraries raise what they like
        return str(reason)
    return "" if count else "no GPU: NVIDIA's driver finds none"


@cache
def cuda_devices() -> tuple[Device, ...]:
    """The properties of each GPU; DeviceError if no library or driver shows GPUs."""
    return tuple(map(_cuda_described, nvidia.gpus()))


def _cuda_described(gpu: nvidia.Gpu) -> Device:
    major, minor, units, block_threads, shared_bytes, l2_bytes = gpu.attributes
    return Device(
        title=gpu.name,
        arch=f"sm_{major}{minor}",
        driver=f"{gpu.version // 1000}.{gpu.version % 1000 // 10}",
        units=units,
        block_threads=block_threads,
        shared_bytes=shared_bytes,
        l2_bytes=l2_bytes,
    )
