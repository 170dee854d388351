"""Checks of a layer's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import TYPE_CHECKING, Final

from tensorlang.errors import ArgumentError
from tensorlang.graph.scopes import call_site, current, path
from tensorlang.graph.values import values_in

if TYPE_CHECKING:
    from tensorlang.layers.layer import Layer

_APPLYING: Final[ContextVar[bool]] = ContextVar("applying", default=False)


@contextmanager
def checked(layer: Layer, inputs: Sequence[object]) -> Iterator[None]:
    """Context for applying a layer to valid inputs.

    Raises:
        ArgumentError: a wrong number of inputs, or only arrays outside of any program
            and layer.
    """
    _counted(layer, inputs)
    if current() is None and not _APPLYING.get():
        _symbolic(layer, inputs)
    token = _APPLYING.set(True)
    try:
        yield
    finally:
        _APPLYING.reset(token)


def _counted(layer: Layer, inputs: Sequence[object]) -> None:
    asked = signature(layer.apply)
    try:
        asked.bind(*inputs)
    except TypeError:
        names = ", ".join(asked.parameters)
        raise ArgumentError(
            f"{_place()}: {type(layer).__name__} takes {len(asked.parameters)} "
            f"input{'s' * (len(asked.parameters) != 1)} ({names}), got {len(inputs)}"
        ) from None


def _symbolic(layer: Layer, inputs: Sequence[object]) -> None:
    """Reject arrays without symbolic inputs: outside of a program nothing would run."""
    if any(True for _ in values_in(inputs)):
        return
    for given in inputs:
        if hasattr(given, "__array__") or isinstance(given, (list, int, float)):
            raise ArgumentError(
                f"{_place()}: a layer takes symbolic tensors, and {layer!r:.60} got "
                f"{type(given).__name__}; to compute, call Model(layer).compile(...) "
                "on it, to write a program, give the layer graph.input(...)"
            )


def _place() -> str:
    return f"layer {path()!r} ({call_site()})" if path() else call_site()
