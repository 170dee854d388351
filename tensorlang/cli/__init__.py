"""Floor 8, `tlang`: a thin face over the floors below, one file a command."""

from __future__ import annotations


def main() -> None:
    """Run `tlang` with the process's arguments, and exit with its code."""
    from tensorlang.cli.app import app  # noqa: PLC0415 - loads typer

    app()
