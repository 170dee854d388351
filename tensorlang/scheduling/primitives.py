"""The table of schedule primitives: pure functions from function to function.

A primitive takes the function first, then strings and numbers, and returns the new
function, or `(function, names)` where it made names that the caller goes on with:

    @primitive
    def split(func: Function, loop: str, factors: ...) -> tuple[Function, Names]: ...

`Schedule` methods, the printed trace and its replay all go through `PRIMITIVES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tensorlang.errors import ScheduleError

F = TypeVar("F", bound=Callable[..., Any])

PRIMITIVES: Final[dict[str, Callable[..., Any]]] = {}


def primitive(function: F) -> F:
    """Enter a primitive in the table under its own name."""
    name = function.__name__
    if name in PRIMITIVES:
        raise ScheduleError(f"two primitives are named {name!r}")
    PRIMITIVES[name] = function
    return function
