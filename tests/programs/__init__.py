"""Random well-formed IR for property tests: expressions of a type, whole functions.

Tests reach this module through the `programs` fixture and draw inside the test:

    @given(data=st.data())
    def test_it(programs, data):
        func = data.draw(programs.functions())

Indices are wrapped into their dimension and no divisor is 0, so nothing here faults by
itself. `functions(runnable=True)` also leaves out what needs a schedule to be right:
concurrent loops, `while`, barriers.
"""

from tensorlang_test_programs import fuzzers, fuzzing, integers
from tensorlang_test_programs.broken_loops import BROKEN_LOOPS
from tensorlang_test_programs.broken_moves import BROKEN_MOVES
from tensorlang_test_programs.broken_shapes import BROKEN_AGAIN, BROKEN_SHAPES
from tensorlang_test_programs.broken_tiles import BROKEN_TILES
from tensorlang_test_programs.broken_warps import BROKEN_WARPS
from tensorlang_test_programs.expressions import (
    FLOATS,
    INTEGERS,
    SCALARS,
    Scope,
    constants,
    expressions,
    places,
)
from tensorlang_test_programs.functions import functions
from tensorlang_test_programs.inputs import arrays
from tensorlang_test_programs.moves import MOVES
from tensorlang_test_programs.nests import Case, nests
from tensorlang_test_programs.trials import outcomes, sound

# rule of LEGALITY -> what goes wrong without it
BROKEN = {
    **BROKEN_LOOPS,
    **BROKEN_TILES,
    **BROKEN_MOVES,
    **BROKEN_WARPS,
    **BROKEN_SHAPES,
}

__all__ = [
    "BROKEN",
    "BROKEN_AGAIN",
    "FLOATS",
    "INTEGERS",
    "MOVES",
    "SCALARS",
    "Case",
    "Scope",
    "arrays",
    "constants",
    "expressions",
    "functions",
    "fuzzers",
    "fuzzing",
    "integers",
    "nests",
    "outcomes",
    "places",
    "sound",
]
