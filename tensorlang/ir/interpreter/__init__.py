"""The interpreter: executes any function on NumPy arrays, and detects its faults.

It defines the semantics of the IR (see `tensorlang.ir.nodes`). Most callers only need
`run(func, *arrays)`; `ALL_CHECKS` names the checks, `RunReport` the statistics, and
`as_team` turns lowered code into the program of all its threads.
"""

from __future__ import annotations

from tensorlang.ir.interpreter.calling import run
from tensorlang.ir.interpreter.state import ALL_CHECKS, CHECKS, RunReport
from tensorlang.ir.interpreter.team import as_team

__all__ = ["ALL_CHECKS", "CHECKS", "RunReport", "as_team", "run"]
