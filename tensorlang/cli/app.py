"""The commands in one table, loaded when called, and mistakes told in one sentence.

Exit codes: 0 fine, 1 a check failed (`verify`), 2 a mistake of the caller's, 130
stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from tensorlang import __version__
from tensorlang.errors import TensorlangError

FAILED: Final = 1
MISTAKE: Final = 2
INTERRUPTED: Final = 130
TRACEBACK_VARIABLE: Final = "TENSORLANG_TRACEBACK"
_CLOSED_PIPE: Final = 141  # as a program has that SIGPIPE ended

# command -> what `tlang --help` says; each is a module of this package with an `app`
COMMANDS: Final = {
    "tune": "Find the fastest schedule of an operator on this machine, and record it.",
    "show": "Show an operator as IR, trace, scheduled IR, source or assembly.",
    "ops": "List the operators.",
    "targets": "Say what kernels can be built for here, and how to get the rest.",
    "verify": "Check operators: known answers, and kernels against the interpreter.",
    "bench": "Measure an operator beside what people would use instead.",
    "records": "List, explain, merge, export, verify and remove tuning records.",
}
# where every kind of mistake on a command line begins, in any version of typer
_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])


class Commands(TyperGroup):
    """The group of commands: listed from the table, loaded one at a time."""

    def list_commands(self, ctx: object) -> list[str]:
        """The commands' names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | None:
        """The command as help lists it: nothing is loaded."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, callback=None, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, to run it."""
        if args and args[0] in COMMANDS:
            return args[0], loaded(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run, and exit with a code; mistakes are told in a sentence, not raised."""
        parent = super().main
        if not options.get("standalone_mode", True):
            return parent(*args, **options)
        options |= {"prog_name": "tlang", "standalone_mode": False}
        with warnings.catch_warnings():
            warnings.showwarning = _told
            sys.exit(guarded(lambda: parent(*args, **options)))


def loaded(name: str) -> Any:
    """A command from its module, ready to run."""
    module = import_module(f"tensorlang.cli.{name}")
    command = typer.main.get_command(module.app)
    command.name = name
    return command


app = typer.Typer(
    cls=Commands,
    help="Tensor kernels that you can read, tune and trust.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _about(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Say the version, and end."),
) -> None:
    if version:
        typer.echo(f"tensorlang {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def guarded(command: Callable[[], object]) -> int:
    """Run a command, and give its exit code; mistakes are told, not raised."""
    try:
        code = command()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        # typer makes an exit of a broken pipe, with the code of a failed check
        if BrokenPipeError not in (type(end), type(end.__context__)):
            raise
        # nobody reads any more; what Python flushes at its end must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except (KeyboardInterrupt, typer.Abort):
        _complain("stopped")
        return INTERRUPTED
    except _USAGE_ERROR as problem:
        _complain(_usage(problem))
        return MISTAKE
    except OSError as problem:
        _complain(f"{problem.filename or 'a file'}: {problem.strerror or problem}")
        return MISTAKE
    except (TensorlangError, MemoryError) as problem:
        _complain(str(problem) or "there is not enough memory")
        return MISTAKE
    except Exception as problem:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        _complain(
            f"{type(problem).__name__}: {problem} (a fault of tensorlang's own; "
            f"{TRACEBACK_VARIABLE}=1 shows where)"
        )
        return FAILED
    return code if isinstance(code, int) else 0


def _usage(problem: Any) -> str:
    """A mistake on the command line, and where to read more."""
    ctx = getattr(problem, "ctx", None)
    path = ctx.command_path if ctx is not None else "tlang"
    said = str(problem.format_message()).rstrip(". \n")
    return f"{said}; {path} --help says more"


def _complain(sentence: str) -> None:
    typer.echo(f"tlang: {' '.join(sentence.split())}", err=True)


def _told(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"warning: {message}")
