"""Layer 8, the `tlang` command line: one file per command, no logic of its own."""

from __future__ import annotations


def main() -> None:
    """Run `tlang` with the process's arguments and exit with its code."""
    from tensorlang.cli.app import app  # noqa: PLC0415 - loads typer

    app()
