"""Where onnxruntime and tensorlang differ, and why neither is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

# an operator; whether numbers, ours and theirs, may differ by this; why they do
DEVIATIONS: Final[tuple[tuple[str, Callable[[Any, Any], Any], str], ...]] = (
    ("ReduceMean", lambda a, _: np.isnan(a), "the mean of nothing is undefined"),
    (
        "Pow",
        lambda a, _: (a.dtype.kind in "iu") & (a == 0),
        "the integer 0 has no negative powers",
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
