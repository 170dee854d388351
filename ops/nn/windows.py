"""Sliding windows: size, stride, dilation, padding, and the output size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from reprlib import repr as brief
from typing import Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.ops.calls.tensors import MOST_ELEMENTS

LAYOUTS: Final[Mapping[int, tuple[str, str]]] = {
    0: ("NC", "NC"),
    1: ("NCW", "NWC"),
    2: ("NCHW", "NHWC"),
    3: ("NCDHW", "NDHWC"),
}


@frozen
class Windows:
    """Windows along each dimension of an image."""

    size: tuple[int, ...]  # elements of a window
    stride: tuple[int, ...]  # step from one window to the next
    dilation: tuple[int, ...]  # step from one element of a window to the next
    # padding before and after the image: low, high, low, high, ...
    padding: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """The dilated window size: pixels from its first to its last element."""
        return tuple(
            (size - 1) * step + 1
            for size, step in zip(self.size, self.dilation, strict=True)
        )

    def outputs(self, id: str, image: Sequence[int]) -> tuple[int, ...]:
        """The number of windows along each dimension.

        Raises:
            ShapeError: a window is larger than the padded image, or the padded image
                is too large.
        """
        padded = tuple(
            extent + low + high
            for extent, low, high in zip(
                image, self.padding[::2], self.padding[1::2], strict=True
            )
        )
        if any(have < need for have, need in zip(padded, self.reach, strict=True)):
            raise ShapeError(
                f"{id}: a window that reaches over {self.reach} does not fit into an "
                f"image of {tuple(image)}, padded {padded}; pad more"
            )
        if math.prod(padded) > MOST_ELEMENTS:
            raise ShapeError(
                f"{id}: an image of {tuple(image)}, padded {padded}, has more than "
                "2**48 elements; pad less"
            )
        return tuple(
            (have - need) // step + 1
            for have, need, step in zip(padded, self.reach, self.stride, strict=True)
        )


def within(made: Windows, image: Sequence[int]) -> Windows:
    """The same windows, with strides clipped to the shortest that leaves the image."""
    ends = zip(made.padding[::2], made.padding[1::2], strict=True)
    room = (
        extent + low + high - need + 1
        for extent, (low, high), need in zip(image, ends, made.reach, strict=True)
    )
    stride = tuple(
        min(step, max(most, 1)) for step, most in zip(made.stride, room, strict=True)
    )
    return replace(made, stride=stride)


def windows(id: str, size: Sequence[int], asked: Mapping[str, object]) -> Windows:
    """Windows of this size with the attributes stride, dilation and padding.

    Raises:
        ArgumentError: an attribute is out of its domain.
    """
    rank = len(size)
    stride = several(id, "stride", asked.get("stride", 1), rank)
    dilation = several(id, "dilation", asked.get("dilation", 1), rank)
    made = Windows(tuple(size), stride, dilation, (0,) * (2 * rank))
    padding = _padding(id, asked.get("padding", 0), made)
    return Windows(tuple(size), stride, dilation, padding)


def several(
    id: str, what: str, value: Any, rank: int, *, least: int = 1
) -> tuple[int, ...]:
    """One integer per dimension, from a single one or a sequence of one or all.

    Raises:
        ArgumentError: neither of these, or a number is below `least`.
    """
    given = _each(value, rank)
    if len(given) != rank or not all(_whole(n) and n >= least for n in given):
        raise ArgumentError(
            f"{id}: {what} is a whole number from {least}, or {rank} of them, "
            f"not {brief(value)}"
        )
    return tuple(map(int, given))


def _each(value: Any, rank: int) -> tuple[Any, ...]:
    """One value per dimension; a sequence of several is returned as it is."""
    given = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return given * rank if len(given) == 1 else given


def _whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _padding(id: str, value: Any, made: Windows) -> tuple[int, ...]:
    """Low and high padding of each dimension, flattened."""
    rank = len(made.size)
    if value == "valid":
        return (0,) * (2 * rank)
    if value == "same":
        return _same(id, made)
    given = _each(value, rank)
    if len(given) == rank:
        pairs = [n if isinstance(n, (list, tuple)) else (n, n) for n in given]
        given = tuple(n for pair in pairs for n in pair)
    if len(given) != 2 * rank or not all(_whole(n) and n >= 0 for n in given):
        raise ArgumentError(
            f"{id}: padding is a whole number from 0, {rank} of them or of pairs "
            f"(low, high), 'same' or 'valid', not {value!r}"
        )
    return tuple(map(int, given))


def _same(id: str, made: Windows) -> tuple[int, ...]:
    """Padding that keeps the size; if odd, the extra element is at the end."""
    if set(made.stride) - {1}:
        raise ArgumentError(
            f"{id}: padding 'same' is for stride 1, not {made.stride}; give numbers"
        )
    found: list[int] = []
    for reach in made.reach:
        found += [(reach - 1) // 2, reach // 2]
    return tuple(found)


def channels_first(id: str, layout: object, rank: int) -> bool:
    """Whether channels come first; ArgumentError if it is no layout of this rank."""
    first, last = LAYOUTS[rank]
    if layout not in (first, last):
        raise ArgumentError(f"{id}: layout is {first!r} or {last!r}, not {layout!r}")
    return bool(layout == first)
