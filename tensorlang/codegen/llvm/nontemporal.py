"""Nontemporal stores, which require aligned vectors.

Where alignment is unknown, the addresses of consecutive stores are tested together,
with plain stores as fallback. If the indices are multiples of the vector size, the test
depends on base pointers only, and LLVM hoists it out of the loop.
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
    """A store, ready to be emitted."""

    dtype: DType
    text: str
    pointer: str
    align: int

    @property
    def size(self) -> int:
        """Alignment in bytes that a nontemporal store requires."""
        return min(self.dtype.bytes * self.dtype.lanes, _LINE)

    def emit(self, builder: Builder, *, around: bool) -> None:
        """Emit the store, nontemporal if `around`."""
        align = self.size if around else self.align
        kind = llvm_type(self.dtype)
        builder.emit(ins.store(kind, self.text, self.pointer, align, around))


def store_all(builder: Builder, stmts: Sequence[Store], value: memory.Value) -> None:
    """Emit consecutive nontemporal vector stores.

    Those not contiguous, or not of a power of two lanes, become plain stores.
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
    builder.emit(ins.branch(_aligned(builder, unsure), labels[0], labels[1]))
    for label, around in zip(labels, (True, False), strict=False):
        builder.start(label)
        for vector in ready:
            vector.emit(builder, around=around)
        builder.emit(ins.jump(labels[2]))
    builder.start(labels[2])


def _aligned(builder: Builder, unsure: Sequence[_Vector]) -> str:
    """Whether all addresses are aligned: their low bits are clear."""
    bits = ""
    for vector in unsure:
        number = builder.emit(
            ins.cast(builder.name(), "ptrtoint", "ptr", vector.pointer, "i64")
        )
        mask = str(vector.size - 1)
        low = builder.emit(ins.binary(builder.name(), "and", "i64", number, mask))
        if bits:
            low = builder.emit(ins.binary(builder.name(), "or", "i64", bits, low))
        bits = low
    return compare(builder, "eq", i64, bits, "0")
