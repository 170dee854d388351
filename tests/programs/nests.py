"""Random loop nests for the tests of scheduling: stages of blocks, one after another.

A `Case` is a verified function and the sizes to run it at; extents are small and mostly
odd.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from tensorlang_test_programs.draft import Draft
from tensorlang_test_programs.expressions import FLOATS, INTEGERS, Draw
from tensorlang_test_programs.in_one_loop import in_one_loop
from tensorlang_test_programs.inputs import KINDS, arrays
from tensorlang_test_programs.stages import STAGES

from tensorlang.errors import InterpreterError
from tensorlang.ir.contents import blocks
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Function, Var, as_expr, seq

TYPES = (*FLOATS[2:], *FLOATS[2:], *INTEGERS, *FLOATS)


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """A function, the values of its scalars in each run, and what else is given.

    Attributes:
        func: The function.
        sizes: Its scalars, of each run.
        values: The kind of the numbers in its arrays: see `inputs`.
        loose: Whether its floats are rounded differently from order to order.
    """

    func: Function
    sizes: tuple[dict[str, int], ...]
    values: str = "small"
    loose: bool = False

    def __repr__(self) -> str:
        return f"{self.func!r} at {self.sizes}"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))  # as hypothesis prints what failed


@st.composite
def nests(draw: Draw) -> Case:
    """A function of one to three stages, each reading what came before."""
    n = Var("n")
    symbolic = draw(st.integers(0, 3)) == 3
    counts = draw(st.lists(st.integers(1, 7), min_size=2, max_size=3, unique=True))
    extents = [*map(as_expr, counts), *([n] if symbolic else [])]
    made = Draft(
        draw,
        draw(st.sampled_from(TYPES)),
        extents,
        (n,) if symbolic else (),
        draw(st.sampled_from(KINDS)),
    )
    for name in "xw"[: draw(st.integers(1, 2))]:
        made.sources.append(made.param(name, "in", made.shape(3)))
    count = draw(st.sampled_from([1, 2, 3, 2, 3]))
    for number in range(count):
        if made.chance(4):
            made.dtype = draw(st.sampled_from(TYPES))
        stage = draw(st.sampled_from(STAGES))
        stage(made, str(number), last=number == count - 1)
    if made.chance(4):
        in_one_loop(made)
    func = Function("nest", tuple(made.params), made.scalars, seq(*made.stmts))
    case = Case(func, ({},), made.values, made.loose)
    if not symbolic:
        return case
    sizes = draw(st.sampled_from([(1, 6), (3, 5), (4, 7), (0, 2)]))
    if 0 in sizes and not _may_be_empty(case, n):
        sizes = (1, 2)
    return replace(case, sizes=tuple({"n": size} for size in sizes))


def _may_be_empty(case: Case, size: Var) -> bool:
    """Whether a size may be 0: nothing folds over it, or divides by it."""
    for block in blocks(case.func):
        if any(a.kind == "reduction" and a.extent == size for a in block.axes):
            return False
    try:
        run(case.func, *arrays(case.func, {size.name: 0}), **{size.name: 0})
    except InterpreterError:
        return False
    return True
