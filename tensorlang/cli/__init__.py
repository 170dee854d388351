"""Layer 8, the `tlang` command line: one file per command, no logic of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import lazy

if TYPE_CHECKING:
    from tensorlang.cli import app as command_line
else:  # only this loads Typer
    command_line = lazy.module("tensorlang.cli.app")


def main() -> None:
    """Run `tlang` with the process's arguments and exit with its code."""
    command_line.app()
