"""Hyperparameters: their domains and descriptions."""

from __future__ import annotations

import operator
import sys
from typing import Annotated, Any, Final, TypeAlias

from tensorlang.errors import ArgumentError
from tensorlang.ops.spec.signature import Domain

MEANINGS: Final = {
    "param": "Parameters: floats of any shape, contiguous and writable; or a list of "
    "such arrays, and then all other arrays are lists too.",
    "grad": "The gradient; read-only.",
    "m": "The first moment, zeros before step 1.",
    "v": "The second moment, zeros before step 1.",
    "max_v": "The running maximum of `v`, zeros before step 1; enables AMSGrad.",
    "velocity": "The momentum buffer, zeros before step 1.",
    "step": "The number of this step, counted from 1.",
    "lr": "The learning rate.",
    "momentum": "The momentum factor; requires `velocity` if it is not 0.",
    "beta1": "The decay rate of the first moment.",
    "beta2": "The decay rate of the second moment.",
    "eps": "Added to the square root of the bias-corrected second moment.",
    "weight_decay": "L2 penalty: this times `param` is added to the gradient.",
}
_MOST_STEPS: Final = 1 << 53  # f64 represents all integers up to here


def positive(id: str, name: str, value: object) -> float:
    """A finite number from 0 on, as a float; ArgumentError for anything else."""
    number = value if type(value) is float else _number(id, name, value)
    if not 0.0 <= number < float("inf"):
        raise ArgumentError(f"{id}: {name} is a number from 0 on, not {value!r}")
    return number


def share(id: str, name: str, value: object) -> float:
    """A number in [0, 1), as a float; ArgumentError if the value is not one."""
    number = value if type(value) is float else _number(id, name, value)
    if not 0.0 <= number < 1.0:
        raise ArgumentError(
            f"{id}: {name} is from 0 to 1, and not 1 itself; {value!r} is not"
        )
    return number


def count(id: str, name: str, value: Any) -> int:
    """The number of a step, counted from 1; ArgumentError if the value is not one."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 1:
        raise ArgumentError(
            f"{id}: {name} is the number of this step, counted from 1, not {value!r}"
        )
    if number > _MOST_STEPS:
        raise ArgumentError(f"{id}: {name} is larger than 2^53, the last one counted")
    return number


def with_momentum(id: str, momentum: float, velocity: object) -> object:
    """The velocity, or None if the momentum is 0.

    Raises:
        ArgumentError: the momentum is not 0, and there is no velocity.
    """
    if momentum and velocity is None:
        raise ArgumentError(
            f"{id}: momentum {momentum} needs velocity, an array of zeros at first"
        )
    return velocity if momentum else None


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


_LARGEST: Final = sys.float_info.max
Positive: TypeAlias = Annotated[
    float, Domain(float, f"0.0 <= {{}} <= {_LARGEST!r}", positive)
]
Part: TypeAlias = Annotated[float, Domain(float, "0.0 <= {} < 1.0", share)]
Count: TypeAlias = Annotated[int, Domain(int, f"1 <= {{}} <= {_MOST_STEPS}", count)]
