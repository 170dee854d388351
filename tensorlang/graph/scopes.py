"""Where a program is being written: which one, in which layer, on which line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from sys import _getframe
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tensorlang.graph.values import Node

# whose lines say nothing of where an operator was applied
_OWN: Final = ("tensorlang.", "contextlib.", "torch.", "jax.")


@dataclass(slots=True, eq=False)
class Scope:
    """A program that is being written by running Python.

    Attributes:
        name: The function's, or what the branch is.
        parent: The program around it.
        effects: Nodes that have to stay though nothing may need their results.
    """

    name: str
    parent: Scope | None = None
    effects: list[Node] = field(default_factory=list)


_SCOPE: ContextVar[Scope | None] = ContextVar("scope", default=None)
_PATH: ContextVar[tuple[str, ...]] = ContextVar("path", default=())
_TRAINING: ContextVar[bool] = ContextVar("training", default=False)


def current() -> Scope | None:
    """The program that is being written; None outside of functions and branches."""
    return _SCOPE.get()


@contextmanager
def entered(name: str) -> Iterator[Scope]:
    """Write a program of its own inside of the current one."""
    scope = Scope(name, _SCOPE.get())
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)


@contextmanager
def within(scope: Scope | None) -> Iterator[None]:
    """Go on writing a program."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Call what is written here by the name of a layer, under those around it."""
    token = _PATH.set((*_PATH.get(), name) if name else _PATH.get())
    try:
        yield
    finally:
        _PATH.reset(token)


def path() -> str:
    """The path of the layer that is being applied, such as `3.attention`."""
    return ".".join(_PATH.get())


def outside() -> str:
    """File and line of the nearest caller that is no library of this kind."""
    frame: FrameType = _getframe(1)
    while frame.f_back and f"{frame.f_globals.get('__name__', '')}.".startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def training() -> bool:
    """Whether the program that is being written is for training."""
    return _TRAINING.get()


@contextmanager
def mode(train: bool) -> Iterator[None]:
    """Write a program for training, or for use."""
    token = _TRAINING.set(train)
    try:
        yield
    finally:
        _TRAINING.reset(token)
