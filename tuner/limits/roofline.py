"""Kernel times as fractions of the machine's limits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tensorlang.errors import TensorlangError
from tensorlang.ir.cost import cost_at
from tensorlang.tuner.limits.ceilings import Ceilings, ceilings

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload


@cache
def _limits(threads: int) -> Ceilings:
    return ceilings(threads, rounds=2)


def work(op: Operator, workload: Workload) -> float:
    """Operations and bytes of a call, to compare workloads; 0 if data decides."""
    try:
        return float(sum(cost_at(op.function(workload), op.sizes(workload))))
    except TensorlangError:
        return 0.0


def fraction(op: Operator, workload: Workload, target: Target, seconds: float) -> float:
    """The fraction of the tightest limit reached, arithmetic or memory traffic.

    0 on a GPU, whose limits are not measured here.
    """
    if target.model == "simt" and not target.arch.startswith("cpu"):
        return 0.0
    sizes = op.sizes(workload)
    floats, integers, read, written = cost_at(op.function(workload), sizes)
    limits = _limits(workload.threads or target.threads)
    least = max(
        floats / limits.fma,
        integers / limits.integer_mix,
        (read + written) / max(limits.fill, limits.nontemporal_fill),
    )
    return least / seconds if seconds else 0.0
