"""Scheduled functions as they are shown: simplified, with an index named once.

    for i_0 in range((n // 6 * 6 + 5) // 6):    for i in range(n // 6):
        for i_1 in range(1):                        for i_1 in unrolled(6):
            for i_2 in unrolled(6):         ->          with block(
                with block(                                 "y",
                    "y",                                    vi=spatial(n, i * 6 + i_1),
                    vi=spatial(n, (i_0 + i_1)           ):
                        * 6 + i_2),
                ):

It means the same, and its text parses; what records know is the schedule's own text.
"""

from __future__ import annotations

from tensorlang.codegen.names import Names
from tensorlang.codegen.repetitions import name_repetitions
from tensorlang.ir import nodes as ir
from tensorlang.ir.simplification.simplify import simplify_function


def simplified_schedule(function: ir.Function) -> ir.Function:
    """A scheduled function without loops of one trip, and with repeated sizes named."""
    simple = simplify_function(function)
    return name_repetitions(simple, Names(simple))
