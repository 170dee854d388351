"""A random schedule of a random nest: each step is refused, or keeps the meaning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.moves import steps
from tensorlang_test_programs.nests import Case, nests

from tensorlang.errors import CodegenError, ScheduleError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Const, Function, Var
from tensorlang.ir.parser import parse
from tensorlang.ir.printer import show
from tensorlang.ir.verifier import verify
from tensorlang.scheduling.trace import Step, Trace

FILL = 77  # what an output holds before the run


@dataclass(frozen=True, slots=True, repr=False)
class Trial:
    """A case, the steps that were taken, and the names of those that were refused."""

    def __repr__(self) -> str:
        return "..."  # `code` spells it

    case: Case
    steps: tuple[Step, ...]
    refused: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """What is counted: the steps by their primitives."""
        taken = [step.name for step in self.steps]
        return taken + [f"refused: {name}" for name in self.refused]


@st.composite
def trials(draw: Draw, most: int = 6) -> Trial:
    """A random nest, and up to `most` random steps that its primitives accept."""
    case = draw(nests())
    func, taken, refused = case.func, [], []
    for _ in range(draw(st.integers(2, most))):
        step = draw(steps(func))
        if step is None:
            continue
        try:
            func, _ = step.apply(func)
        except ScheduleError:
            refused.append(step.name)
            continue
        except Exception:  # what is no refusal: `after` comes upon it again
            return Trial(case, (*taken, step), tuple(refused))
        taken.append(step)
    return Trial(case, tuple(taken), tuple(refused))


def after(trial: Trial) -> Function:
    """The function after all steps, which keep the meaning and go through JSON.

    Raises:
        AssertionError: they do not.
    """
    func = Trace(trial.steps).replay(trial.case.func)
    sound(func, trial.case, outcomes(trial.case.func, trial.case))
    again = Trace.from_json(Trace(trial.steps).to_json())
    assert again.replay(trial.case.func) == func, "its trace does not read back"
    return func


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
    _same(func, expected, outcomes(func, case))


def _same(func: Function, expected: list[list[Any]], found: list[list[Any]]) -> None:
    for wanted, got in zip(expected, found, strict=True):
        for param, a, b in zip(func.params, wanted, got, strict=True):
            np.testing.assert_array_equal(b, a, err_msg=param.buffer.name)


def built(func: Function, case: Case, target: Any) -> list[str]:
    """Compare what the function computes on a target with what the interpreter says.

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
        found.append(arrays(case.func, sizes))
        kernel(*found[-1], *(sizes[free.name] for free in kernel.signature.free))
    _same(func, outcomes(func, case), found)
    return []


def code(trial: Trial, targets: Iterable[str] = ()) -> str:
    """Python text that raises at a prompt where a trial shows a fault."""
    func = trial.case.func
    lines = [
        "import numpy as np",
        "from ml_dtypes import bfloat16",
        "from numpy import inf, nan",
        "from tensorlang import build",
        "from tensorlang.ir.interpreter import run",
        "from tensorlang.ir.parser import parse",
        "from tensorlang.ir.verifier import verify",
        "from tensorlang.scheduling import Schedule",
        f'f = parse("""\n{show(func)}""")',
        "s = Schedule(f)",
        *map(str, trial.steps),
        "verify(s.function)",
    ]
    for sizes in trial.case.sizes:
        given = ", ".join(map(_spelled, arrays(func, sizes)))
        named = "".join(f", {name}={size}" for name, size in sizes.items())
        lines += [
            f"given = [{given}]",
            "wanted, got = ([a.copy() for a in given] for _ in range(2))",
            f"_ = run(f, *wanted{named}), run(s.function, *got{named})",
            "np.testing.assert_equal(got, wanted)",
        ]
        for target in targets:
            lines += [
                "got = [a.copy() for a in given]",
                f"_ = build(s.function, {target!r}, store=False)(*got)",
                "np.testing.assert_equal(got, wanted)",
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
