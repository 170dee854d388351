"""Indices that come as data: kernels check them, and this says which one was wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import DTypeError, KernelError

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch, Operator

INDICES = ("i32", "i64")


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A launch that says, where its kernel reports a fault, which index was wrong.

    Attributes:
        kernel: The launch.
        indices: What it is called with, by position.
        bound: The first number that is none: the extent of what is indexed.
        says: The operator's id, and what the indices are called.
    """

    kernel: Callable[..., Any]
    indices: int
    bound: int
    says: str

    def __call__(self, *args: Any) -> None:
        """Launch.

        Raises:
            KernelError: an index is out of range.
        """
        try:
            self.kernel(*args)
        except KernelError as error:
            from tensorlang.runtime.device_arrays import on_host  # noqa: PLC0415

            indices = on_host(args[self.indices])
            wrong = np.argwhere((indices < 0) | (indices >= self.bound))
            if not len(wrong):
                raise
            place = tuple(map(int, wrong[0]))
            made = KernelError(
                f"{self.says}: an index is {indices[place]}, and what it indexes has "
                f"{self.bound} rows, counted from 0 ({len(wrong)} are out of range)"
            )
            made.code = error.code
            raise made from None


def checked(op: Operator, launch: Launch, indices: int, bound: int) -> Launch:
    """The launch of a call with its indices, the argument at a position, explained."""
    kernel, arguments, result = launch
    return Checked(kernel, indices, bound, op.id), arguments, result


def index_type(id: str, kind: str) -> None:
    """Refuse indices of a type that is none.

    Raises:
        DTypeError: they are not i32 or i64.
    """
    if kind not in INDICES:
        raise DTypeError(
            f"{id}: indices are {' or '.join(INDICES)}, not {kind}; cast them"
        )
