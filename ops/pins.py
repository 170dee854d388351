"""Pins: configurations fixed by hand, in code, by the environment, or in a file.

    nn.dense:algorithm=direct,rows=6,packing=none

fixes the algorithm and knobs of an operator, or of the members of a family; other knobs
have their defaults, and records are passed over. `tensorlang.ops.pin` comes first, then
the variable `TENSORLANG_PIN`, then the file `pins.txt` in the folder of the user's
records, which `tlang records pin` writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.ops.registry import select
from tensorlang.records import user_folder

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.scheduling.knobs import Value

VARIABLE: Final = "TENSORLANG_PIN"
ALGORITHM: Final = "algorithm"
_CODE: Final = "tensorlang.ops.pin"
_WORDS: Final = {"true": True, "false": False}
_in_code: list[str] = []


def pin(text: str) -> ExitStack:
    """Fix knobs of operators, such as `pin("nn.dense:rows=6,packing=none")`.

    It holds until its `close()`, or the end of its `with` block. Graphs keep the
    kernels that they were compiled with.

    Args:
        text: `op:knob=value,knob=value,...`; `algorithm=name` fixes the algorithm.

    Raises:
        ArgumentError: it is not of this form, or names no operator.
    """
    names = {name for name, _, _ in parsed(text, _CODE)}
    held = [op for name in names for op in select(name)]

    def forget() -> None:
        for op in held:
            op.forget()

    _in_code.append(text)
    forget()
    end = ExitStack()
    end.callback(forget)
    end.callback(_in_code.remove, text)
    return end


def file() -> Path:
    """The file of the user's pins."""
    return user_folder() / "pins.txt"


def texts() -> Iterator[tuple[str, str]]:
    """The pins in effect, each with where it was made; the first ones prevail."""
    yield from ((text, _CODE) for text in reversed(_in_code))
    if given := os.environ.get(VARIABLE):
        yield given, VARIABLE
    try:
        lines = file().read_text("utf-8").splitlines()
    except OSError:
        return
    except UnicodeDecodeError:
        raise ArgumentError(f"{file()} is not text in UTF-8; remove it") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield line, f"{file()}:{number}"


def pinned(op: Operator) -> dict[str, Value]:
    """The knobs that pins fix for an operator.

    Raises:
        ArgumentError: a pin is not of the form `op:knob=value,knob=value`.
    """
    found: dict[str, Value] = {}
    for text, where in texts():
        for name, knob, value in parsed(text, where):
            if name in _names(op):
                found.setdefault(knob, value)
    return found


def sources(op: Operator) -> tuple[str, bool]:
    """Where an operator's pins were made, and whether one is for its whole family."""
    found: dict[str, None] = {}
    family = False
    for text, where in texts():
        names = {name for name, _, _ in parsed(text, where)} & _names(op)
        found |= dict.fromkeys([where] if names else [])
        family |= op.family in names
    return " and ".join(found), family


def _names(op: Operator) -> set[str]:
    return {op.id, *op.aliases, op.family} - {""}


def parsed(text: str, where: str) -> Iterator[tuple[str, str, Value]]:
    """Operator or family, knob and value of each part of a pin.

    Raises:
        ArgumentError: it is not of this form, names no operator, or gives a knob twice.
    """
    name, given = "", set()
    for part in filter(None, map(str.strip, text.split(","))):
        head, _, rest = part.rpartition(":")
        name = head or name
        knob, equals, value = rest.partition("=")
        if not (name and knob and equals):
            raise ArgumentError(
                f"{where}: {part!r} is not op:knob=value; for example "
                "random.bits:lanes=32,unroll=2"
            )
        try:
            fixed = frozenset(op.id for op in select(name)), knob.strip()
        except OperatorError as problem:
            raise ArgumentError(f"{where} names no operator: {problem}") from None
        if fixed in given:
            raise ArgumentError(f"{where}: {text!r} gives {fixed[1]} twice")
        given.add(fixed)
        yield name, fixed[1], value_of(value.strip())


def value_of(text: str) -> Value:
    """The value of a knob as written: a bool, an integer, or a word."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return int(text)
    except ValueError:
        return text
