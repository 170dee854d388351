"""The interpreter: executes any function on NumPy arrays, and finds its faults.

It is the meaning of the IR (see `tensorlang.ir.nodes`). `run(func, *arrays)` is all
that most others need; `ALL_CHECKS` names what it looks for, `RunReport` what it saw,
and `as_team` makes lowered code the program of all its threads.
"""

from __future__ import annotations

from tensorlang.ir.interpreter.calling import run
from tensorlang.ir.interpreter.state import ALL_CHECKS, CHECKS, RunReport
from tensorlang.ir.interpreter.team import as_team

__all__ = ["ALL_CHECKS", "CHECKS", "RunReport", "as_team", "run"]
