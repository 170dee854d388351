"""The processors that a library is exported for.

Several levels of x86-64 go into one library, which chooses by the processor that it is
loaded on. Levels are those of the psABI, `x86-64-v2` to `x86-64-v4`.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tensorlang import targets
from tensorlang.errors import TargetError
from tensorlang.frozen import frozen
from tensorlang.hardware import MAX_THREADS
from tensorlang.runtime.cpu import llvm
from tensorlang.targets import Target

NATIVE: Final = "native"
GENERIC: Final = "generic"
_V2: Final = ("sse2", "ssse3", "sse4_1", "sse4_2", "popcnt")
_V3: Final = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma")
_V4: Final = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# level -> features by Linux's names, vector bits, vector registers; best first
_LEVELS: Final = {
    "x86-64-v4": (_V4, 512, 32),
    "x86-64-v3": (_V3, 256, 16),
    "x86-64-v2": (_V2, 128, 16),
}
_ARM: Final = (("asimd", "fp"), 128, 32)
# Linux's name of a feature -> that of `__builtin_cpu_supports`
_TESTS: Final = {
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "bmi2": "bmi2",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "gfni": "gfni",
    "vpclmulqdq": "vpclmulqdq",
}
_X86: Final = ("x86_64", "AMD64")


@frozen
class Machine:
    """A processor to export for.

    Attributes:
        name: `native`, a level of x86-64, or LLVM's name of a processor.
        triple: LLVM's name of the system; empty for this one.
        cpu: LLVM's name of the processor.
        features: LLVM's list of features; empty for those of `cpu`.
        target: What schedules know of it.
        tests: Features to test for when the library is loaded.
    """

    name: str
    triple: str
    cpu: str
    features: str
    target: Target
    tests: tuple[str, ...]

    @property
    def is_host(self) -> bool:
        """Whether it is this very processor."""
        return self.name == NATIVE

    def compile(self, text: str) -> bytes:
        """Object code of a module.

        Raises:
            CodegenError: LLVM rejects it.
        """
        if self.is_host:
            return llvm.compile_module(text)
        return llvm.compile_for(text, self.triple, self.cpu, features=self.features)


def machines(
    cpus: Sequence[str] = (), triple: str = "", threads: int = 0
) -> tuple[Machine, ...]:
    """The machines of these names, best first.

    Args:
        cpus: `native`, or levels of x86-64, or one processor by LLVM's name. Default:
            this processor, or any of another architecture.
        triple: LLVM's and GCC's name of another system, such as `aarch64-linux-gnu`.
        threads: The most threads that schedules plan for; by default this machine's.

    Raises:
        TargetError: a name is unknown, or levels are mixed with others.
    """
    names = tuple(dict.fromkeys(cpus)) or ((GENERIC,) if triple else (NATIVE,))
    arch = triple.partition("-")[0] or platform.machine()
    if not re.fullmatch(r"[\w.-]*", triple):
        raise TargetError(f"{triple!r} is no system such as aarch64-linux-gnu")
    if len(names) > 1 and not set(names) <= _LEVELS.keys():
        raise TargetError(
            f"one library has code for several of {', '.join(_LEVELS)}, or for one "
            f"processor, not for {', '.join(names)}"
        )
    count = threads or targets.host().threads
    if not 1 <= count <= MAX_THREADS:
        raise TargetError(
            f"{threads} threads: give from 1 to {MAX_THREADS}, or 0 for this machine's"
        )
    ordered = sorted(names, key=[*_LEVELS, *names].index)
    return tuple(_machine(name, triple, arch, count) for name in ordered)


def _machine(name: str, triple: str, arch: str, threads: int) -> Machine:
    if name == NATIVE and not triple:
        host = targets.host().with_threads(threads)
        # a process has to ask Linux for tiles, which a library does not
        untiled = tuple(f for f in host.features if not f.startswith("amx"))
        host = replace(host, features=untiled)
        tests = tuple(t for f, t in _TESTS.items() if f in host.features)
        return Machine(NATIVE, "", "", "", host, tests if arch in _X86 else ())
    if name in _LEVELS and arch in _X86:
        found, tuning = _LEVELS[name], "-prefer-256-bit"
        tests = tuple(t for f, t in _TESTS.items() if f in found[0])
    elif arch == "aarch64" and name not in _LEVELS and name != NATIVE:
        found, tuning, tests = _ARM, "", ()
    else:
        raise TargetError(
            f"there is no export for {name} on {arch}: give one or several of "
            f"{', '.join(_LEVELS)} on x86_64, or a processor by LLVM's name on aarch64"
        )
    features, bits, registers = found
    any_of = Target(device=f"any {name} of {arch}", arch=arch, cpu=name)
    target = replace(
        any_of,
        features=features,
        threads=threads,
        vector_bits=bits,
        vector_registers=registers,
    )
    system = triple or f"{arch}-linux-gnu"
    return Machine(name, system, name, tuning, target, tests)
