"""Operations on Python's integers, and arrays of integers, by their names in the IR.

`floordiv` and `floormod` by 0 raise; shifts are for amounts from 0 to below the width.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
INTEGERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
