"""Modules and names that are imported on first use.

Importing the package, or the operators, must not load a compiler. Both forms stand in
the `else` branch of `if TYPE_CHECKING:`, whose other branch has the same as imports,
for type checkers and editors; `tests/unit/house` compares the two:

    if TYPE_CHECKING:
        from tensorlang.ir.verifier import verify
        from tensorlang.runtime.arrays import host_arrays
    else:
        host_arrays = lazy.module("tensorlang.runtime.arrays.host_arrays")
        __getattr__, __dir__ = lazy.namespace(__name__, {"verifier": ("verify",)})
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType


class _Module(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loaded: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        loaded = sys.modules.get(self.__name__)  # another thread may still import it
        if loaded is None or loaded is not self._loaded:
            self._loaded = loaded = import_module(self.__name__)
        return getattr(loaded, name)


def module(name: str) -> ModuleType:
    """The module of that name, imported when an attribute is first read."""
    return _Module(name)


def namespace(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported on use.

    Args:
        package: Its name.
        homes: Its modules that are attributes, such as `frontend` or
            `definitions.frontend` (the attribute is `frontend`), each with the names
            that the package takes from it. If a name is also that of a module, the
            name is meant.
    """
    modules = {home.rpartition(".")[2]: home for home in homes}
    home_of = {name: home for home, names in homes.items() for name in names}

    def attribute(name: str) -> object:
        if name in home_of:
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        elif name in modules:
            value = import_module(f"{package}.{modules[name]}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules, *home_of})

    return attribute, names
