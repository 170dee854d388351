"""Layer 8, the `tlang` command line: one file per command, no logic of its own."""

from __future__ import annotations

import os
from contextlib import nullcontext

from tensorlang import lazy
from tensorlang.gc_pause import collect_rarely

with lazy.modules(__name__):  # `app` loads Typer
    from tensorlang.cli import app as command_line
    from tensorlang.cli import completion


def main() -> None:
    """Run `tlang` with the process's arguments and exit with its code."""
    collect_rarely()
    asked = os.environ.get("_TLANG_COMPLETE", "")
    shell = asked.removeprefix("complete_") if asked.startswith("complete_") else ""
    with completion.of_shell(shell) if shell else nullcontext():
        command_line.app()
