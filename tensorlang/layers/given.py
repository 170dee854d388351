"""What a layer is given: as many inputs as it takes, of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import TYPE_CHECKING, Final

from tensorlang.errors import ArgumentError
from tensorlang.graph.scopes import current, outside, path
from tensorlang.graph.values import values_in

if TYPE_CHECKING:
    from tensorlang.layers.layer import Layer

_APPLYING: Final[ContextVar[bool]] = ContextVar("applying", default=False)


@contextmanager
def checked(layer: Layer, inputs: Sequence[object]) -> Iterator[None]:
    """Apply a layer to inputs that it can take.

    Raises:
        ArgumentError: there are more or fewer than its `apply` takes, or arrays alone,
            neither in a program nor in another layer.
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
    """Refuse arrays alone: outside of a program, nothing would compute with them."""
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
    return f"layer {path()!r} ({outside()})" if path() else outside()
