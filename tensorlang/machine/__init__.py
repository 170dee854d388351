"""What a CPU can do, in numbers: published by the system, refined by a probe.

`here()` describes this machine: as a probe measured it, or else as the system publishes
it, with figures that are usual for its architecture. It never measures. `load` reads a
description from a file, such as that of an emulated machine. Importing this package
loads neither NumPy nor LLVM.
"""

from __future__ import annotations

from tensorlang.machine.description import Cache, Instruction, Machine
from tensorlang.machine.store import edition, here, keep, kept, load, may_probe, of
from tensorlang.machine.system import published

__all__ = [
    "Cache",
    "Instruction",
    "Machine",
    "edition",
    "here",
    "keep",
    "kept",
    "load",
    "may_probe",
    "of",
    "published",
]
