"""The table of schedule primitives: pure functions on functions.

A primitive takes the function, then strings and numbers, and returns the new function,
or `(function, names)` if it creates names that the caller needs:

    @primitive
    def split(func: Function, loop: str, factors: ...) -> tuple[Function, Names]: ...

`Schedule` methods, the printed trace and its replay all go through `PRIMITIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias, TypeVar

from tensorlang.errors import ScheduleError

F = TypeVar("F", bound=Callable[..., object])
Primitive: TypeAlias = Callable[..., Any]  # from a function and arguments to another

# defining modules: a schedule uses a few primitives, and only those are imported
_HOMES: Final = {
    "atomic": ("atomic",),
    "annotate": ("parallel", "bind", "vectorize", "unroll"),
    "by_target": ("by_target",),
    "cache": ("cache_read",),
    "cache_write": ("cache_write",),
    "compute_at": ("compute_at",),
    "dims": ("fuse_dims", "permute_dims"),
    "fuse_axes": ("fuse_axes",),
    "inline": ("inline",),
    "layout": ("transform_layout",),
    "loops": ("split", "fuse", "reorder"),
    "memory": ("set_scope", "hint"),
    "merge": ("merge",),
    "number": ("number_loops",),
    "pad": ("pad",),
    "pipeline": ("pipeline", "double_buffer"),
    "partition": ("partition", "specialize"),
    "reduction": ("decompose_reduction",),
    "reindex": ("reindex",),
    "reverse_compute_at": ("reverse_compute_at",),
    "rfactor": ("rfactor",),
    "share": ("share",),
    "storage": ("store_at", "store_in"),
    "tensorize": ("tensorize",),
}


class Primitives(Mapping[str, Primitive]):
    """The primitives by name, each imported on first use."""

    def __init__(self) -> None:
        self._homes = {name: home for home, made in _HOMES.items() for name in made}
        self._known: dict[str, Primitive] = {}

    def __getitem__(self, name: str) -> Primitive:
        if name not in self._known:
            import_module(f"tensorlang.scheduling.steps.{self._homes[name]}")
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, function: Primitive) -> None:
        """Register a primitive under its name; ScheduleError if it is taken."""
        name = function.__name__
        if name in self._known:
            raise ScheduleError(f"two primitives are named {name!r}")
        self._known[name] = function
        self._homes.setdefault(name, function.__module__.rpartition(".")[2])

    def load(self) -> None:
        """Import all of them, which also registers the rules in `LEGALITY`."""
        for home in _HOMES:
            import_module(f"tensorlang.scheduling.steps.{home}")


PRIMITIVES: Final = Primitives()


def primitive(function: F) -> F:
    """Register a primitive under its own name."""
    PRIMITIVES.add(function)
    return function
