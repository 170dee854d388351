"""Algorithms: the definitions of an operator that the tuner chooses from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field
from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.targets import Target
from tensorlang.workload import Workload

Define: TypeAlias = "Callable[[Workload], ir.Function]"
Faster: TypeAlias = Callable[[Workload, Target, Collection[int]], bool]

DIRECT: Final = "direct"


@frozen
class Algorithm:
    """An algorithm of an operator, with its own IR.

    Attributes:
        name: Its name, unique within the operator.
        define: Gives the IR function for a workload.
        serves: A predicate on workloads that it can compute.
        tolerance: The allowed relative error against the reference; 0 is exact. Float
            reductions, whose order is free, are always allowed that of
            `tensorlang.tuner.correctness.tolerance`: (16 + 4 sqrt(terms)) machine
            epsilons.
        feature: The target feature that it is designed for; targets with it prefer it.
        finite: Whether an infinity, a NaN or a very large input may corrupt results
            that do not depend on it in the reference.
        faster: Whether it is predicted to be faster than the operator's preference, for
            a workload on a CPU that it suits, and positions of arrays that are
            constant: what depends on them alone is computed once.
    """

    name: str
    define: Define
    serves: Callable[[Workload], bool] = field(default=lambda _: True)
    tolerance: float = 0.0
    feature: str = ""
    finite: bool = False
    faster: Faster = field(default=lambda *_: False)

    def suits(self, workload: Workload, features: Collection[str]) -> bool:
        """Whether it can compute a workload, on a target with these features."""
        return (not self.feature or self.feature in features) and self.serves(workload)
