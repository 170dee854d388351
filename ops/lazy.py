"""Modules imported at first use.

Definitions need the compiler, which a program that only calls cached kernels need not
load.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def module(name: str) -> Any:
    """The module of that name, imported when an attribute is first accessed."""
    return _Lazy(name)
