"""Tracing state: the current program, layer and source line."""

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

# modules whose frames are skipped when locating a call
_OWN: Final = ("tensorlang.", "contextlib.", "torch.", "jax.")


@dataclass(slots=True, eq=False)
class Scope:
    """A program that is being traced."""

    name: str  # function's name, or the kind of branch
    parent: Scope | None = None  # enclosing program
    # nodes to be kept even if nothing uses their results
    effects: list[Node] = field(default_factory=list)


_SCOPE: ContextVar[Scope | None] = ContextVar("scope", default=None)
_PATH: ContextVar[tuple[str, ...]] = ContextVar("path", default=())
_TRAINING: ContextVar[bool] = ContextVar("training", default=False)


def current() -> Scope | None:
    """The program being traced; None outside of functions and branches."""
    return _SCOPE.get()


@contextmanager
def entered(name: str) -> Iterator[Scope]:
    """Trace a nested program."""
    scope = Scope(name, _SCOPE.get())
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)


@contextmanager
def within(scope: Scope | None) -> Iterator[None]:
    """Continue tracing a program."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Add a layer's name to the path of nodes created here."""
    token = _PATH.set((*_PATH.get(), name) if name else _PATH.get())
    try:
        yield
    finally:
        _PATH.reset(token)


def path() -> str:
    """The path of the layer being applied, such as `3.attention`."""
    return ".".join(_PATH.get())


def call_site() -> str:
    """File and line of the nearest caller outside of these libraries."""
    frame: FrameType = _getframe(1)
    while frame.f_back and f"{frame.f_globals.get('__name__', '')}.".startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def training() -> bool:
    """Whether a training program is being traced."""
    return _TRAINING.get()


@contextmanager
def mode(train: bool) -> Iterator[None]:
    """Trace a training or an inference program."""
    token = _TRAINING.set(train)
    try:
        yield
    finally:
        _TRAINING.reset(token)
