"""Layer 8, the `tlang` command line: one file per command, no logic of its own."""

from __future__ import annotations

import os

from tensorlang import lazy

with lazy.modules(__name__):  # `app` loads Typer
    from tensorlang.cli import app as command_line
    from tensorlang.cli import completion


def main() -> None:
    """Run `tlang` with the process's arguments and exit with its code."""
    if os.environ.get("_TLANG_COMPLETE") == "complete_bash":
        with completion.of_bash():
            command_line.app()
    else:
        command_line.app()
