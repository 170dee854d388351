"""Options shared by several commands: operators, shapes, dtypes, attributes, times."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from tensorlang import lazy
from tensorlang.cli import completion
from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    OperatorError,
    ShapeError,
    TensorlangError,
)

with lazy.modules(__name__):  # these load NumPy
    from tensorlang import ops, targets
    from tensorlang.ir import dtypes as ir_dtypes
    from tensorlang.ops.kernels import requests
    from tensorlang.tuner.storage import databases

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Attribute as Setting
    from tensorlang.workload import Workload

Name = Annotated[
    str,
    typer.Argument(
        metavar="OP",
        help="An operator, or module:name for your own.",
        autocompletion=completion.operators,
    ),
]
OptionalName = Annotated[
    str | None,
    typer.Argument(
        metavar="[OP]",
        help="An operator, or module:name for your own.",
        autocompletion=completion.operators,
    ),
]
ModelFile = Annotated[
    Path | None,
    typer.Option("--model", metavar="FILE", help="An ONNX file, instead of OP."),
]
Batch = Annotated[
    int | None,
    typer.Option(metavar="N", help="Value of a model's symbolic batch size."),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        metavar="ERROR",
        help="Relative error allowed of each f32 product of a model, such as 2.5e-4: "
        "3x3 convolutions may then be Winograd's.",
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Array shape, such as 16777216 or 64x784; commas between arrays.",
    ),
]
DType = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", help="Element type, or several, comma-separated."
    ),
]
Attribute = Annotated[
    list[str] | None,
    typer.Option(
        "--attr", metavar="NAME=VALUE", help="An operator attribute; repeatable."
    ),
]


def _lasting(url: str | None) -> str | None:
    """A storage's URL, which is not in this process's memory."""
    if url is not None and databases.is_in_memory(url):
        raise ArgumentError(
            f"--storage {url} names no file, so that nothing would be kept; give one, "
            "such as sqlite:///trials.db"
        )
    return url


Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Optuna storage (default: a SQLite file).",
        callback=_lasting,
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="Target, such as llvm; see tlang targets.",
        autocompletion=completion.kinds,
    ),
]

_SHAPE: Final = re.compile(r"\d+(x\d+)*")
_SIZES: Final = re.compile(r"\d+(,\d+)+")
_MOST_ELEMENTS: Final = 1 << 48
_TIME: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(s|m|h)?")
_SECONDS: Final = {None: 1, "s": 1, "m": 60, "h": 3600}
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "none": None}

T = TypeVar("T")


def to_compile(target: str | None) -> Target:
    """The target of a name, for compiling only: a GPU need not be present.

    Without a GPU, the architecture that `cuda` stands for is printed on standard error.

    Raises:
        TargetError: unknown name.
    """
    found = targets.to_compile(target)
    if target == "cuda" and found.index < 0:
        typer.echo(f"tlang: no GPU found: compiling for {found.name}", err=True)
    return found


def shapes(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Parse `64x784,512x784`; empty for None.

    Raises:
        ShapeError: malformed, or too large for any memory.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_SHAPE.fullmatch, parts)):
        raise ShapeError(
            f"--shape {text!r} is not a shape such as 16777216 or 64x784 "
            "(commas between the shapes of several arrays)"
        )
    found = tuple(tuple(int(size) for size in part.split("x")) for part in parts)
    for shape, part in zip(found, parts, strict=True):
        if math.prod(shape) > _MOST_ELEMENTS:
            raise ShapeError(f"--shape {part!r}: no memory holds so many elements")
    return found


def dtypes(text: str | None) -> tuple[str, ...] | str | None:
    """Canonical names of one or several dtypes: `float32` is `f32`.

    Raises:
        DTypeError: not a dtype.
    """
    if text is None:
        return None
    names = []
    for part in text.split(","):
        try:
            names.append(ir_dtypes.as_dtype(part.strip()).name)
        except TensorlangError as problem:
            raise DTypeError(f"--dtype: {problem}") from None
    return names[0] if len(names) == 1 else tuple(names)


def seconds(text: str, option: str = "--budget") -> float:
    """Parse `90`, `60s`, `2m` or `1h` into seconds.

    Raises:
        ArgumentError: not a time greater than 0.
    """
    match = _TIME.fullmatch(text.strip())
    found = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < found < math.inf:
        raise ArgumentError(
            f"{option} {text!r} is not a positive time such as 60s, 2m or 1h"
        )
    return found


def operators(name: str) -> tuple[Operator, ...]:
    """The operator of a name, or the members of a family.

    Raises:
        OperatorError: unknown name, or its module cannot be imported.
    """
    return _imported(name, ops.select)


def operator(name: str) -> Operator:
    """The operator of a name; for a family, the member of the same name.

    Raises:
        OperatorError: unknown name, or a family with several members.
    """
    found = operators(name)
    if len(found) > 1:
        members = ", ".join(op.id for op in found)
        raise OperatorError(f"{name!r} is a family; name one of its members: {members}")
    return found[0]


def _imported(name: str, find: Callable[[str], T]) -> T:
    """Look a name up with the current directory on the import path."""
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
    """Parse `name=value` attributes; ArgumentError if malformed."""
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
    """The workload of the options, completed by the operator's defaults.

    Raises:
        ShapeError, DTypeError, ArgumentError: an option does not fit the operator.
        OperatorError: the operator is not defined for this workload.
    """
    given = op.shorthand(shapes(shape)) or None
    named = attributes(attrs)
    return requests.requested(op, given, dtypes(dtype), named, shapes_by="--shape")


def of_models(tolerance: float | None) -> None:
    """Refuse a tolerance without a model; ArgumentError."""
    if tolerance is not None:
        raise ArgumentError(
            "--tolerance is for --model: give --attr tolerance=ERROR for an operator"
        )
