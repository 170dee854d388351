"""Multi-tensor launches: tables that map blocks to sets of arrays.

A table is passed by value as a kernel argument: nothing is copied before the launch or
kept alive until its end, and a captured graph has its own copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from tensorlang.runtime import host_program
from tensorlang.runtime.calling import Slots
from tensorlang.runtime.cpu.launcher_text import MOST_BLOCKS
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda.sets import Set
from tensorlang.runtime.host_program import Data

_ADDRESS: Final = ctypes.c_uint64


@cache
def _table_of(most: int, arrays: int) -> type[ctypes.Structure]:
    """The struct in `templates/multi_tensor.cu.j2`: `most` sets of `arrays` arrays."""

    class Table(ctypes.Structure):
        _fields_ = [
            ("count", ctypes.c_int32),
            ("first", ctypes.c_int32 * most),
            ("lengths", ctypes.c_int64 * most),
            ("addresses", _ADDRESS * most * arrays),
        ]

    return Table


def start(
    host: Data,
    handles: Mapping[str, int],
    sets: Sequence[Set],
    block: Slots,
    stream: int,
) -> None:
    """Start the launches for many sets.

    Args:
        host: The kernel's host program.
        handles: Kernel handles by name.
        sets: Element count and the arrays' addresses, in parameter order.
        block: The argument block of a call (8-byte slots), for its scalars.
        stream: CUDA stream.
    """
    many = host["multi_tensor"]
    first = len(block) - 1 - len(host["scalars"])
    slots = [first + host["scalars"].index(name) for name in many["scalars"]]
    for table, blocks in tables(many, sets):
        size = (blocks, 1, 1, *many["block"], 0)
        given = arguments(table, block, slots)
        cuda_driver.call(
            "cuLaunchKernel", handles[many["name"]], *size, stream, given, None
        )


def tables(many: Data, sets: Sequence[Set]) -> Iterator[tuple[ctypes.Structure, int]]:
    """Tables that cover all non-empty sets, each with its number of blocks.

    Args:
        many: The multi-tensor kernel: `tensorlang.codegen.simt.multi_tensor`.
        sets: Element count and the arrays' addresses, in parameter order.
    """
    most, arrays = many["most"], many["buffers"]
    table, blocks = _table_of(most, len(arrays))(), 0
    for elements, addresses in sets:
        own = host_program.number(many["blocks"], {many["length"]: elements})
        if table.count == most or blocks + own > MOST_BLOCKS[0]:
            yield table, blocks
            table, blocks = _table_of(most, len(arrays))(), 0
        if own > 0:
            at = table.count
            table.first[at], table.lengths[at] = blocks, elements
            for place, array in enumerate(arrays):
                table.addresses[place][at] = addresses[array]
            table.count, blocks = at + 1, blocks + own
    if blocks:
        yield table, blocks


def arguments(
    table: ctypes.Structure, block: Slots, slots: Sequence[int]
) -> ctypes.Array[ctypes.c_void_p]:
    """Pointers to a launch's arguments: its table, then scalars shared by all sets.

    Args:
        block: The argument block of a call (8-byte slots).
        slots: Which slots the kernel takes, in order.
    """
    first = ctypes.addressof(block)
    places = [ctypes.addressof(table), *(first + 8 * slot for slot in slots)]
    return (ctypes.c_void_p * len(places))(*places)
