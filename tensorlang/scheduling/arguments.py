"""Argument checks of primitives: names are strings, counts are integers, and so on.

A step is checked against the annotations of its primitive before it runs, so that a
mistake is a `ScheduleError` naming the argument and what it expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import BoundArguments, Parameter, Signature
from typing import Final

LARGEST: Final = 1 << 48  # upper limit of extents


def _name(value: object) -> bool:
    return isinstance(value, str)


def _number(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return abs(value) <= LARGEST


def _numbers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_number, value))


def _names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_name, value))


def _factors(value: object) -> bool:
    given = value if isinstance(value, (list, tuple)) else [value]
    return all(_number(item) for item in given if item is not None) and given != [None]


# annotation of a primitive's parameter -> (predicate, description)
WANTED: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "str": (_name, "a name"),
    "str | None": (lambda value: value is None or _name(value), "a name or None"),
    "int": (_number, "a whole number"),
    "int | None": (
        lambda value: value is None or _number(value),
        "a whole number or None",
    ),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "Factors": (_factors, "a whole number, or a list of them with one None"),
    "Sequence[int]": (_numbers, "a list of whole numbers"),
    "Sequence[str]": (_names, "a list of names"),
    "Term": (lambda value: _name(value) or _number(value), "a number or an expression"),
    "Layout": (_name, "an index map such as 'lambda i, j: (j, i)'"),
}


def misfits(form: Signature, given: BoundArguments) -> Iterator[str]:
    """An error message for each argument that its parameter's annotation excludes."""
    for name, value in given.arguments.items():
        parameter = form.parameters[name]
        fits, wanted = WANTED.get(str(parameter.annotation), (None, ""))
        several = parameter.kind is Parameter.VAR_POSITIONAL
        for item in value if several else (value,):
            if fits is not None and not fits(item):
                yield f"{name} is {wanted}, not {str(item)[:80]!r}"
