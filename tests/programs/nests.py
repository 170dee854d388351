"""Random loop nests for the tests of scheduling: stages of blocks, one after another.

A `Case` is a verified function and the sizes to run it at; extents are small and mostly
odd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tensorlang_test_programs.draft import Draft
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.stages import STAGES

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Function, Var, as_expr, seq

TYPES = tuple(map(DType, ("f32", "i32", "f32", "i32", "i64", "u8", "f64")))


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """A function, and the values of its scalars in each run."""

    func: Function
    sizes: tuple[dict[str, int], ...]

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
    )
    for name in "xw"[: draw(st.integers(1, 2))]:
        made.sources.append(made.param(name, "in", made.shape(3)))
    count = draw(st.sampled_from([1, 2, 3, 2, 3]))
    for number in range(count):
        stage = draw(st.sampled_from(STAGES))
        stage(made, str(number), last=number == count - 1)
    func = Function("nest", tuple(made.params), made.scalars, seq(*made.stmts))
    sizes = draw(st.sampled_from([(1, 6), (3, 5), (4, 7)])) if symbolic else (0,)
    return Case(func, tuple({"n": value} if symbolic else {} for value in sizes))
