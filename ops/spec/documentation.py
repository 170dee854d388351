"""Docstrings of operators: those of their definitions, completed with shared entries.

A definition documents what it computes, and those parameters that need more than the
shared text: its own entries are kept.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tensorlang.ops import registry
from tensorlang.ops.spec.signature import Arrays, Parameter

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator

# default descriptions of parameters by name
SHARED: Final = {
    "dy": "The gradient of the result, in its shape.",
    "axis": "The axis, counted from the end where it is negative.",
    "key": "A random key; consumed.",
    "shape": "The shape of the result.",
    "dtype": "The element type of the result.",
    "stride": "The stride of the window: one number, or one per dimension.",
    "padding": "The zero padding on the sides of the image.",
    "dilation": "The spacing between the elements of a window.",
    "groups": "The number of independent groups of channels.",
    "target": 'Where to compute, such as `"llvm"` or `"cuda"`; default: where the '
    "arrays are.",
    "out": "The array for the result; a tuple of arrays for several results.",
}
_RAISES: Final = "DTypeError, ShapeError, ArgumentError: an argument does not fit."
_REUSED: Final = "KeyReuseError: the key was used before."
_SECTION: Final = re.compile(
    r"^(Args|Returns|Raises|Attributes|Yields):$", re.MULTILINE
)
_ENTRY: Final = re.compile(r"^    (\w+): ", re.MULTILINE)


def documented(
    doc: str,
    parameters: Sequence[Parameter],
    more: Mapping[str, str],
    shared: Sequence[str] = ("target", "out"),
) -> str:
    """A definition's docstring, completed with an entry for each parameter.

    Args:
        doc: The definition's docstring.
        parameters: The parameters of the operator.
        more: Descriptions of parameters that the docstring does not describe.
        shared: The keywords common to all operators of its kind.
    """
    said, _, rest = inspect.cleandoc(doc).partition("\nArgs:\n")
    found = _SECTION.search(rest)
    entries, others = rest, ""
    if found:
        entries, others = rest[: found.start()], rest[found.start() :]
    elif not rest and (found := _SECTION.search(said)):
        said, others = said[: found.start()], said[found.start() :]
    own = dict(_entries(entries))
    names = [*(p.name for p in parameters), *shared]
    usual = {p.name: _usual(p) for p in parameters} | SHARED | dict(more)
    lines = [own.get(name) or _filled(f"{name}: {usual[name]}") for name in names]
    if "Raises:" not in others:
        keys = any(p.verb for p in parameters)
        raised = f"{_REUSED}\n    {_RAISES}" if keys else _RAISES
        others = f"{others.rstrip()}\n\nRaises:\n    {raised}\n".lstrip("\n")
    listed = "\n".join(lines)
    return f"{said.rstrip()}\n\nArgs:\n{listed}\n\n{others}"


def as_for(op: Operator) -> dict[str, str]:
    """The descriptions of a gradient's parameters that its operator has too."""
    of = registry.forward(op)
    taken = () if of is None else of.spec.parameters
    return {p.name: f"As for `{of.id}`." for p in taken if of is not None}


def _filled(entry: str) -> str:
    return textwrap.fill(entry, 84, initial_indent=" " * 4, subsequent_indent=" " * 8)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The entries of a section, by name."""
    starts = [*_ENTRY.finditer(text)]
    for n, start in enumerate(starts, 1):
        end = starts[n].start() if n < len(starts) else len(text)
        yield start[1], text[start.start() : end].rstrip()


def _usual(parameter: Parameter) -> str:
    """The default description of a parameter, by its kind."""
    kind = parameter.kind
    if parameter.is_a("like"):
        whose = "their shapes are" if parameter.several else "its shape is"
        return f"As in the forward call; only {whose} used."
    if not isinstance(kind, Arrays):
        return getattr(kind, "says", "") or "A number."
    says = "arrays" if kind.several else kind.says
    number = ", or a Python number" if kind.number else ""
    absent = ", or None" if kind.optional else ""
    return f"{says[:1].upper()}{says[1:]} of any shape{number}{absent}."
