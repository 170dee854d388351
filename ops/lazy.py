"""Modules that are loaded at their first use.

What is computed stands beside what is called; the loops of it need the compiler's
floors, which a program that only calls kernels never loads.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def module(name: str) -> Any:
    """A module of that name, imported when something of it is asked for."""
    return _Lazy(name)
