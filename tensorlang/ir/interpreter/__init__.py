"""The interpreter: executes any function on NumPy arrays, and finds its faults.

It is the meaning of the IR (see `tensorlang.ir.nodes`). `run(func, *arrays)` is all
that other parts need; `ALL_CHECKS` names what it looks for, `RunReport` what it saw.
"""

from __future__ import annotations

from tensorlang.ir.interpreter.calling import run
from tensorlang.ir.interpreter.state import ALL_CHECKS, CHECKS, RunReport

__all__ = ["ALL_CHECKS", "CHECKS", "RunReport", "run"]
