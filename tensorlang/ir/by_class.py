"""Functions chosen by the class of an argument, found in one look-up.

Passes call these for every node. `functools.singledispatch` takes two Python functions
and a dictionary of weak references to find a class; its form for methods makes a new
function at each access.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch, update_wrapper
from types import MethodType
from typing import Any, Generic, TypeVar

from tensorlang.ir.fields import PerClass

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class by_class(Generic[T]):  # noqa: N801 - a decorator
    """`functools.singledispatch` for functions that are called very often."""

    def __init__(self, fallback: Callable[..., T]) -> None:
        self._known = singledispatch(fallback)
        self._found: PerClass[Callable[..., T]] = PerClass(self._known.dispatch)
        update_wrapper(self, fallback)

    def register(self, function: F) -> F:
        """Add a function for the class, or classes, of its first annotation."""
        self._found.clear()
        self._known.register(function)
        return function

    def __call__(self, node: object, *args: object) -> T:
        """The result of the function for the node's class."""
        return self._found[type(node)](node, *args)


class method_by_class(by_class[T]):  # noqa: N801 - a decorator
    """`by_class` for methods: the class of their argument decides."""

    def __get__(self, instance: object, owner: type) -> Callable[..., T]:
        return MethodType(self._of, instance)

    def _of(self, instance: object, node: object, *args: object) -> T:
        return self._found[type(node)](instance, node, *args)
