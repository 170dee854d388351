"""Random schedules, in the interpreter and on every target that is here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from tensorlang_test_programs.fuzzing import Fuzzer
from tensorlang_test_programs.trials import Trial, after, built, code, trials

from tensorlang import targets


def make(*kinds: str) -> Fuzzer:
    """The fuzzer of schedules, compiled for these targets, or else for all present.

    With `"interpreter"` they are for none.
    """
    kinds = kinds or tuple(
        k for k in ("llvm", "opencl") if not targets.availability()[k]
    )
    compiled = [kind for kind in kinds if kind != "interpreter"]

    def chosen(trial: Trial) -> list[str]:
        """The target that a trial is compiled for: of several, the last one seldom."""
        if "bind" in trial.words:  # threads of a GPU
            return [kind for kind in compiled if kind != "llvm"][:1]
        return compiled[-1 if trial.turn == 3 else 0 :][:1]

    def check(trial: Trial) -> Iterable[str]:
        (func, expected), words = after(trial), list(trial.words)
        for kind in chosen(trial):
            words += [f"on {kind}", *built(func, trial.case, expected, _target(kind))]
        return words

    return Fuzzer(trials(), check, lambda trial: code(trial, chosen(trial)))


@cache
def _target(kind: str) -> Any:
    """A target by name, of two threads where that can be chosen."""
    found = targets.get(kind)
    return found.with_threads(2) if kind == "llvm" else found
