"""Where arrays have to begin, for a GPU that moves several numbers at once.

A CUDA device reads and writes 2, 4, 8 or 16 bytes at multiples of as many, and bulk
copies begin at multiples of 16. An index in the array is such a multiple wherever the
schedule made an access wide; where the array begins, its caller decides.
"""

from __future__ import annotations

from typing import Final

from tensorlang.codegen.hopper.effects import tensor_maps
from tensorlang.ir.nodes import AtomicUpdate, Buffer, Function, Load, Store
from tensorlang.ir.visit import walk

_MAPPED: Final = 16  # bytes: what tensor maps are encoded for


def alignments(function: Function) -> tuple[int, ...]:
    """The bytes that each parameter's address must be a multiple of.

    Args:
        function: A lowered one.
    """
    found = {buffer: buffer.dtype.bytes for buffer in function.buffers}

    def need(buffer: Buffer, size: int) -> None:
        if buffer in found:
            found[buffer] = max(found[buffer], size)

    for node in walk(function.body):
        if isinstance(node, Load):
            need(node.buffer, node.dtype.lanes * node.buffer.dtype.bytes)
        elif isinstance(node, (Store, AtomicUpdate)):
            need(node.buffer, node.value.dtype.lanes * node.buffer.dtype.bytes)
    for told in tensor_maps(function.body):
        need(told.buffer, _MAPPED)
    return tuple(found[buffer] for buffer in function.buffers)
