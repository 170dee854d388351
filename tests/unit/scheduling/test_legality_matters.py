"""Every rule refuses a step which goes visibly wrong once the rule is off."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.scheduling import LEGALITY
from tensorlang.scheduling.analysis.legality import disabled


@pytest.mark.parametrize("rule", sorted(LEGALITY))
def test_without_the_rule_a_step_goes_wrong(
    rule: str,
    programs: ModuleType,
    same_meaning: Callable[..., None],
    wrong: Callable[..., None],
) -> None:
    _goes_wrong(rule, programs.BROKEN[rule], same_meaning, wrong)


def test_other_primitives_ask_for_the_same_rules(
    programs: ModuleType,
    same_meaning: Callable[..., None],
    wrong: Callable[..., None],
) -> None:
    for rule, broken in programs.BROKEN_AGAIN:
        _goes_wrong(rule, broken, same_meaning, wrong)


def _goes_wrong(
    rule: str,
    broken: Any,
    same_meaning: Callable[..., None],
    wrong: Callable[..., None],
) -> None:
    func = parse(broken.text)
    verify(func)
    same_meaning(func, func, **broken.sizes)
    with pytest.raises(ScheduleError, match=rf"\[rule: {rule}\]"):
        broken.refused.apply(func)
    with disabled(rule):
        after, _ = broken.refused.apply(func)
    for step in broken.after:
        after, _ = step.apply(after)
    wrong(func, after, **broken.sizes)


def test_every_rule_has_such_a_program(programs: ModuleType) -> None:
    assert programs.BROKEN.keys() == LEGALITY.keys()
