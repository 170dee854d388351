"""What is computed once, whatever number of threads asks first.

`functools.cached_property` has no lock from Python 3.12 on, and `functools.cache` never
had one: several threads may each compute a result, and the last one stays. Of a device,
or of loaded machine code, whose addresses others use meanwhile, there must be one.
"""

from __future__ import annotations

import functools
from _thread import RLock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])


def cache(function: Made) -> Made:
    """`functools.cache`, computed by one thread while others wait."""
    found, computing = functools.cache(function), RLock()

    @functools.wraps(function)
    def once(*args: Any) -> Any:
        with computing:
            return found(*args)

    once.cache_clear = found.cache_clear  # type: ignore[attr-defined]
    return once  # type: ignore[return-value]


if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: PLC0414 - export
else:

    class cached_property(functools.cached_property):  # noqa: N801 - as in functools
        """`functools.cached_property`, computed by one thread while others wait."""

        def __init__(self, func: Callable[[Any], Any]) -> None:
            super().__init__(func)
            self._computing = RLock()

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            with self._computing:
                return super().__get__(instance, owner)
