"""Output: highlighted and boxed on a terminal, plain aligned text when piped."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

THEME = "ansi_dark"
COLUMNS = 80


def terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """The console of a stream."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, force_terminal=stream.isatty(), highlight=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table: boxed on a terminal, else columns separated by two spaces."""
    held = [list(map(_printable, row)) for row in rows]
    if terminal():
        made = Table(*head, title=title or None, title_justify="left")
        for row in held:
            made.add_row(*map(Text, row))
        console().print(made)
        return
    if title:
        typer.echo(title)
    lines = [list(head), *held]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _printable(text: str) -> str:
    """A cell without control characters, as records may come from untrusted sources."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def code(text: str, lexer: str) -> None:
    """Print source code: highlighted on a terminal, else unchanged."""
    if terminal():
        console().print(Syntax(text, lexer, theme=THEME, background_color="default"))
    else:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def say(text: str) -> None:
    """Print a line."""
    typer.echo(text)


def paragraph(text: str, indent: str = "") -> None:
    """Print text in lines of at most 80 columns; further lines are indented by two."""
    lines = textwrap.wrap(
        _printable(text),
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo("\n".join(lines))


def duration(seconds: float) -> str:
    """Seconds in a readable unit: 940 ns, 5.21 ms, 1.5 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
