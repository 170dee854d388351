"""What the instructions of arithmetic are: types, and a function of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .faults import Fault
from .types import NAMES, Type, named


@dataclass(frozen=True)
class Form:
    """An instruction that is done to each thread's operands by themselves."""

    sources: tuple[Type, ...]
    result: Type
    function: Callable[..., np.ndarray]


Rule = Callable[[list[str], Type], Form]


def split(modifiers: tuple[str, ...]) -> tuple[list[str], list[Type]]:
    """The modifiers that are no types, and those that are."""
    words = [m for m in modifiers if m not in NAMES]
    return words, [named(m) for m in modifiers if m in NAMES]


def allow(words: list[str], *known: str) -> None:
    """Refuse modifiers whose meaning is not known here."""
    for word in words:
        if word not in known:
            raise Fault(f"modifier .{word} is not known here")


def same(kind: Type, count: int, function: Callable[..., np.ndarray]) -> Form:
    """An operation on some numbers of one type that gives one more."""
    return Form((kind,) * count, kind, function)
