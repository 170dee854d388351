"""Modules and names that are imported on first use.

Importing the package, or the operators, must not load a compiler. Imports in these
blocks run later, and are ordinary ones to type checkers, editors and readers:

    with lazy.modules(__name__):
        from tensorlang.runtime.arrays import host_arrays

    with lazy.names(__name__):
        from tensorlang.ir.verification.verifier import verify as verify

The first makes `host_arrays` a module that is imported when an attribute of it is
read; it takes modules only. The second is for packages that others take names from: it
leaves no name behind, and `verify`, which may be anything, is imported when it is read
as an attribute of the package. Garbage is not collected meanwhile: modules are kept.
"""

from __future__ import annotations

import builtins
import sys
from _thread import RLock  # `threading` takes longer to import than all else here
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from tensorlang.gc_pause import gc_paused

_REPLACED = RLock()  # held while `__import__` is another function


@gc_paused()
def imported(name: str) -> ModuleType:
    """`importlib.import_module`, without collecting garbage, of which there is none."""
    return import_module(name)


class _Module(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loaded: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        loaded = sys.modules.get(self.__name__)  # another thread may still import it
        if loaded is None or loaded is not self._loaded:
            self._loaded = loaded = imported(self.__name__)
        return getattr(loaded, name)


class _From:
    """What `from home import ...` takes names from."""

    def __init__(self, home: str) -> None:
        self._home = home

    def __getattr__(self, name: str) -> _Module:
        return _Module(f"{self._home}.{name}")


@contextmanager
def modules(importer: str) -> Iterator[None]:
    """Context in which the module `importer` imports modules, each on first use."""

    def deferred(
        name: str,
        given: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> object:
        if not given or given.get("__name__") != importer:
            return now(name, given, locals, fromlist or (), level)
        return _From(name) if fromlist else _Module(name)

    with _REPLACED:
        now, builtins.__import__ = builtins.__import__, deferred  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.__import__ = now


@contextmanager
def names(package: str) -> Iterator[None]:
    """Context in which a package imports what is found as its attribute later."""
    own = vars(sys.modules[package])
    before = set(own)
    with modules(package):
        yield
    places = {name: own.pop(name).__name__ for name in own.keys() - before}

    def attribute(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, inner = places[name].rpartition(".")
        found = None if home == package else getattr(imported(home), inner, None)
        own[name] = imported(places[name]) if found is None else found
        return own[name]

    own["__getattr__"] = attribute
    own["__dir__"] = lambda: sorted({*own, *places})
