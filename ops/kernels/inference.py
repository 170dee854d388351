"""Shape and type inference: the result of a call, without building or running a kernel.

A call with `target=NOWHERE` runs all checks and shape rules of the operator, but no
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tensorlang.errors import ShapeError
from tensorlang.ops.calls.dispatch import NOWHERE
from tensorlang.ops.calls.tensors import MOST_DIMENSIONS
from tensorlang.ops.operator import Operator

_ZERO: Final = np.zeros(64, np.uint8)


def abstract(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array of a shape and type, without memory: a broadcast zero."""
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(f"an array of {len(shape)} dimensions has more than 64")
    return np.broadcast_to(_ZERO.view(dtype)[0], tuple(shape))


def results(op: Operator, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    """The result of `op(*args, **kwargs)`, with undefined elements.

    Args:
        args: As for the call; arrays may be `abstract`, keys must be fresh.
        kwargs: Likewise.

    Raises:
        ShapeError, DTypeError, ArgumentError: as the call would.
    """
    return op.prepare(*args, **{**kwargs, "target": NOWHERE})[2]
