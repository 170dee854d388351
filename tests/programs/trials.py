"""A random schedule of a random nest: each step is refused, or keeps the meaning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.inputs import arrays
from tensorlang_test_programs.moves import steps
from tensorlang_test_programs.nests import Case, nests
from tensorlang_test_programs.recipes import RECIPES, Recipe
from tensorlang_test_programs.views import View

from tensorlang.errors import CodegenError, ScheduleError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Function, Param
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.scheduling.trace import Step, Trace

# within how much results are the same where their order is not fixed
TOLERANCE = {"bf16": 0.1, "f16": 0.02, "f32": 1e-4, "f64": 1e-9}


@dataclass(frozen=True, slots=True, repr=False)
class Trial:
    """A case, the steps that were taken, and the names of those that were refused."""

    def __repr__(self) -> str:
        return "..."  # `code` spells it

    case: Case
    steps: tuple[Step, ...]
    refused: tuple[str, ...]
    turn: int  # 0 to 3, by which targets are chosen

    @property
    def words(self) -> list[str]:
        """What is counted: the steps by their primitives."""
        taken = [step.name for step in self.steps]
        return taken + [f"refused: {name}" for name in self.refused]


@st.composite
def trials(draw: Draw, most: int = 8) -> Trial:
    """A random nest, and up to `most` random steps that its primitives accept."""
    case, turn = draw(nests()), draw(st.integers(0, 3))
    func, taken, refused = case.func, [], []
    recipe: Recipe | None = None
    answer: Any = None
    for _ in range(draw(st.integers(2, most))):
        if recipe is None and draw(st.integers(0, 3)) == 3:
            recipe, answer = draw(st.sampled_from(RECIPES))(draw, View(func)), None
        step = draw(steps(func)) if recipe is None else _next(recipe, answer)
        if step is None:
            recipe = None
            continue
        try:
            func, names = step.apply(func)
        except ScheduleError:
            refused.append(step.name)
            recipe = None
            continue
        except Exception:  # what is no refusal: `after` comes upon it again
            return Trial(case, (*taken, step), tuple(refused), turn)
        taken.append(step)
        answer = View(func), names
    return Trial(case, tuple(taken), tuple(refused), turn)


def _next(recipe: Recipe, answer: Any) -> Step | None:
    try:
        return recipe.send(answer)
    except StopIteration:
        return None


def after(trial: Trial) -> tuple[Function, list[list[Any]]]:
    """The function after all steps, which keep the meaning and go through JSON.

    Returns:
        It, and what it is to compute, as `outcomes` has it.

    Raises:
        AssertionError: they do not.
    """
    func = Trace(trial.steps).replay(trial.case.func)
    expected = outcomes(trial.case.func, trial.case)
    sound(func, trial.case, expected)
    again = Trace.from_json(Trace(trial.steps).to_json())
    assert again.replay(trial.case.func) == func, "its trace does not read back"
    return func, expected


def outcomes(func: Function, case: Case) -> list[list[Any]]:
    """The arrays after a run at each of the sizes, all checks on."""
    found = []
    for sizes in case.sizes:
        found.append(arrays(case.func, sizes, case.values))
        run(func, *found[-1], **sizes)
    return found


def sound(func: Function, case: Case, expected: list[list[Any]]) -> None:
    """The function is well-formed, prints, parses, and computes what is expected."""
    verify(func)
    assert parse(show(func)) == func, "it does not parse back"
    _same(case, expected, outcomes(func, case))


def _same(case: Case, expected: list[list[Any]], found: list[list[Any]]) -> None:
    for wanted, got in zip(expected, found, strict=True):
        for param, a, b in zip(case.func.params, wanted, got, strict=True):
            _equal(b, a, near=_near(case, param), err_msg=param.buffer.name)


def _near(case: Case, param: Param) -> float:
    """Within how much a result is the same: 0 where its order is fixed."""
    return TOLERANCE.get(param.buffer.dtype.name, 0) if case.loose else 0


def _equal(got: Any, wanted: Any, near: float, err_msg: str) -> None:
    """Compare as f64 what is float: NumPy does not know a NaN of bf16."""
    if got.dtype.kind in "fV":
        got, wanted = got.astype("f8"), wanted.astype("f8")
    if near:
        np.testing.assert_allclose(got, wanted, near, near, err_msg=err_msg)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=err_msg)


def built(
    func: Function, case: Case, expected: list[list[Any]], target: Any
) -> list[str]:
    """Compare what the function computes on a target with what is expected.

    Returns:
        A word for each target that cannot express it.
    """
    from tensorlang.runtime import build

    kind = target.kind
    if kind == "llvm" and "bound(" in show(func):
        return []  # threads of a GPU
    try:
        kernel = build(func, target, store=False)
    except CodegenError as error:
        return [f"refused by {kind}: {str(error)[:60]}"]
    found = []
    for sizes in case.sizes:
        found.append(arrays(case.func, sizes, case.values))
        kernel(*found[-1], *(sizes[free.name] for free in kernel.signature.free))
    _same(case, expected, found)
    return []


def code(trial: Trial, targets: Iterable[str] = ()) -> str:
    """Python text that raises at a prompt where a trial shows a fault."""
    func = trial.case.func
    near = max(_near(trial.case, param) for param in func.params)
    same = f"assert all(map(same, got, wanted, [{near}] * 99)), (got, wanted)"
    lines = [
        "import numpy as np",
        "from ml_dtypes import bfloat16",
        "from numpy import inf, nan",
        "from tensorlang import build",
        "from tensorlang.ir.interpreter import run",
        "from tensorlang.ir.text.parser import parse",
        "from tensorlang.ir.verification.verifier import verify",
        "from tensorlang.scheduling import Schedule",
        "def same(a, b, near):",
        "    if a.dtype.kind in 'fV': a, b = a.astype('f8'), b.astype('f8')",
        "    return np.allclose(a, b, near, near, equal_nan=True)",
        "",
        f'f = parse("""\n{show(func)}""")',
        "s = Schedule(f)",
        *map(str, trial.steps),
        "verify(s.function)",
    ]
    for sizes in trial.case.sizes:
        given = ", ".join(map(_spelled, arrays(func, sizes, trial.case.values)))
        lines += [
            f"given, sizes = [{given}], {dict(sizes)}",
            "wanted, got = ([a.copy() for a in given] for _ in range(2))",
            "_ = run(f, *wanted, **sizes), run(s.function, *got, **sizes)",
            same,
        ]
        for target in targets:
            lines += [
                "got = [a.copy() for a in given]",
                f"kernel = build(s.function, {target!r}, store=False)",
                "free = [sizes[scalar.name] for scalar in kernel.signature.free]",
                "_ = kernel(*got, *free)",
                same,
            ]
    return "\n".join(lines) + "\n"


def _spelled(array: Any) -> str:
    """An array as Python text."""
    kind = array.dtype.name
    dtype = kind if kind == "bfloat16" else repr(kind)
    if not array.size:
        return f"np.zeros({array.shape}, {dtype})"
    exact = array.astype("float64") if array.dtype.kind in "fV" else array
    return f"np.array({exact.tolist()}, {dtype})"
