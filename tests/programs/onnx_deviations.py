"""Where onnxruntime and tensorlang differ, and why neither is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np


def _is_an_end(numbers: Any) -> Any:
    """Where integers are the least or the largest of their type."""
    if numbers.dtype.kind not in "iu":
        return False
    ends = np.iinfo(numbers.dtype)
    return (numbers == ends.min) | (numbers == ends.max)


# an operator; whether numbers, ours and theirs, may differ by this; why they do
DEVIATIONS: Final[tuple[tuple[str, Callable[[Any, Any], Any], str], ...]] = (
    ("ReduceMean", lambda a, _: np.isnan(a), "the mean of nothing is undefined"),
    (
        "ConvTranspose",
        lambda a, b: np.isnan(a) & np.isfinite(b),
        "an infinite weight meets the zeros around the image, as in other convolutions",
    ),
    (
        "Pow",
        lambda a, _: (a.dtype.kind in "iu") & (a == 0),
        "the integer 0 has no negative powers",
    ),
    (
        "Pow",
        lambda _, b: _is_an_end(b),
        "powers beyond a type wrap, as NumPy's; there they are cast from doubles",
    ),
)


def understood(kinds: set[str], ours: Any, theirs: Any) -> str:
    """Why results of these operators may differ; empty where they may not.

    Args:
        kinds: The operators of a model.
        ours: Numbers that differ.
        theirs: What onnxruntime has instead.
    """
    for kind, is_this, why in DEVIATIONS:
        if (
            kind in kinds
            and ours.shape == theirs.shape
            and np.all(is_this(ours, theirs))
        ):
            return f"{kind}: {why}"
    return ""
