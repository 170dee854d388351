"""What the shell completes: operators, targets, stages, records, studies.

Nothing here may fail or print: a shell has no place for it.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from functools import wraps
from typing import Final

from tensorlang import lazy
from tensorlang import records as held
from tensorlang.errors import TensorlangError

with lazy.modules(__name__):  # these load NumPy and Optuna
    from tensorlang import ops, targets
    from tensorlang.tuner.storage import databases, studies

Completion = tuple[str, str]
Completer = Callable[[str], list[Completion]]

_WORDS: Final = "COMP_WORDS"  # of bash, a line each
_PLACE: Final = "COMP_CWORD"
_LINE: Final = "_TYPER_COMPLETE_ARGS"  # of fish and zsh, as far as the cursor
# what is before each word that Typer prints for a shell
_BEGINS: Final = {"fish": r"^(?=.)", "zsh": r"^(_arguments .*\(\()?\""}
_CONFIGURATIONS: Final = {"default": "what no record changes", "record": "what runs"}


def of_shell(shell: str) -> AbstractContextManager[None]:
    """What completes for a shell as it takes words."""
    return _of_bash() if shell == "bash" else _of_whole_words(shell)


@contextmanager
def _of_bash() -> Iterator[None]:
    """Complete for bash, which breaks words at `:` and `=`.

        tlang show --target cuda : sm_8     ->     tlang show --target cuda:sm_8

    Typer gets whole words, and bash the rest of a completion.
    """
    words = os.environ.get(_WORDS, "").split("\n")[: int(os.environ[_PLACE]) + 1]
    joined = re.sub(r"\n?([:=])\n?", r"\1", "\n".join(words))
    *before, word = joined.split("\n")
    os.environ |= {_WORDS: joined, _PLACE: str(len(before))}
    last = words[-1] if words[-1] not in (":", "=") else ""
    there = word.rpartition("=")[2].removesuffix(last)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        for line in printed.getvalue().splitlines():
            sys.stdout.write(f"{line.removeprefix(there)}\n")


@contextmanager
def _of_whole_words(shell: str) -> Iterator[None]:
    """Complete for fish or zsh, which replace the whole of `--target=cuda:sm_8`."""
    word = os.environ.get(_LINE, "").rpartition(" ")[2]
    there = word[: word.find("=") + 1] if word.startswith("-") else ""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        begins = re.compile(_BEGINS.get(shell, "(?!)"), re.MULTILINE)
        sys.stdout.write(begins.sub(lambda at: at[0] + there, printed.getvalue()))


def _completes(found: Callable[[], Iterable[Completion]]) -> Completer:
    """A completer of the words that begin with what was typed."""

    @wraps(found)
    def complete(incomplete: str) -> list[Completion]:
        try:
            return [(w, said) for w, said in found() if w.startswith(incomplete)]
        except (TensorlangError, OSError):
            return []

    complete.__annotations__ = {"incomplete": str}
    del complete.__wrapped__  # Typer reads the signature
    return complete


@_completes
def operators() -> Iterator[Completion]:
    """Ids and aliases of operators."""
    for op in ops.operators():
        said = (op.__doc__ or "").strip().partition("\n")[0]
        yield from ((name, said) for name in (op.id, *op.aliases))


@_completes
def recorded() -> Iterator[Completion]:
    """Operators with records of the user's."""
    paths = held.all_files(held.user_folder())
    yield from dict.fromkeys((path.stem, "has records") for path in paths)


@_completes
def kinds() -> Iterator[Completion]:
    """Targets, and the architectures that can be compiled for."""
    for kind, problem in targets.availability().items():
        yield kind, "not present" if problem else "present"
    for name in targets.ARCHITECTURES:
        yield f"cuda:{name}", "to compile for"


@_completes
def stored() -> Iterator[Completion]:
    """Numbers of studies in the usual storage."""
    for study in studies.every(databases.default_url()):
        yield str(study.id), study.name


@_completes
def configurations() -> Iterable[Completion]:
    """The configurations that have a name."""
    return _CONFIGURATIONS.items()
