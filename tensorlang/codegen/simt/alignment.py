"""Alignment that wide accesses and bulk copies require of parameters' addresses.

CUDA devices access 2, 4, 8 or 16 bytes at multiples of their size, and bulk copies
start at multiples of 16. Schedules guarantee the alignment of indices; the caller
determines that of the arrays.
"""

from __future__ import annotations

from typing import Final

from tensorlang.codegen.hopper.effects import tensor_maps
from tensorlang.ir.nodes import AtomicUpdate, Buffer, Function, Load, Store
from tensorlang.ir.visit import walk

_MAPPED: Final = 16  # bytes: alignment for tensor maps


def alignments(function: Function) -> tuple[int, ...]:
    """Required alignment of each parameter's address, in bytes."""
    found = {buffer: buffer.dtype.bytes for buffer in function.buffers}

    def need(buffer: Buffer, size: int) -> None:
        if buffer in found:
            found[buffer] = max(found[buffer], size)

    for node in walk(function.body):
        if isinstance(node, Load):
            need(node.buffer, node.dtype.lanes * node.buffer.dtype.bytes)
        elif isinstance(node, (Store, AtomicUpdate)):
            need(node.buffer, node.value.dtype.lanes * node.buffer.dtype.bytes)
    for tensor_map in tensor_maps(function.body):
        need(tensor_map.buffer, _MAPPED)
    return tuple(found[buffer] for buffer in function.buffers)
