"""A random schedule, step by step: each is refused, or keeps the meaning exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.moves import steps
from tensorlang_test_programs.nests import Case

from tensorlang.errors import ScheduleError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Const, Function, Var
from tensorlang.ir.parser import parse
from tensorlang.ir.printer import show
from tensorlang.ir.verifier import verify
from tensorlang.scheduling.trace import Step, Trace

FILL = 77  # what an output holds before the run


@dataclass(slots=True)
class Tally:
    """What was drawn in a run of many cases."""

    cases: int = 0
    drawn: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        rows = [f"{self.cases} cases, {self.share:.0%} of all steps accepted"]
        rows += [f"{n:20} {self.accepted[n]:5} of {k}" for n, k in self.drawn.items()]
        return "\n".join(rows)

    @property
    def share(self) -> float:
        return self.accepted.total() / max(self.drawn.total(), 1)


def arrays(func: Function, sizes: dict[str, int], seed: int = 0) -> list[Any]:
    """An array for each parameter, of small integers."""
    rng = np.random.default_rng(seed)
    made = []
    for param in func.params:
        shape = [_size(extent, sizes) for extent in param.buffer.shape]
        values = rng.integers(-4, 5, shape)
        if param.role == "out":
            values = np.full(shape, FILL)
        made.append(values.astype(param.buffer.dtype.numpy))
    return made


def _size(extent: Any, sizes: dict[str, int]) -> int:
    if isinstance(extent, Var):
        return sizes[extent.name]
    assert isinstance(extent, Const)
    return int(extent.value)


def outcomes(func: Function, case: Case) -> list[list[Any]]:
    """The arrays after a run at each of the sizes, all checks on."""
    found = []
    for sizes in case.sizes:
        found.append(arrays(case.func, sizes))
        run(func, *found[-1], **sizes)
    return found


def sound(func: Function, case: Case, expected: list[list[Any]]) -> None:
    """The function is well-formed, prints, parses, and computes what is expected."""
    verify(func)
    assert parse(show(func)) == func, "it does not parse back"
    for wanted, got in zip(expected, outcomes(func, case), strict=True):
        for param, a, b in zip(func.params, wanted, got, strict=True):
            np.testing.assert_array_equal(b, a, err_msg=param.buffer.name)


def trial(draw: Draw, case: Case, tally: Tally, most: int = 6) -> Function:
    """The function after up to `most` random steps that were accepted.

    Raises:
        AssertionError: a step did not keep the meaning, or failed in another way than
            by a `ScheduleError`; the message has the program and the trace.
    """
    func, trace = case.func, Trace()
    expected = outcomes(func, case)
    for _ in range(draw(st.integers(3, most))):
        step = draw(steps(func))
        if step is None:
            continue
        tally.drawn[step.name] += 1
        try:
            changed, _ = step.apply(func)
            sound(changed, case, expected)
        except ScheduleError:
            continue
        except Exception as error:
            raise AssertionError(_report(case, trace, step, func)) from error
        tally.accepted[step.name] += 1
        func, trace = changed, trace.then(step)
    assert Trace.from_json(trace.to_json()).replay(case.func) == func
    tally.cases += 1
    return func


def _report(case: Case, trace: Trace, step: Step, before: Function) -> str:
    return (
        f"\n{show(case.func)}\nat {case.sizes}\n\n{trace}\n{step}   # this one\n\n"
        f"just before it:\n{show(before)}"
    )
