"""Weights packed in the layout of an operator's inner loop."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen


@frozen(eq=False)
class PackedWeight:
    """A weight in the layout of an operator's inner loop.

    Attributes:
        operator: Id of the operator it is packed for.
        array: Strips of columns, `[ceil(out / 32), in, 32]`, or of bytes, groups of
            four for each of 16 columns, `[ceil(out / 16), ceil(in / 4), 64]`,
            zero-padded; read-only.
        shape: The logical shape, `(out, in)`.
        group: Adjacent inputs of a column that are stored together.
        packing: The columns, and the inputs of zeros that fill the last group.
    """

    operator: str
    array: np.ndarray
    shape: tuple[int, int]
    group: int = 1
    packing: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        columns, depth = self.shape
        object.__setattr__(self, "packing", (columns, -depth % self.group))

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.array.dtype

    def of(self, id: str) -> tuple[np.ndarray, tuple[int, int]]:
        """The strips and their packing, for an operator.

        Raises:
            ArgumentError: the weight is packed for another operator.
        """
        if id != self.operator:
            raise ArgumentError(f"{id}: this weight was packed for {self.operator}")
        return self.array, self.packing

    @property
    def not_an_array(self) -> str:
        """The error text of operators that take no packed weight."""
        return f"a weight packed for {self.operator}; pass w.unpack()"

    def unpack(self) -> np.ndarray:
        """A copy of the weight as `[out, in]`."""
        columns, depth = self.shape
        count, steps, width = self.array.shape
        shape = count, steps, width // self.group, self.group
        rows = self.array.reshape(shape).transpose(0, 2, 1, 3)
        rows = rows.reshape(shape[0] * shape[2], shape[1] * shape[3])
        return np.ascontiguousarray(rows[:columns, :depth])
