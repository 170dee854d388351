"""Interpreter for host programs: launches, and the loops and branches around them.

Programs are data made by `tensorlang.codegen.simt.host`: numbers are integers, names or
`[op, a, b]`; statements are `["launch", k]`, `["for", name, extent, body]`,
`["if", cond, then, orelse]` and `["let", name, value]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tensorlang.ir.operations import COMPARISONS, INTEGERS

Number: TypeAlias = "int | str | list[Any]"
Data: TypeAlias = Mapping[str, Any]  # the program, its launches and their arguments
Statements: TypeAlias = "Sequence[list[Any]]"
Launch: TypeAlias = Callable[[int, "dict[str, int]"], None]

_OPERATIONS: Final = INTEGERS | COMPARISONS


def number(value: Number, names: dict[str, int]) -> int:
    """Evaluate a number with these values of names."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(names[value])
    if value[0] == "select":
        return number(value[2] if number(value[1], names) else value[3], names)
    op, a, b = value
    return int(_OPERATIONS[op](number(a, names), number(b, names)))


def run(program: Statements, names: dict[str, int], launch: Launch) -> None:
    """Run a host program, calling `launch(k, names)` for each launch in order."""
    for kind, *rest in program:
        if kind == "launch":
            launch(rest[0], names)
        elif kind == "let":
            names[rest[0]] = number(rest[1], names)
        elif kind == "if":
            run(rest[1] if number(rest[0], names) else rest[2], names, launch)
        else:
            name, extent, body = rest
            for value in range(number(extent, names)):
                run(body, names | {name: value}, launch)
