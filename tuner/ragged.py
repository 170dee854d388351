"""Small shapes in place of large ones, such as kernels get wrong: odd, 1, empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorlang.ops.tensors import Names
from tensorlang.workload import Workload

_RAGGED: Final = (5, 13, 37, 3, 7, 2, 11)
_LONG: Final = 2053  # past a vector, short of a chunk
_SMALLEST_LONG: Final = 1 << 14


def batches(workload: Workload, names: Names) -> Iterator[Workload]:
    """The workload with its symbolic sizes odd, 1 and 0, all others as they are."""
    symbols = dict.fromkeys(n for called in names for n in called if n is not None)
    if not symbols:
        return
    for small in (_RAGGED, (1,) * len(_RAGGED), (0,) * len(_RAGGED)):
        sizes = dict(zip(symbols, small, strict=False))
        shapes = (
            tuple(
                extent if name is None else min(sizes[name], extent)
                for extent, name in zip(shape, called, strict=True)
            )
            for shape, called in zip(workload.shapes, names, strict=True)
        )
        yield workload.with_shapes(*shapes)


def ragged(workload: Workload) -> Iterator[Workload]:
    """Small shapes like the workload's: odd, of one element, and empty."""
    longest = max((d for shape in workload.shapes for d in shape), default=0)
    for number in (0, 1, 2) if longest > 1 else (0,):
        extents: dict[int, int] = {}
        for shape in workload.shapes:
            for extent in shape:
                small = _RAGGED[len(extents) % len(_RAGGED)]
                long = _LONG if extent >= _SMALLEST_LONG else small
                chosen = (long, 1, 0)[number] if extent == longest else small
                extents.setdefault(extent, min(chosen, extent))
        yield workload.with_shapes(
            *(tuple(extents[extent] for extent in shape) for shape in workload.shapes)
        )
