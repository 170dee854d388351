"""Targets: the devices that kernels are built for, as values found by name.

`get("llvm")` is this machine's CPU through LLVM, and `host()` the same.
`get("opencl:1")` is an OpenCL device, and `get("cuda:sm_90a")` an architecture to
compile for, whether or not such a GPU is present. A target has the limits that
schedules need (vector width and registers, caches, threads), and a `fingerprint` under
which records are filed: readable, and the same on every machine of one kind,
independent of the number of cores available.

    amd-zen5-m2-avx512-bf16-l1_48k-l2_1m-l3_32m
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import replace
from functools import cache
from typing import Final

from tensorlang import devices, hardware
from tensorlang.errors import TargetError
from tensorlang.frozen import frozen

KINDS: Final = ("llvm", "opencl", "cuda")
THREADS_VARIABLE: Final = "TENSORLANG_THREADS"
TARGET_VARIABLE: Final = "TENSORLANG_TARGET"

# architecture -> maximum bytes of shared memory per block
ARCHITECTURES: Final = {"sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_100": 227 << 10}
USUAL_ARCHITECTURE: Final = "sm_90a"
# architecture -> the same with all instructions, if different
_SPECIFIC: Final = {"sm_90": "sm_90a"}
# collective instructions of a warp (tensorlang.ir.collectives), from sm_80 on
_AMPERE: Final = ("cp_async", "ldmatrix", "mma", "shuffle")
# architecture -> its features
CUDA_FEATURES: Final = {
    "sm_80": _AMPERE,
    "sm_90a": (*_AMPERE, "tma", "wgmma"),
    "sm_100": (*_AMPERE, "tma"),
}
# a GPU thread's widest access and maximum number of registers
_GPU: Final = {
    "vector_bits": 128,
    "vector_registers": 255,
    "cache_line": 128,
    "l1_bytes": 0,
    "l2_bytes": 0,
    "l3_bytes": 0,
}
# the widest instruction set present -> (vector bits, vector registers)
_VECTORS: Final = {
    "avx512": (512, 32),
    "avx2": (256, 16),
    "avx": (256, 16),
    "sse2": (128, 16),
    "neon": (128, 32),
}


# ability used in code generation -> CPU features that each imply it
_ABILITIES: Final[dict[str, tuple[str, ...]]] = {
    "fma": ("fma", "asimd"),
    "f16 conversions": ("f16c", "asimd"),
    "f16 arithmetic": ("avx512_fp16", "asimdhp"),
    "weakly ordered streaming stores": ("sse2",),
}


@frozen
class Target:
    """A device that kernels are built for, with the properties that schedules use.

    Sizes are in bytes, vector widths in bits. `cpu` names vendor and architecture,
    `features` the instruction sets by the names LLVM and Linux agree on, or for a GPU
    the capabilities of its warps (`CUDA_FEATURES`). `threads` is the number of threads
    per kernel: for a GPU, its multiprocessors, with up to `block_threads` threads and
    `shared_bytes` of shared memory per block. `index` is -1 for a GPU that is only
    compiled for.
    """

    kind: str = "llvm"
    device: str = "generic CPU"
    arch: str = "x86_64"
    cpu: str = "generic"
    features: tuple[str, ...] = ()
    threads: int = 1
    vector_bits: int = 256
    vector_registers: int = 16
    cache_line: int = 64
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    index: int = 0
    block_threads: int = 0
    shared_bytes: int = 0
    driver: str = ""

    @property
    def name(self) -> str:
        """Its name for `get`: `llvm`, `cuda`, `cuda:1`, `cuda:sm_90a`."""
        if self.index < 0:
            return f"{self.kind}:{self.arch}"
        return f"{self.kind}:{self.index}" if self.index else self.kind

    @property
    def fingerprint(self) -> str:
        """The kind of machine: processor, instruction sets, caches; not its threads."""
        sizes = zip(
            ("l1", "l2", "l3"),
            (self.l1_bytes, self.l2_bytes, self.l3_bytes),
            strict=True,
        )
        caches = [f"{level}_{_size(size)}" for level, size in sizes if size]
        return "-".join([self.cpu, *hardware.vector_tags(self.features), *caches])

    @property
    def model(self) -> str:
        """The execution model that schedules are written for: `cpu` or `simt`.

        A CPU has the same loops and vectors with OpenCL as with LLVM.
        """
        on_cpu = self.kind == "llvm" or self.arch.startswith("cpu")
        return "cpu" if on_cpu else "simt"

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits per vector register."""
        return max(1, self.vector_bits // bits)

    def has(self, ability: str) -> bool:
        """Whether a CPU has one of `_ABILITIES`: `fma`, `f16 conversions`, ..."""
        return any(feature in self.features for feature in _ABILITIES[ability])

    def with_threads(self, threads: int) -> Target:
        """The same device, using at most `threads` threads per kernel."""
        return replace(self, threads=_positive(threads, "threads"))

    def __str__(self) -> str:
        if self.index < 0:
            return f"{self.name} ({self.device})"
        return f"{self.name} ({self.device}, {self.threads} threads)"


def get(spec: str | Target | None = None) -> Target:
    """The target of a name such as `"llvm"` or `"cuda:1"`; a `Target` is itself.

    The default is the one named by `TENSORLANG_TARGET`, else this CPU.

    Raises:
        TargetError: the name is unknown, or the device is not on this machine; the
            message says which targets are known, or how to get this one.
    """
    if isinstance(spec, Target):
        return spec
    spec = (os.environ.get(TARGET_VARIABLE) or "llvm") if spec is None else spec
    if spec == "llvm":
        return host()
    kind, colon, number = str(spec).partition(":")
    if kind == "cuda" and number in ARCHITECTURES:
        return _architecture(number)
    if kind not in KINDS or (colon and not re.fullmatch("[0-9]{1,9}", number)):
        codes = (f"cuda:{arch}" for arch in ARCHITECTURES)
        known = ", ".join(map(repr, (*KINDS, *codes)))
        raise TargetError(f"{spec!r} is no target; the known ones are {known}")
    if kind == "llvm":
        raise TargetError(f"{spec!r}: there is one CPU target, named 'llvm'")
    if kind == "opencl" and not devices.problem():
        return _opencl(int(number or 0))
    if kind == "cuda" and not devices.cuda_problem():
        return _cuda(int(number or 0))
    raise TargetError(missing(kind, str(spec)))


def to_compile(spec: str | Target | None) -> Target:
    """Like `get`; for a GPU that is not present, the architecture to compile for.

    Raises:
        TargetError: the name is unknown.
    """
    absent = spec == "cuda" and bool(devices.cuda_problem())
    return _architecture(USUAL_ARCHITECTURE) if absent else get(spec)


def missing(kind: str, spec: str = "") -> str:
    """Why a kind of target is unavailable, and how to get it, as a sentence."""
    if kind == "opencl":
        return f"target {spec or kind!r} is not present: {devices.problem()}"
    architectures = ", ".join(f"cuda:{arch}" for arch in ARCHITECTURES)
    return (
        f"target {spec or kind!r} is not present: {devices.cuda_problem()}; without "
        f"one there is code for {architectures}"
    )


def availability() -> dict[str, str]:
    """Every kind of target: an empty string if usable, else why it is not."""
    absent = {"opencl": devices.problem(), "cuda": devices.cuda_problem()}
    return {kind: missing(kind) if absent.get(kind) else "" for kind in KINDS}


@cache
def _opencl(index: int) -> Target:
    found = devices.devices()
    if index >= len(found):
        raise TargetError(
            f"target 'opencl:{index}' is not present: this machine has "
            f"{len(found)} OpenCL devices, numbered from 0"
        )
    device = found[index]
    if not device.arch.startswith("cpu"):
        return _present("opencl", index, device, device.features, **_GPU)
    limits = {name: getattr(host(), name) for name in _GPU}
    return _present("opencl", index, device, device.features, **limits)


@cache
def _cuda(index: int) -> Target:
    found = devices.cuda_devices()
    if index >= len(found):
        raise TargetError(
            f"target 'cuda:{index}' is not present: this machine has {len(found)} "
            "GPUs of NVIDIA, numbered from 0"
        )
    device = found[index]
    is_ampere = int(device.arch.removeprefix("sm_")) >= 80
    device = replace(device, arch=_SPECIFIC.get(device.arch, device.arch))
    features = CUDA_FEATURES.get(device.arch, _AMPERE if is_ampere else ())
    limits = _GPU | {"l2_bytes": device.l2_bytes}
    return _present("cuda", index, device, features, **limits)


def _present(
    kind: str,
    index: int,
    device: devices.Device,
    features: tuple[str, ...],
    **limits: int,
) -> Target:
    """The target of a device of this machine."""
    return Target(
        kind=kind,
        device=device.title,
        arch=device.arch,
        cpu=device.slug,
        features=features,
        threads=device.units,
        index=index,
        block_threads=device.block_threads,
        shared_bytes=device.shared_bytes,
        driver=device.driver,
        **{**limits, "vector_bits": device.vector_bits},
    )


def _architecture(arch: str) -> Target:
    return Target(
        kind="cuda",
        device=f"any GPU of {arch}, to compile for",
        arch=arch,
        cpu=arch,
        features=CUDA_FEATURES[arch],
        index=-1,
        block_threads=1024,
        shared_bytes=ARCHITECTURES[arch],
        **_GPU,  # type: ignore[arg-type]
    )


def host() -> Target:
    """This machine's CPU, with `TENSORLANG_THREADS` threads or one per core.

    Raises:
        TargetError: `TENSORLANG_THREADS` is not a positive number.
    """
    asked = os.environ.get(THREADS_VARIABLE)
    return _host(asked or None)


@cache
def _host(asked: str | None) -> Target:
    cpu = hardware.processor()
    bits, registers = next(
        (limits for tag, limits in _VECTORS.items() if tag in cpu.levels), (128, 16)
    )
    caches = hardware.caches()
    return Target(
        device=cpu.device,
        arch=platform.machine() or "unknown",
        cpu=cpu.name,
        features=cpu.features,
        threads=_positive(asked, THREADS_VARIABLE) if asked else hardware.cores(),
        vector_bits=bits,
        vector_registers=registers,
        l1_bytes=caches.get(1, 0),
        l2_bytes=caches.get(2, 0),
        l3_bytes=caches.get(3, 0),
    )


def _positive(value: object, what: str) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= hardware.MAX_THREADS:
        raise TargetError(
            f"{what} is {value!r}; it must be a whole number "
            f"from 1 to {hardware.MAX_THREADS}"
        )
    return number


def _size(size: int) -> str:
    """Bytes in a power-of-two unit: 48k, 1m, 36m."""
    return f"{size >> 20}m" if size % (1 << 20) == 0 else f"{size >> 10}k"
