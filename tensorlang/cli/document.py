"""What a command found, as one JSON document: the option `--json` of every command.

With it, standard output has this document alone, and sentences for people go to
standard error. A command names its findings (`found`); tables name theirs. If it fails,
the finding `error` is the sentence that says why, beside what was found before.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import singledispatch
from typing import TypeAlias

import typer

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
_open: ContextVar[dict[str, Json] | None] = ContextVar("document", default=None)


@contextmanager
def printed() -> Iterator[None]:
    """Print at the end of a command what it found, if `begin` was called in it."""
    token = _open.set(None)
    try:
        yield
    finally:
        made = _open.get()
        _open.reset(token)
        if made is not None:
            typer.echo(json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False))


def begin() -> None:
    """Collect what the command finds, from nothing."""
    _open.set({})


def wanted() -> bool:
    """Whether the command was asked for JSON."""
    return _open.get() is not None


def found(name: str, value: object) -> None:
    """Add a finding; a later one of the same name replaces it."""
    if (held := _open.get()) is not None:
        held[name] = plain(value)


def replace(text: str) -> None:
    """Make the document what a JSON text holds."""
    _open.set(json.loads(text))


def append(name: str, value: object) -> None:
    """Add an item to a finding that is a list."""
    if (held := _open.get()) is not None:
        items = held.setdefault(name, [])
        assert isinstance(items, list)
        items.append(plain(value))


def rows(head: Sequence[str], cells: Iterable[Sequence[object]]) -> list[object]:
    """A table as objects, their keys made of its head: `vs default`, `vs_default`."""
    keys = [re.sub(r"\W+", "_", name).strip("_") or "name" for name in head]
    return [dict(zip(keys, row, strict=True)) for row in cells]


@singledispatch
def plain(value: object) -> Json:
    """A value in terms of JSON: numbers, sequences, mappings; all else as text."""
    return str(value)


@plain.register
def _(value: bool | int | str | None) -> Json:
    return value


@plain.register
def _(value: float) -> Json:
    return float(value) if math.isfinite(value) else None


@plain.register
def _(value: Mapping) -> Json:  # type: ignore[type-arg]
    return {str(name): plain(each) for name, each in value.items()}


@plain.register
def _(value: list | tuple) -> Json:  # type: ignore[type-arg]
    return [plain(each) for each in value]
