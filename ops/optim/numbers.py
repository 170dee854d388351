"""Hyper-parameters: Python numbers within their domains."""

from __future__ import annotations

import operator
from typing import Any, Final

from tensorlang.errors import ArgumentError

_MOST_STEPS: Final = 1 << 53  # whole numbers of f64


def positive(id: str, name: str, value: Any) -> float:
    """A finite number from 0 on, as a float.

    Raises:
        ArgumentError: it is none.
    """
    number = value if type(value) is float else _number(id, name, value)
    if not 0.0 <= number < float("inf"):
        raise ArgumentError(f"{id}: {name} is a number from 0 on, not {value!r}")
    return number


def share(id: str, name: str, value: Any) -> float:
    """A number from 0 to 1, 1 excluded, as a float.

    Raises:
        ArgumentError: it is none.
    """
    number = value if type(value) is float else _number(id, name, value)
    if not 0.0 <= number < 1.0:
        raise ArgumentError(
            f"{id}: {name} is from 0 to 1, and not 1 itself; {value!r} is not"
        )
    return number


def count(id: str, value: Any) -> int:
    """The number of a step, from 1 on.

    Raises:
        ArgumentError: it is none.
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 1:
        raise ArgumentError(
            f"{id}: step is the number of this step, counted from 1, not {value!r}"
        )
    if number > _MOST_STEPS:
        raise ArgumentError(f"{id}: step is larger than 2^53, the last one counted")
    return number


def with_momentum(id: str, momentum: Any, velocity: Any) -> tuple[float, Any]:
    """Momentum and the array that it needs, None where there is none.

    Raises:
        ArgumentError: it is no such number, or there is no velocity for it.
    """
    number = positive(id, "momentum", momentum)
    if number and velocity is None:
        raise ArgumentError(
            f"{id}: momentum {number} needs velocity, an array of zeros at first"
        )
    return number, velocity if number else None


def _number(id: str, name: str, value: Any) -> float:
    try:
        number = None if isinstance(value, (bool, str, bytes)) else float(value)
    except OverflowError:
        raise ArgumentError(f"{id}: {name} is larger than all floats") from None
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise ArgumentError(f"{id}: {name} is a number, not {value!r}")
    return number
