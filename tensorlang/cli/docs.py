"""`tlang docs`: the pages that are generated: operators, element types, commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tensorlang.cli import console, pages
from tensorlang.cli.roofline import roofline
from tensorlang.ops import operators

app = typer.Typer(add_completion=False)

_EXIT_CODES: Final = (
    "Exit codes: 0 fine, 1 a check failed (`verify`), 2 a mistake in the call, told in "
    "one sentence on standard error, 130 stopped by Ctrl-C."
)


@app.command()
def docs(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the pages go.")
    ] = Path("docs"),
) -> None:
    """Write the generated pages: one an operator, their list, the types, this command.

    The same sources give the same bytes. Pages of operators that are gone are removed.
    """
    written = dict(_pages())
    folder = out / "operators"
    folder.mkdir(parents=True, exist_ok=True)
    held = {*folder.glob("*.md"), *folder.glob("*.svg")}
    for stale in held - {out / name for name in written}:
        stale.unlink()
    for name, text in written.items():
        (out / name).write_text(text, "utf-8")
    console.say(f"{len(written)} pages written to {out}")


def _pages() -> Iterator[tuple[str, str]]:
    """Each page's place below the folder, and its text."""
    known = [op for op in operators() if op.module.startswith("tensorlang.")]
    for op in known:
        picture = roofline(op.id)
        yield f"operators/{op.id}.md", pages.operator(op, pictured=bool(picture))
        if picture:
            yield f"operators/{op.id}.svg", picture
    yield "operators.md", pages.listing(known)
    yield "dtypes.md", pages.dtypes(known)
    yield "cli.md", commands()


def commands() -> str:
    """The page of the command line: every command with its arguments and options."""
    from tensorlang.cli.app import COMMANDS, app, loaded  # noqa: PLC0415 - it loads this

    parts = ["# The command line", "", str(app.info.help), ""]
    for name in COMMANDS:
        command = loaded(name)
        members = getattr(command, "commands", None)
        if members is None:
            parts += _command(f"tlang {name}", command, "##")
            continue
        parts += [f"## tlang {name}", "", COMMANDS[name], ""]
        for member, inner in members.items():
            parts += _command(f"tlang {name} {member}", inner, "###")
    return "\n".join([*parts, _EXIT_CODES]) + "\n"


def _command(path: str, command: Any, level: str) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = [path, *(["[OPTIONS]"] if options else [])]
    usage += [str(argument.metavar) for argument in arguments]
    rows = [
        (f"`{p.metavar}`", str(getattr(p, "help", None) or ""), "") for p in arguments
    ]
    rows += [_option(option) for option in options]
    lines = [f"{level} {path}", "", "```", " ".join(usage), "```", ""]
    lines += [str(command.help).strip(), ""]
    return [*lines, *pages.table(("", "", "default"), rows), ""]


def _option(option: Any) -> tuple[str, str, str]:
    spelled = "/".join([*option.opts, *option.secondary_opts])
    value = f" {option.metavar}" if option.metavar else ""
    usual = option.default
    if option.secondary_opts:
        usual = (option.opts if usual else option.secondary_opts)[0]
    shown = "" if usual in (None, "") else f"`{usual}`"
    return f"`{spelled}{value}`", str(option.help or ""), shown
