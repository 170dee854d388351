"""Fuzzing: random cases of one kind, each checked, and shrunk where it fails.

A `Fuzzer` is three functions: hypothesis draws a case (and so shrinks it), `check`
raises where the case shows a fault, `code` spells the case as Python that fails in the
same way at a prompt. `search` runs one in this process, as tests do; the command
`python tests/fuzz.py NAME` runs many, in processes of their own.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """One kind of case.

    Attributes:
        cases: What draws a case.
        check: Raises where a case shows a fault; gives words to be counted, of what it
            has come across.
        code: Python text that raises at a prompt as `check` does.
        seconds: The longest that a check may take.
        batch: How many cases a worker process checks.
        memory: The most bytes that such a process may have; 0 for any number.
    """

    cases: SearchStrategy[Any]
    check: Callable[[Any], Iterable[str]]
    code: Callable[[Any], str]
    seconds: int = 60
    batch: int = 100
    memory: int = 0


class CaseFailedError(AssertionError):
    """A case that shows a fault: what was raised, and the code that shows it."""

    def __init__(self, problem: str, code: str) -> None:
        super().__init__(f"{problem}\n\n{code}")
        self.problem, self.code = problem, code


def search(
    fuzzer: Fuzzer,
    start: int,
    count: int,
    *,
    note: Callable[[int, Any], None] | None = None,
    apart_from: int | None = None,
    shrunk: bool = True,
) -> Counter[str]:
    """Check as many cases; the same ones for the same `start`.

    Args:
        fuzzer: What is fuzzed.
        start: Where the random numbers start.
        count: How many cases.
        note: Told each case before it is checked, and its number.
        apart_from: Leave out the cases before this number, and check each of the others
            in a process of its own, which may abort or hang.
        shrunk: Whether a failing case is made as simple as it gets.

    Returns:
        How often each word was given by the checks, and the number of `cases`.

    Raises:
        CaseFailedError: a case shows a fault; if `shrunk`, the simplest one found.
    """
    seen: Counter[str] = Counter()
    check = fuzzer.check if apart_from is None else partial(_apart, fuzzer)

    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        phases=(Phase.generate, *([Phase.shrink] if shrunk else [])),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(case=fuzzer.cases)
    def each(case: Any) -> None:
        seen["cases"] += 1
        if note is not None:
            note(seen["cases"], case)
        if apart_from is not None and seen["cases"] < apart_from:
            return
        try:
            seen.update(check(case))
        except Exception as error:
            raise CaseFailedError(_told(error), fuzzer.code(case)) from error

    each()
    return seen


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


class CheckDiedError(Exception):
    """A check that ended its process, or never ended."""


def _apart(fuzzer: Fuzzer, case: Any) -> list[str]:
    """`check` in a process of its own."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    child = fork.Process(target=_answer, args=(fuzzer, case, there))
    child.start()
    there.close()
    child.join(fuzzer.seconds)
    if child.is_alive():
        child.kill()
        raise CheckDiedError(f"it goes on for more than {fuzzer.seconds} s")
    if child.exitcode:
        raise CheckDiedError(f"its process ended with code {child.exitcode}")
    words, error = here.recv()
    if error is not None:
        raise CheckDiedError(error)
    return words  # type: ignore[no-any-return]


def _answer(fuzzer: Fuzzer, case: Any, to: Any) -> None:
    faulthandler.disable()  # an abort is a finding, told in its place
    try:
        to.send((list(fuzzer.check(case)), None))
    except Exception as error:
        to.send(([], _told(error)))
