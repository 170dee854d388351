"""The command-line page, from Typer's documentation of the commands."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click

from tensorlang.cli.app import COMMANDS, loaded


def commands() -> str:
    """Every command with its arguments and options, in Markdown."""
    text = "\n".join(map(_command, COMMANDS))
    # mark options in sentences as code, since Markdown turns two dashes into one
    return re.sub(r"^(?!\* )(.*) (--[\w-]+)", r"\1 `\2`", text, flags=re.MULTILINE)


def _command(name: str) -> str:
    command = loaded(name)
    context = typer.Context(command)
    return str(
        get_docs_for_click(
            obj=command, ctx=context, name=name, indent=1, call_prefix="tlang"
        )
    )
