"""Kernel times as fractions of the machine's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.errors import TensorlangError
from tensorlang.machine.limits import Limits, limits_of

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload


def least(op: Operator, workload: Workload, target: Target) -> float:
    """The least seconds of a call, to compare workloads; 0 if that is not known."""
    try:
        tightest = _limits(op, workload, target).tightest
    except TensorlangError:
        return 0.0
    return tightest.seconds if tightest else 0.0


def fraction(op: Operator, workload: Workload, target: Target, seconds: float) -> float:
    """The fraction of the tightest limit reached, arithmetic or memory traffic.

    0 where limits were not measured, as on GPUs.
    """
    return _limits(op, workload, target, seconds).reached


def _limits(
    op: Operator, workload: Workload, target: Target, seconds: float = 0.0
) -> Limits:
    target = target.with_threads(workload.threads or target.threads)
    return limits_of(op.function(workload), op.sizes(workload), target, seconds)
