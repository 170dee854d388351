"""Mistakes that were made once, planted again: random schedules come upon each."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tensorlang.scheduling.analysis import dependence
from tensorlang.scheduling.steps import share, storage, tensorize

CASES = 1500
BATCHES = 4  # at most, as what is drawn depends on the modules that are loaded

# what went wrong -> steps that are drawn often, the function, what was missing in it
MISTAKES: dict[str, tuple[str, Any, str, str]] = {
    "parts of a fused sum in another order": (
        "fused_and_turned",
        dependence._of_a_fold,
        "begun = block.init == ir.Seq(()) or found.loops <= first",
        "begun = True",
    ),
    "a temporary moved out of a parallel loop": (
        "moved_out",
        storage.own_part,
        "place[: len(path) - 1] != path[:-1]",
        "False",
    ),
    "a buffer shared with itself": (
        "copied_twice",
        share.another,
        "buffer == other",
        "False",
    ),
    "an instruction for a tile that is not whole": (
        "tensorized",
        tensorize.no_guard_inside,
        "free_vars(cond) & inner",
        "False",
    ),
}


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, str], None]:
    """Run a copy of a function in which one piece of text is another."""

    def into(function: Any, old: str, new: str) -> None:
        rule: FunctionType = inspect.unwrap(function)
        text = textwrap.dedent(inspect.getsource(rule))
        text = text[text.index("def ") :]
        assert text.count(old) == 1
        copies: dict[str, Any] = {}
        flags = __future__.annotations.compiler_flag
        exec(compile(text.replace(old, new), rule.__name__, "exec", flags), copies)
        monkeypatch.setattr(rule, "__code__", copies[rule.__name__].__code__)

    return into


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_random_schedules_find_it(
    mistake: str,
    plant: Callable[[Any, str, str], None],
    programs: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe, *given = MISTAKES[mistake]
    plant(*given)
    often = (getattr(programs.recipes, recipe),)
    monkeypatch.setattr(programs.trials, "RECIPES", often)
    fuzzer = programs.fuzzers.fuzzer("schedules", "interpreter")

    def search() -> None:
        for start in range(BATCHES):
            programs.fuzzing.search(fuzzer, start, CASES, shrunk=False)

    with pytest.raises(programs.fuzzing.CaseFailedError):
        search()
