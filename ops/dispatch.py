"""`__tensorlang_op__`: arguments that take an operator's call over.

A graph tensor or a symbolic key has a method `__tensorlang_op__(op, args, kwargs)`, so
that one name serves arrays and graphs. It may return `NotImplemented` to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator

PROTOCOL: Final = "__tensorlang_op__"

# types known to have no such method; tuples are shapes, lists may hold tensors
_PLAIN: Final[set[type]] = {
    *(np.ndarray, int, float, bool, str, tuple, type(None)),
    *(np.int64, np.int32, np.float32, np.float64),
}
plain = _PLAIN.issuperset


def overloaded(op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the first argument that takes the call over returns, else NotImplemented.

    Raises:
        ArgumentError: arguments could take it over and all of them passed.
    """
    passed = None
    for value in _values((*args, *kwargs.values())):
        kind = type(value)
        handler = getattr(kind, PROTOCOL, None)
        if handler is None:
            if kind not in (list, dict):
                _PLAIN.add(kind)
            continue
        result = handler(value, op, args, dict(kwargs))
        if result is not NotImplemented:
            return result
        passed = kind
    if passed is not None:
        raise ArgumentError(f"{op.id} cannot be applied to a {passed.__name__}")
    return NotImplemented


def _values(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _values(value)
        else:
            yield value
