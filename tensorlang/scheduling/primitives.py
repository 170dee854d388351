"""The table of schedule primitives: pure functions on functions.

A primitive takes the function, then strings and numbers, and returns the new function,
or `(function, names)` if it creates names that the caller needs:

    @primitive
    def split(func: Function, loop: str, factors: ...) -> tuple[Function, Names]: ...

`Schedule` methods, the printed trace and its replay all go through `PRIMITIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from tensorlang.errors import ScheduleError

F = TypeVar("F", bound=Callable[..., object])
Primitive: TypeAlias = Callable[..., Any]  # from a function and arguments to another


class Primitives(Mapping[str, Primitive]):
    """The primitives by name, each imported on first use."""

    def __init__(self) -> None:
        # what finds a primitive: a schedule uses a few, and only those are imported
        self._places: dict[str, Callable[[], object]] = {}
        self._known: dict[str, Primitive] = {}

    def __getitem__(self, name: str) -> Primitive:
        if name not in self._known:
            self._places[name]()
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def add(self, function: Primitive) -> None:
        """Register a primitive under its name; ScheduleError if it is taken."""
        name = function.__name__
        if name in self._known:
            raise ScheduleError(f"two primitives are named {name!r}")
        self._known[name] = function
        self._places.setdefault(name, lambda: function)

    def declare(self, name: str, place: Callable[[], object]) -> None:
        """Declare a primitive, whose module is imported by `place`."""
        self._places[name] = place

    def load(self) -> None:
        """Import all of them, which also registers the rules in `LEGALITY`."""
        for place in list(self._places.values()):
            place()


PRIMITIVES: Final = Primitives()


def primitive(function: F) -> F:
    """Register a primitive under its own name."""
    PRIMITIVES.add(function)
    return function
