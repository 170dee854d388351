"""The table of commands, loaded on demand; user errors are one-line messages.

Exit codes: 0 success, 1 a check failed (`verify`), 2 user error, 130 interrupted by
Ctrl-C.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from tensorlang import lazy
from tensorlang.cli import document
from tensorlang.errors import TensorlangError
from tensorlang.version import __version__

FAILED: Final = 1
MISTAKE: Final = 2
INTERRUPTED: Final = 130
TRACEBACK_VARIABLE: Final = "TENSORLANG_TRACEBACK"
_CLOSED_PIPE: Final = 141  # the exit code of a program ended by SIGPIPE

# command -> summary in `tlang --help`; each is a module of this package with an `app`
COMMANDS: Final = {
    "tune": "Find and record the fastest schedule of an operator on this machine.",
    "studies": "List, show and export searches, shared ones too.",
    "replay": "Run samplers over a finished search, without hardware.",
    "show": "Show an operator as IR, trace, scheduled IR, source or assembly.",
    "explore": "Show an operator on one page, with lines linked through all stages.",
    "export": "Export an operator or a network as a C library without Python.",
    "ops": "List the operators.",
    "targets": "List the available targets, and how to get the missing ones.",
    "doctor": "Show what this installation has, what it lacks, and how to get it.",
    "machine": "Show what this CPU can do, and measure it.",
    "verify": "Check operators against known answers and the interpreter.",
    "bench": "Benchmark an operator against other libraries.",
    "records": "List, explain, merge, export, verify, pin and remove tuning records.",
}
# the base class of usage errors in any version of typer
_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[2])


class Commands(TyperGroup):
    """A command group listed from the table, whose commands are imported on demand."""

    def list_commands(self, ctx: object) -> list[str]:
        """Command names in table order."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | None:
        """A stub for the help listing, without importing the command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, callback=None, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is to run."""
        if args and args[0] in COMMANDS:
            return args[0], loaded(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **options: Any) -> object:
        """Run and exit; user errors are printed as one sentence."""
        parent = super().main
        if not options.get("standalone_mode", True):
            return parent(*args, **options)
        given = (args[0] if args else options.get("args")) or sys.argv[1:]
        options |= {"prog_name": "tlang", "standalone_mode": False}
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            sys.exit(guarded(lambda: parent(*args, **options), given))


def loaded(name: str) -> Any:
    """Import a command from its module, and give it `--json`."""
    module = lazy.imported(f"tensorlang.cli.{name}")
    command: Any = typer.main.get_command(module.app)
    command.name = name
    parts = command.commands.values() if isinstance(command, TyperGroup) else [command]
    for each in parts:
        each.params += typer.main.get_command(_shared).params
    for each in {command, *parts}:
        each.help = _flowing(each.help or "")
    return command


def _flowing(text: str) -> str:
    """A docstring whose paragraphs are a line each, and its examples a paragraph.

    typer takes the indentation off the line after the first paragraph: an empty one
    there keeps that of the examples.
    """
    joined = re.sub(r"(?<=\S)\n(?=\S)", " ", text)
    return joined.replace(":\n ", ":\n\n ").replace("\n\n", "\n\n\n\n", 1)


_shared = typer.Typer(add_completion=False)


def _begin(ctx: typer.Context, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        document.begin()


@_shared.command()
def _options(
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            callback=_begin,
            expose_value=False,
            help="Print what is found as JSON, and the rest on standard error.",
        ),
    ] = False,
) -> None:
    """The options of every command."""


_HELP: Final = """Tensor kernels that you can read, tune and trust.

Examples:
    tlang show softmax
    tlang tune dense --shape 64x784,512x784
"""

app = typer.Typer(
    cls=Commands,
    help=_flowing(_HELP),
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _about(
    ctx: typer.Context,
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit."
    ),
) -> None:
    if version:
        typer.echo(f"tensorlang {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def guarded(command: Callable[[], object], given: Sequence[str] = ()) -> int:
    """Run a command and return its exit code; print user errors instead of raising.

    With `--json` among the arguments `given`, what it found is printed as well, and the
    error is a part of that.
    """
    try:
        with document.printed():
            code = _explained(command, given)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        # typer turns a broken pipe into SystemExit with the code of a failed check
        if BrokenPipeError not in (type(end), type(end.__context__)):
            raise
        # the reader is gone: keep Python's final flush from raising again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    return code


def _explained(command: Callable[[], object], given: Sequence[str]) -> int:
    """Run a command and return its exit code; errors of users are sentences."""
    try:
        code = command()
    except (KeyboardInterrupt, typer.Abort):
        return _failed("stopped", given, INTERRUPTED)
    except _USAGE_ERROR as problem:
        return _failed(_usage(problem), given, MISTAKE)
    except BrokenPipeError:
        raise
    except OSError as problem:
        said = f"{problem.filename or 'a file'}: {problem.strerror or problem}"
        return _failed(said, given, MISTAKE)
    except (TensorlangError, MemoryError) as problem:
        said = str(problem) or "there is not enough memory"
        return _failed(said, given, MISTAKE)
    except Exception as problem:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        return _failed(
            f"{type(problem).__name__}: {problem} (an internal error; "
            f"{TRACEBACK_VARIABLE}=1 shows the traceback)",
            given,
            FAILED,
        )
    return code if isinstance(code, int) else 0


def _failed(sentence: str, given: Sequence[str], code: int) -> int:
    """Say what is wrong, in the document too if there is one; the exit code."""
    if "--json" in given and not document.wanted():  # the option was not reached
        document.begin()
    document.found("error", " ".join(sentence.split()))
    _complain(sentence)
    return code


def _usage(problem: Any) -> str:
    """A usage error, with a pointer to the command's help."""
    ctx = getattr(problem, "ctx", None)
    path = ctx.command_path if ctx is not None else "tlang"
    said = str(problem.format_message()).rstrip(". \n")
    return f"{said}; see {path} --help"


def _complain(sentence: str) -> None:
    typer.echo(f"tlang: {' '.join(sentence.split())}", err=True)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"warning: {message}")
