"""Output: highlighted and boxed on a terminal, plain aligned text when piped.

With `--json`, tables and code are findings of the document, and sentences go to
standard error.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from tensorlang.cli import document

T = TypeVar("T")
THEME = "ansi_dark"
COLUMNS = 80
_ENDLESS = 1 << 20  # columns


def terminal() -> bool:
    """Whether what people read goes to a terminal."""
    return console().is_terminal


def console(*, stderr: bool = False) -> Console:
    """The console of a stream; with `--json`, of standard error."""
    stream = sys.stderr if stderr or document.wanted() else sys.stdout
    return Console(file=stream, force_terminal=stream.isatty(), highlight=False)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    name: str = "rows",
) -> None:
    """Print a table: boxed on a terminal, else columns separated by two spaces.

    Cells are text, `quantities`, or None. If the terminal is too narrow, each row is a
    paragraph. `name` is that of the finding in JSON.
    """
    cells = list(rows)
    document.found(name, document.rows(head, cells))
    if document.wanted():
        return
    held = [[_text(cell) for cell in row] for row in cells]
    if title:
        typer.echo(title)
    if not terminal():
        _columns([list(head), *held])
        return
    made = Table(*head)
    for line in held:
        made.add_row(*map(Text, line))
    screen = console()
    unbounded = screen.options.update(max_width=_ENDLESS)
    if screen.measure(made, options=unbounded).maximum <= screen.width:
        screen.print(made)
        return
    for line in held:
        paragraph(line[0], width=screen.width)
        named = [f"{key}: {cell}" for key, cell in zip(head, line, strict=True) if cell]
        paragraph("; ".join(named[1:]), "  ", screen.width)


def _columns(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _text(cell: object) -> str:
    return "" if cell is None else _printable(str(cell))


def _printable(text: str) -> str:
    """A cell without control characters, as records may come from untrusted sources."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def code(text: str, lexer: str) -> None:
    """Print source code: highlighted on a terminal, else unchanged."""
    document.found("text", text)
    if document.wanted():
        return
    if terminal():
        console().print(Syntax(text, lexer, theme=THEME, background_color="default"))
    else:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def say(text: str) -> None:
    """Print a line."""
    typer.echo(text, err=document.wanted())


def paragraph(
    text: str, indent: str = "", width: int = COLUMNS, hanging: int = 2
) -> None:
    """Print text in lines of at most `width`, all but the first `hanging` deeper."""
    lines = textwrap.wrap(
        _printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent + " " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    say("\n".join(lines))


def tracked(items: Collection[T], what: str) -> Iterator[T]:
    """The items, with a bar and the time left on standard error if it is a terminal."""
    screen = console(stderr=True)
    with Progress(
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # a file gets its lines, not the screen
    ) as bar:
        yield from bar.track(items, description=what)
