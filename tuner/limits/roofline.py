"""Kernel times as fractions of the machine's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.errors import TensorlangError
from tensorlang.ir.cost import cost_at
from tensorlang.machine.limits import limits_of

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload


def work(op: Operator, workload: Workload) -> float:
    """Operations and bytes of a call, to compare workloads; 0 if data decides."""
    try:
        return float(sum(cost_at(op.function(workload), op.sizes(workload))))
    except TensorlangError:
        return 0.0


def fraction(op: Operator, workload: Workload, target: Target, seconds: float) -> float:
    """The fraction of the tightest limit reached, arithmetic or memory traffic.

    0 where limits were not measured, as on GPUs.
    """
    target = target.with_threads(workload.threads or target.threads)
    found = limits_of(op.function(workload), op.sizes(workload), target, seconds)
    return found.reached
