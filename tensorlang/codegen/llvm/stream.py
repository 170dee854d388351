"""Stores around the caches: they need whole aligned vectors.

Where alignment is not known, the addresses of a run of such stores are tested at once,
and plain stores stand by. The test comes to the base pointers wherever the indices step
by whole vectors, so LLVM lifts it out of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import memory
from tensorlang.codegen.llvm.arithmetic import compare
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import llvm_type
from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.nodes import Store

_LINE = 64


@dataclass
class _Vector:
    """One store, ready to be written."""

    dtype: DType
    text: str
    pointer: str
    align: int

    @property
    def size(self) -> int:
        """The alignment in bytes that going around the caches needs."""
        return min(self.dtype.bytes * self.dtype.lanes, _LINE)

    def emit(self, builder: Builder, *, around: bool) -> None:
        """The store itself."""
        align = self.size if around else self.align
        kind = llvm_type(self.dtype)
        builder.emit(ins.Store(kind, self.text, self.pointer, align, around))


def store_all(builder: Builder, stmts: Sequence[Store], value: memory.Value) -> None:
    """A run of nontemporal stores of whole vectors.

    Vectors that are not contiguous, or whose size is no power of two, go as they may.
    """
    ready: list[_Vector] = []
    for stmt in stmts:
        lanes = stmt.value.dtype.lanes
        if lanes & (lanes - 1) or not memory.contiguous(stmt.indices[0]):
            memory.store(builder, stmt, value)
            continue
        text, dtype = memory.stored(builder, stmt, value)
        pointer = memory.address(builder, stmt, value)
        align = memory.alignment(builder, stmt)
        ready.append(_Vector(dtype, text, pointer, align))
    if ready:
        _write(builder, ready)


def _write(builder: Builder, ready: Sequence[_Vector]) -> None:
    builder.streams = True
    unsure = [vector for vector in ready if vector.align < vector.size]
    if not unsure:
        for vector in ready:
            vector.emit(builder, around=True)
        return
    labels = [builder.label(hint) for hint in ("around", "through", "stored")]
    builder.emit(ins.Branch(_aligned(builder, unsure), labels[0], labels[1]))
    for label, around in zip(labels, (True, False), strict=False):
        builder.start(label)
        for vector in ready:
            vector.emit(builder, around=around)
        builder.emit(ins.Jump(labels[2]))
    builder.start(labels[2])


def _aligned(builder: Builder, unsure: Sequence[_Vector]) -> str:
    """Whether the low bits of all addresses are clear."""
    bits = ""
    for vector in unsure:
        number = builder.emit(
            ins.Cast(builder.name(), "ptrtoint", "ptr", vector.pointer, "i64")
        )
        mask = str(vector.size - 1)
        low = builder.emit(ins.Binary(builder.name(), "and", "i64", number, mask))
        if bits:
            low = builder.emit(ins.Binary(builder.name(), "or", "i64", bits, low))
        bits = low
    return compare(builder, "eq", i64, bits, "0")
