"""`Machine`: the rates, latencies, caches and memory of a CPU.

Sizes are in bytes, times in seconds, rates in operations or bytes per second. A fused
multiply-add counts as two operations. 0 means unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final, Self, TypeVar

from tensorlang.errors import RecordError
from tensorlang.frozen import frozen

FORMAT: Final = 1
KINDS: Final = ("fma", "dot", "matrix", "integer")
T = TypeVar("T")


@frozen
class Cache:
    """A level of data cache.

    `bytes` is its whole capacity, `ways` its associativity, `shared_by` the number of
    cores that share it. `bandwidth` is what one core loads from it.
    """

    level: int
    bytes: int
    line: int = 64
    ways: int = 0
    shared_by: int = 1
    bandwidth: float = 0.0

    @property
    def share(self) -> int:
        """Bytes for each core if all cores that share it use it."""
        return self.bytes // self.shared_by


@frozen
class Instruction:
    """An arithmetic instruction: its rate on one core, and its latency.

    `kind` is `fma`, `dot` (vector dot products, such as VNNI's), `matrix` (AMX) or
    `integer` (an addition, a rotation or an exclusive or: as many of each);
    `dtype` is the type of the factors.
    """

    kind: str
    dtype: str
    rate: float
    latency: float = 0.0


@frozen
class Machine:
    """A CPU in numbers.

    Attributes:
        name: The target's fingerprint, or the name of an emulated machine.
        device: The processor, as its vendor calls it.
        source: Where the numbers come from, if they are another machine's.
        cores: Physical cores that a kernel may use.
        threads_per_core: Hardware threads per core.
        clock: Cycles per second of one busy core.
        vector_bytes: Size of a vector register.
        vector_registers: Number of vector registers.
        general_registers: Number of registers for addresses and integers.
        instructions: Arithmetic instructions.
        caches: Data caches, the first level first.
        memory_bytes: Size of the memory.
        memory_bandwidth: What one core loads from memory.
        memory_bandwidth_all: What all cores together load from memory.
        wake: Time to start a sleeping worker of the thread pool and wait for it.
        scaling: Rate of FMA on all cores over that on one; less than `cores` if cores
            share arithmetic units.
        measured: Names of the numbers that were measured: a field's, an
            instruction's such as `fma f32`, or `L1` for a cache's bandwidth. All others
            are published, or usual for the architecture.
    """

    name: str
    device: str = "generic CPU"
    source: str = ""
    cores: int = 1
    threads_per_core: int = 1
    clock: float = 3e9
    vector_bytes: int = 32
    vector_registers: int = 16
    general_registers: int = 16
    instructions: tuple[Instruction, ...] = ()
    caches: tuple[Cache, ...] = ()
    memory_bytes: int = 0
    memory_bandwidth: float = 0.0
    memory_bandwidth_all: float = 0.0
    wake: float = 0.0
    scaling: float = 0.0
    measured: tuple[str, ...] = ()

    def instruction(self, kind: str, dtype: str) -> Instruction | None:
        """The instruction of a kind for a type, if the machine has it."""
        for known in self.instructions:
            if (known.kind, known.dtype) == (kind, dtype):
                return known
        return None

    def rate(self, kind: str, dtype: str) -> float:
        """Operations per second of an instruction on one core; 0 without it."""
        found = self.instruction(kind, dtype)
        return found.rate if found else 0.0

    def fma_rate(self, dtype: str = "f32") -> float:
        """Operations per second of FMA on one core; 0 if it has none for the type."""
        return self.rate("fma", dtype)

    @property
    def fma_latency(self) -> float:
        """Seconds from the start of an f32 FMA to that of one that needs its result."""
        found = self.instruction("fma", "f32")
        return found.latency if found else 0.0

    def cache(self, level: int) -> Cache | None:
        """The data cache of a level, if there is one."""
        return next((held for held in self.caches if held.level == level), None)

    def to_json(self) -> str:
        """The text that `from_json` reads."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The machine that a text describes.

        Raises:
            RecordError: it is no description of a machine; the message says why.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise RecordError(f"not JSON: {problem}") from None
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise RecordError(f"not a description of a machine in format {FORMAT}")
        made = _made(cls, data)
        for known in made.instructions:
            if known.kind not in KINDS:
                raise RecordError(f"{known.kind!r}: no kind of instruction in {KINDS}")
        if 0 in (made.cores, made.clock, made.vector_bytes, made.vector_registers):
            raise RecordError("cores, clock and vectors must be positive")
        if any(0 in (held.line, held.shared_by) for held in made.caches):
            raise RecordError("a cache's line and shared_by must be positive")
        return made


def _made(cls: type[T], data: object) -> T:
    """A value of a class from its fields, each of its declared type."""
    if not isinstance(data, Mapping):
        raise RecordError(f"{data!r} describes no {cls.__name__}")
    kinds = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(map(str, data)) - set(kinds)):
        raise RecordError(f"a {cls.__name__} has no {unknown[0]!r}")
    given = {name: _value(name, kinds[name], value) for name, value in data.items()}
    try:
        return cls(**given)
    except TypeError as problem:
        raise RecordError(f"{cls.__name__}: {problem}") from None


def _value(name: str, kind: str, value: Any) -> object:
    if kind == "str" and isinstance(value, str):
        return value
    if kind in ("int", "float") and type(value) in (int, float):
        whole = kind == "float" or isinstance(value, int)
        if whole and math.isfinite(value) and value >= 0:
            return value
    if kind.startswith("tuple") and isinstance(value, list):
        parts = {"instructions": Instruction, "caches": Cache}
        if name in parts:
            return tuple(_made(parts[name], part) for part in value)
        if all(isinstance(part, str) for part in value):
            return tuple(value)
    raise RecordError(f"{name} is {value!r}, not of type {kind}")
