"""Instructions of NVIDIA Hopper, to which roles and barrier objects are lowered.

Each is executed for its effect, in an `Evaluate` of its own (`elect_one` is a
condition). A load among its arguments
stands for an address. They have no lane-wise semantics: these are given by the roles,
waits, copies and collective blocks they were lowered from, which the interpreter runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from tensorlang.errors import InterpreterError
from tensorlang.ir.dtypes import DType, boolean
from tensorlang.ir.natives import Intrinsic

# of the dimensions of arrays that bulk copies read: the rank in a name
RANKS: Final = {2: "", 3: "_3d", 4: "_4d", 5: "_5d"}
_BOX: Final = "by dimension where a box starts, extents of the array, and of the box"
# name -> number of arguments, what it does
_TABLE: Final = {
    "arrive": (1, "one arrival at a barrier object"),
    "arrive_expecting": (2, "one arrival; the phase also waits for so many bytes"),
    "barrier_fence": (0, "makes new barrier objects visible to all"),
    "barrier_init": (2, "a barrier object of so many arrivals"),
    **{
        f"bulk_copy{end}": (4 + 3 * rank, f"swizzle; object, to, from; {_BOX}")
        for rank, end in RANKS.items()
    },
    "bulk_commit": (0, "the stores so far are a group"),
    **{
        f"bulk_store{end}": (3 + 3 * rank, f"swizzle; from, to; {_BOX}")
        for rank, end in RANKS.items()
    },
    "bulk_wait": (0, "until all groups of the thread have read what they store"),
    "group_barrier": (2, "a barrier, by its number, of so many threads; both proxies"),
    "elect_one": (0, "whether it is the one thread that its warp elects"),
    "products_wait": (3, "until all but so many are over; columns, first sum"),
    "proxy_fence": (0, "products and bulk copies see what the thread wrote before"),
    "set_registers": (2, "registers of a thread, and whether these are more"),
    "wait_phase": (2, "until the phase of an object that has this parity is complete"),
    "warpgroup_product": (
        11,
        "columns, steps of 16 of k, first sum, tiles; adds, turned, panels, waits",
    ),
}


def _effect(name: str, arity: int, doc: str) -> Intrinsic:
    def nothing(dtypes: tuple[DType, ...]) -> DType:
        del dtypes
        return boolean

    return Intrinsic(name, arity, nothing, _refuse(name), doc, pure=False)


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object) -> NoReturn:
        del args
        raise InterpreterError(
            f"{name} is an instruction; run the function as it was before lowering"
        )

    return refuse


GPU_EFFECTS: Final = {name: _effect(name, *entry) for name, entry in _TABLE.items()}
