"""Memory for what a program computes on the way: one block, parts used again and again.

A value lives from the node that makes it to the last one that needs it. The largest
values are placed first, each as low as nothing that lives at the same time is in the
way (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
2020, greedy by size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

ALIGNED = 64  # bytes: a cache line, and a vector


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value that needs memory.

    Attributes:
        size: In bytes.
        first: The number of the node that makes it.
        last: The number of the last node that needs it.
    """

    size: int
    first: int
    last: int


def placed(lives: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Where each value goes, in bytes from the start, and the bytes of the block."""
    offsets = [0] * len(lives)
    done: list[int] = []
    end = 0
    for at in sorted(range(len(lives)), key=lambda n: -lives[n].size):
        life = lives[at]
        beside = sorted(
            (offsets[n], offsets[n] + lives[n].size)
            for n in done
            if lives[n].first <= life.last and life.first <= lives[n].last
        )
        offset = 0
        for low, high in beside:
            if low - offset >= life.size:
                break
            offset = max(offset, _aligned(high, life.size))
        offsets[at] = offset
        end = max(end, offset + life.size)
        done.append(at)
    return offsets, end


def _aligned(offset: int, size: int) -> int:
    """The next place for so many bytes: few elements need their own alignment only."""
    step = ALIGNED if size >= ALIGNED else gcd(size, ALIGNED)
    return -(-offset // step) * step
