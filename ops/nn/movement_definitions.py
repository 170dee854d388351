"""Moving elements, as loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorlang.ir import compute

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr


def copy(x: Tensor) -> Tensor:
    """The same array."""
    made: Tensor = compute(x.shape, lambda *i: x[i], "y")
    return made


def transpose(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """Dimension n of the result is dimension `axes[n]` of x."""

    def element(*i: Any) -> Expr:
        place = dict(zip(axes, i, strict=True))
        return x[tuple(place[axis] for axis in range(len(axes)))]

    made: Tensor = compute([x.shape[axis] for axis in axes], element, "y")
    return made
