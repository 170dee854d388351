"""Functions chosen by the class of an argument, found in one look-up.

Passes call these for every node, and again for what is below it.
`functools.singledispatch` takes two Python functions and a dictionary of weak
references to find a class; its form for methods makes a new function at each access.
These are plain functions: calls of objects with `__call__` pass through C, which costs
more and counts twice towards the recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch, update_wrapper
from typing import Any, Protocol, TypeVar, cast

from tensorlang.ir.fields import PerClass

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ByClass(Protocol[T_co]):
    """A function with a version for each of several classes."""

    def register(self, function: F) -> F:
        """Add a function for the class, or classes, of its first annotation."""

    def __call__(self, node: object, *args: object) -> T_co:
        """The result of the function for the node's class."""


class MethodByClass(ByClass[T_co], Protocol[T_co]):
    """A method with a version for each of several classes."""

    def __get__(self, instance: object, owner: type) -> Callable[..., T_co]:
        """The method of an instance."""


def by_class(fallback: Callable[..., T]) -> ByClass[T]:
    """`functools.singledispatch` for functions that are called very often."""
    found, register = _versions(fallback)

    def call(node: object, *args: object) -> T:
        return found[type(node)](node, *args)

    call.register = register  # type: ignore[attr-defined]
    return cast("ByClass[T]", update_wrapper(call, fallback))


def method_by_class(fallback: Callable[..., T]) -> MethodByClass[T]:
    """`by_class` for methods: the class of their argument decides."""
    found, register = _versions(fallback)

    def call(self: object, node: object, *args: object) -> T:
        return found[type(node)](self, node, *args)

    call.register = register  # type: ignore[attr-defined]
    return cast("MethodByClass[T]", update_wrapper(call, fallback))


def _versions(
    fallback: Callable[..., T],
) -> tuple[PerClass[Callable[..., T]], Callable[[F], F]]:
    """The function for each class, and what adds one."""
    known = singledispatch(fallback)
    found: PerClass[Callable[..., T]] = PerClass(known.dispatch)

    def register(function: F) -> F:
        found.clear()
        known.register(function)
        return function

    return found, register
