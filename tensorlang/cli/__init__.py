"""Layer 8, the `tlang` command line: one file per command, no logic of its own."""

from __future__ import annotations

from tensorlang import lazy

with lazy.modules(__name__):  # only this loads Typer
    from tensorlang.cli import app as command_line


def main() -> None:
    """Run `tlang` with the process's arguments and exit with its code."""
    command_line.app()
