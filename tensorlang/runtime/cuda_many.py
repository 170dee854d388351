"""One launch for many sets of arrays: the tables that tell blocks which set is whose.

A table is an argument of the kernel, by value: nothing is copied to the GPU before the
launch, nothing has to stay until its end, and a graph that is recorded has its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from tensorlang.runtime import cuda_driver, host_program
from tensorlang.runtime.calling import Slots
from tensorlang.runtime.cuda_sets import Set
from tensorlang.runtime.host_program import Data
from tensorlang.runtime.launcher_text import MOST_BLOCKS

_ADDRESS: Final = ctypes.c_uint64


@cache
def _table_of(most: int, arrays: int) -> type[ctypes.Structure]:
    """The struct that `templates/many.cu.j2` writes, for sets of so many arrays."""

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
        host: What the host runs of the kernel.
        handles: The kernels' handles by name.
        sets: Elements, and the address of each array in the order of the parameters.
        block: All arguments of a call, 8 bytes each; of these the numbers are taken.
        stream: Where.
    """
    many = host["many"]
    first = len(block) - 1 - len(host["scalars"])
    slots = [first + host["scalars"].index(name) for name in many["scalars"]]
    for table, blocks in tables(many, sets):
        size = (blocks, 1, 1, *many["block"], 0)
        given = arguments(table, block, slots)
        cuda_driver.call(
            "cuLaunchKernel", handles[many["name"]], *size, stream, given, None
        )


def tables(many: Data, sets: Sequence[Set]) -> Iterator[tuple[ctypes.Structure, int]]:
    """The tables of launches for all sets that have elements, and their blocks.

    Args:
        many: What `tensorlang.codegen.simt.many` says of the kernel.
        sets: Elements, and the address of each array in the order of the parameters.
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
    """The addresses of a launch's arguments: its table, then numbers of all sets.

    Args:
        table: The table.
        block: All arguments of a call, 8 bytes each.
        slots: Which of these the kernel is given, in order.
    """
    first = ctypes.addressof(block)
    places = [ctypes.addressof(table), *(first + 8 * slot for slot in slots)]
    return (ctypes.c_void_p * len(places))(*places)
