"""`tlang records pin` and `unpin`: configurations fixed by hand, in a file."""

from __future__ import annotations

from typing import Annotated

import typer

from tensorlang import lazy, targets
from tensorlang.atomic_files import write_text
from tensorlang.cli import console, document, options
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.ops import pins

with lazy.modules(__name__):  # these load NumPy
    from tensorlang import ops
    from tensorlang.ops.kernels import building, requests


def pin(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[OP:KNOB=VALUE,...]", help="Without one, the pins are listed."
        ),
    ] = None,
) -> None:
    """Fix knobs of an operator or a family until tlang records unpin.

    algorithm=NAME fixes the algorithm. Other knobs have their defaults, and records are
    passed over. The pins are lines of a file, below those of tensorlang.ops.pin and of
    TENSORLANG_PIN.

    Examples:
        tlang records pin
        tlang records pin random.bits:lanes=16
        tlang records pin dense:algorithm=direct,rows=8
    """
    if text is None:
        rows = list(pins.texts())
        if rows or document.wanted():
            console.table(("pin", "in"), rows, name="pins")
        else:
            console.say("no pins; tlang records pin random.bits:lanes=16 makes one")
        return
    names = {name for name, _, _ in pins.parsed(text, "the pin")}
    if len(names) != 1:
        raise ArgumentError(f"a pin is for one operator or family, not {text!r}")
    _write([*_others(*names), text])
    console.say(f"{text} is pinned in {pins.file()}")
    if why := _refusal(*names):
        console.paragraph(f"calls of the usual shapes on this CPU refuse it: {why}")
    document.found("pinned", text)
    document.found("file", pins.file())


def _refusal(name: str) -> str:
    """Why no operator of a name takes its pins, for its usual workload on this CPU.

    Other shapes and targets may have other knobs and values.
    """
    refusals = []
    for op in ops.select(name):
        try:
            workload = requests.requested(op, None, None, {})
            building.default(op, workload, targets.host(), pins.pinned(op))
        except TensorlangError as problem:
            refusals.append(str(problem))
        else:
            return ""
    return refusals[0]


def unpin(op: options.Name) -> None:
    """Remove the pins of an operator or a family from the file.

    Examples:
        tlang records unpin random.bits
    """
    held, left = _lines(), _others(op)
    if len(left) == len(held):
        raise ArgumentError(f"{pins.file()} has no pin of {op}")
    _write(left)
    console.say(f"{op} is no longer pinned in {pins.file()}")
    document.found("unpinned", op)
    document.found("file", pins.file())


def _lines() -> list[str]:
    path = pins.file()
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _others(name: str) -> list[str]:
    """The lines that are not of an operator or family."""
    return [line for line in _lines() if line.partition(":")[0].strip() != name]


def _write(lines: list[str]) -> None:
    write_text(pins.file(), "".join(f"{line}\n" for line in lines))
