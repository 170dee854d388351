"""What activations are told beside their arrays: defaults and checks."""

from __future__ import annotations

from typing import Any, Final

from tensorlang.errors import ArgumentError

SLOPE: Final = 0.01
BETA: Final = 1.0
THRESHOLD: Final = 20.0
_APPROXIMATIONS: Final = ("none", "tanh")


def number(id: str, name: str, value: Any) -> float:
    """The value as a float.

    Raises:
        ArgumentError: it is no number.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{id}: {name} is a number, not {value!r}") from None


def scaled(id: str, beta: Any, threshold: Any) -> tuple[float, float]:
    """The scalars of softplus.

    Raises:
        ArgumentError: one is no number, or beta is 0.
    """
    steepness = number(id, "beta", beta)
    if steepness == 0:
        raise ArgumentError(f"{id}: beta divides the result, and cannot be 0")
    return steepness, number(id, "threshold", threshold)


def approximation(id: str, approximate: Any) -> dict[str, Any]:
    """The attributes of gelu.

    Raises:
        ArgumentError: there is no such approximation.
    """
    if approximate not in _APPROXIMATIONS:
        raise ArgumentError(
            f"{id}: approximate is 'none' or 'tanh', not {approximate!r}"
        )
    return {"approximate": approximate}
