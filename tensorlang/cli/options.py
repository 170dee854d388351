"""What several commands take: operators, shapes, types, attributes, times."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    OperatorError,
    ShapeError,
    TensorlangError,
)

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Attribute as Setting
    from tensorlang.workload import Workload

Name = Annotated[
    str, typer.Argument(metavar="OP", help="An operator, or module:name for your own.")
]
Shape = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Sizes of an array, such as 16777216 or 64x784; commas between arrays.",
    ),
]
DType = Annotated[
    str | None,
    typer.Option("--dtype", metavar="TYPE", help="Element type; commas for several."),
]
Attribute = Annotated[
    list[str] | None,
    typer.Option(
        "--attr", metavar="NAME=VALUE", help="An attribute; may be given repeatedly."
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="Such as llvm; see tlang targets."),
]

_SHAPE: Final = re.compile(r"\d+(x\d+)*")
_SIZES: Final = re.compile(r"\d+(,\d+)+")
_MOST_ELEMENTS: Final = 1 << 48
_TIME: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(s|m|h)?")
_SECONDS: Final = {None: 1, "s": 1, "m": 60, "h": 3600}
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "none": None}

T = TypeVar("T")


def to_compile(target: str | None) -> Target:
    """The target of a name, to look at what is made for it; a GPU need not be here.

    What `cuda` stands for without one is said on standard error.

    Raises:
        TargetError: nothing has this name.
    """
    from tensorlang import targets  # noqa: PLC0415 - the floors below, where needed

    found = targets.to_compile(target)
    if target == "cuda" and found.index < 0:
        typer.echo(f"tlang: no GPU is here: compiling for {found.name}", err=True)
    return found


def shapes(text: str | None) -> tuple[tuple[int, ...], ...]:
    """The shapes of `64x784,512x784`; none where nothing is given.

    Raises:
        ShapeError: it is not of that form, or too large for any memory.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_SHAPE.fullmatch, parts)):
        raise ShapeError(
            f"--shape {text!r} is not sizes joined by x, such as 16777216 or 64x784 "
            "(commas between the shapes of several arrays)"
        )
    found = tuple(tuple(int(size) for size in part.split("x")) for part in parts)
    for shape, part in zip(found, parts, strict=True):
        if math.prod(shape) > _MOST_ELEMENTS:
            raise ShapeError(f"--shape {part!r}: no memory holds so many elements")
    return found


def dtypes(text: str | None) -> tuple[str, ...] | str | None:
    """Our name of an element type, or of several: `float32` is `f32`.

    Raises:
        DTypeError: one of them is no element type.
    """
    if text is None:
        return None
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - loads NumPy

    names = []
    for part in text.split(","):
        try:
            names.append(as_dtype(part.strip()).name)
        except TensorlangError as problem:
            raise DTypeError(f"--dtype: {problem}") from None
    return names[0] if len(names) == 1 else tuple(names)


def seconds(text: str, option: str = "--budget") -> float:
    """The seconds of `90`, `60s`, `2m` or `1h`.

    Raises:
        ArgumentError: it is no time, or none at all.
    """
    match = _TIME.fullmatch(text.strip())
    found = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < found < math.inf:
        raise ArgumentError(
            f"{option} {text!r} is not a time longer than 0, such as 60s, 2m or 1h"
        )
    return found


def operators(name: str) -> tuple[Operator, ...]:
    """The operators of a name: one, or a family's members.

    Raises:
        OperatorError: nothing is called that, or its module cannot be imported.
    """
    from tensorlang.ops import select  # noqa: PLC0415 - loads NumPy

    return _imported(name, select)


def operator(name: str) -> Operator:
    """The operator of a name; of a family the one that is called so.

    Raises:
        OperatorError: nothing is called that, or it is a family of several.
    """
    found = operators(name)
    if len(found) > 1:
        members = ", ".join(op.id for op in found)
        raise OperatorError(f"{name!r} is a family; name one of its members: {members}")
    return found[0]


def _imported(name: str, find: Callable[[str], T]) -> T:
    """Find where the current directory's modules can be imported too."""
    if ":" in name and os.getcwd() not in sys.path:  # noqa: PTH109 - entries are text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the same
    try:
        return find(name)
    except TensorlangError:
        raise
    except (Exception, SystemExit) as problem:  # a user's module may raise anything
        raise OperatorError(
            f"{name!r} cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem


def attributes(given: Sequence[str] | None) -> dict[str, Setting]:
    """The attributes of `name=value` texts.

    Raises:
        ArgumentError: one is not of that form.
    """
    found: dict[str, Setting] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ArgumentError(f"--attr {text!r} is not of the form name=value")
        found[name] = _value(value)
    return found


def _value(text: str) -> Setting:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _SIZES.fullmatch(text):
        return tuple(map(int, text.split(",")))
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def workload(
    op: Operator,
    shape: str | None = None,
    dtype: str | None = None,
    attrs: Sequence[str] | None = None,
) -> Workload:
    """The workload that the options describe; the rest is the operator's default.

    Raises:
        ShapeError, DTypeError, ArgumentError: an option does not fit the operator.
        OperatorError: the operator is not defined for this workload.
    """
    from tensorlang.ops.requests import requested  # noqa: PLC0415 - loads NumPy

    given = op.shorthand(shapes(shape)) or None
    named = attributes(attrs)
    return requested(op, given, dtypes(dtype), named, shapes_by="--shape")
