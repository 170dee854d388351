"""Memory planning: intermediate values share one block.

A value is live from the node that computes it to its last use. The largest values are
placed first, each at the lowest offset that is free during its live range (Pisarchyk
and Lee, "Efficient memory management for deep neural net inference", 2020, greedy by
size).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tensorlang.frozen import frozen

ALIGNED = 64  # bytes: a cache line, and a vector


@frozen
class Lifetime:
    """A value that needs memory, with its live range."""

    size: int  # in bytes
    first: int  # index of the node that computes it
    last: int  # index of the last node that uses it


def placed(lives: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The byte offset of each value, and the size of the block."""
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
    """The next aligned offset; small values only need the alignment of their size."""
    step = ALIGNED if size >= ALIGNED else gcd(size, ALIGNED)
    return -(-offset // step) * step
