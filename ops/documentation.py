"""Docstrings of operators: what their definitions say, and what all of them share.

A definition says what it computes, and what a parameter means where that is not clear
from here: an entry that it has itself is kept as it is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tensorlang.ops.signature import Arrays, Parameter

# what a parameter of this name means, wherever an operator says nothing else
SHARED: Final = {
    "dy": "The gradient of the result, in its shape.",
    "axis": "The axis, counted from the end where it is negative.",
    "key": "A random key, which is used up.",
    "shape": "The shape of the result.",
    "dtype": "The element type of the result.",
    "stride": "The step of the window: a number, or one a dimension.",
    "padding": "How many zeros are put around the image.",
    "dilation": "The step between the elements of a window.",
    "groups": "How many groups of channels are apart.",
    "target": 'Where to compute: `"llvm"`, `"cuda"` and so on; where the arrays are.',
    "out": "Where the result goes; several, as a tuple.",
}
_RAISES: Final = "DTypeError, ShapeError, ArgumentError: an argument does not fit."
_SECTION: Final = re.compile(
    r"^(Args|Returns|Raises|Attributes|Yields):$", re.MULTILINE
)
_ENTRY: Final = re.compile(r"^    (\w+): ", re.MULTILINE)


def documented(
    doc: str, parameters: Sequence[Parameter], more: Mapping[str, str]
) -> str:
    """A definition's docstring with an entry for each parameter.

    Args:
        doc: What the definition says.
        parameters: Of the operator.
        more: What its parameters mean where the definition does not say so.
    """
    said, _, rest = inspect.cleandoc(doc).partition("\nArgs:\n")
    found = _SECTION.search(rest)
    entries, others = rest, ""
    if found:
        entries, others = rest[: found.start()], rest[found.start() :]
    elif not rest and (found := _SECTION.search(said)):
        said, others = said[: found.start()], said[found.start() :]
    own = dict(_entries(entries))
    names = [*(p.name for p in parameters), "target", "out"]
    usual = {p.name: _usual(p) for p in parameters} | SHARED | dict(more)
    lines = [own.get(name, f"    {name}: {usual[name]}") for name in names]
    if "Raises:" not in others:
        others = f"{others.rstrip()}\n\nRaises:\n    {_RAISES}\n".lstrip("\n")
    listed = "\n".join(lines)
    return f"{said.rstrip()}\n\nArgs:\n{listed}\n\n{others}"


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The entries of a section, by name."""
    starts = [*_ENTRY.finditer(text)]
    for n, start in enumerate(starts, 1):
        end = starts[n].start() if n < len(starts) else len(text)
        yield start[1], text[start.start() : end].rstrip()


def _usual(parameter: Parameter) -> str:
    """What is said of a parameter by its kind."""
    kind = parameter.kind
    if parameter.is_a("like"):
        whose = "their shapes count" if parameter.several else "its shape counts"
        return f"As in the forward call; only {whose}."
    if not isinstance(kind, Arrays):
        return getattr(kind, "says", "") or "A number."
    says = "arrays" if kind.several else kind.says
    number = ", or a Python number" if kind.number else ""
    absent = ", or None" if kind.optional else ""
    return f"{says[:1].upper()}{says[1:]} of any shape{number}{absent}."
