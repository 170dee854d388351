"""Tensor maps (CUDA driver API, `cuTensorMapEncodeTiled`): arrays and boxes of them.

They are the machine's own 128 bytes. Dimensions go from the innermost one outwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .faults import Fault

# CU_TENSOR_MAP_DATA_TYPE_...: bytes of an element
_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2}
_SWIZZLE_128 = 3  # CU_TENSOR_MAP_SWIZZLE_128B
_WORDS = 32
MOST = 5  # dimensions


@dataclass(frozen=True)
class TensorMap:
    """An array of `sizes` whose indices are `pitches` bytes apart, and a box of it."""

    start: int
    sizes: tuple[int, ...]
    pitches: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    kind: int

    @classmethod
    def of(cls, raw: np.ndarray) -> TensorMap:
        """The one of 128 bytes."""
        low, high, rank, *modes, _ = map(int, raw[:24].view(np.uint32))
        words = raw[24:].view(np.uint32).tolist()
        rows = [tuple(words[n * MOST : n * MOST + rank]) for n in range(3)]
        return cls(high << 32 | low, *rows, *modes)

    def to_bytes(self) -> bytes:
        """The 128 bytes."""
        words = np.zeros(_WORDS, np.uint32)
        rank = len(self.sizes)
        words[:3] = self.start & 0xFFFFFFFF, self.start >> 32, rank
        words[3:5] = self.swizzle, self.kind
        for n, row in enumerate((self.sizes, self.pitches, self.box)):
            words[6 + n * MOST : 6 + n * MOST + rank] = row
        return words.tobytes()

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return _BYTES[self.kind]

    @property
    def exchanges(self) -> bool:
        """Whether pieces of 16 bytes of a row of 128 are exchanged."""
        return self.swizzle == _SWIZZLE_128

    def elements(self, corner: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of a box, and which are in the array; the innermost index fastest.

        Raises:
            Fault: an instruction for another number of dimensions reads it.
        """
        if len(corner) != len(self.sizes):
            raise Fault(f"a tensor map of {len(self.sizes)} dimensions has {corner}")
        at, inside = np.full(1, self.start, np.int64), np.ones(1, bool)
        for first, size, pitch, wide in zip(
            corner, self.sizes, self.pitches, self.box, strict=True
        ):
            index = np.arange(first, first + wide)[:, None]
            at = (at + index * pitch).ravel()
            inside = (inside & (index >= 0) & (index < size)).ravel()
        return at.astype(np.uint64), inside
