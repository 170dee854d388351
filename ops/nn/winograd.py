"""When Winograd's algorithms serve a convolution: tolerance and cost model.

Their error grows with the tile (`winograd_matrices`), so a caller has to allow it by
`tolerance`, which a workload rounds down to a level that an algorithm declares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

from tensorlang.ops.algorithms import Faster
from tensorlang.ops.nn import convolution_layouts, winograd_model
from tensorlang.ops.nn.convolution_problem import Problem, of
from tensorlang.ops.nn.winograd_blocks import blocks
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, WINDOW
from tensorlang.ops.spec.signature import Static
from tensorlang.targets import Target
from tensorlang.workload import Workload

Tolerance: TypeAlias = Annotated[
    float | None,
    Static(
        (float,),
        (None,),
        "None or a relative error from 0",
        levels=(0.0, *(t.tolerance for t in TRANSFORMS.values())),
    ),
]
NONFUSED: Final = {4: "winograd43_nonfused", 2: "winograd23_nonfused"}
_WORTH: Final = {4: 32, 2: 128}  # channels
NAMES: Final = {2: "winograd23", 4: "winograd43"}


def serves(m: int) -> Callable[[Workload], bool]:
    """Predicate: F(m, 3) is allowed for a workload, of f32; see `serves_problem`."""

    def allowed(workload: Workload) -> bool:
        given: Any = workload.named.get("tolerance")
        return workload.dtypes[0] == "f32" and serves_problem(m, of(workload), given)

    return allowed


def serves_problem(m: int, p: Problem, tolerance: float | None) -> bool:
    """Whether F(m, 3) is within a tolerance and computes a convolution.

    It needs 3x3 windows, stride and dilation 1, one group, and channels first.
    """
    if (tolerance or 0.0) < TRANSFORMS[m].tolerance:
        return False
    plain = {*p.stride, *p.dilation} == {1} and p.groups == 1 and p.first
    return plain and p.window == (WINDOW, WINDOW)


def serves_tiles(m: int) -> Callable[[Workload], bool]:
    """Predicate: non-fused F(m, 3) is allowed, tiles are whole, and it is worth it.

    Transformed images are (m + 2)^2 / m^2 times as large, and written and read twice.
    """

    def allowed(workload: Workload) -> bool:
        if not serves(m)(workload):
            return False
        p = of(workload)
        return min(p.inputs, p.outputs) >= _WORTH[m] and not any(
            n % m for n in p.result
        )

    return allowed


def fastest(m: int) -> Faster:
    """Predicate: F(m, 3) is predicted to be the fastest for one image.

    Larger batches only make it faster, as weights are transformed once.
    """

    def faster(workload: Workload, target: Target, _: Collection[int]) -> bool:
        return chosen(workload, target) == m

    return faster


def chosen(workload: Workload, target: Target) -> int | None:
    """The m of the fastest F(m, 3) for one image; None for the direct sum."""
    given: Any = workload.named.get("tolerance")
    if workload.dtypes[0] != "f32" or not given:
        return None
    return cheapest(of(workload), given, target)


@lru_cache(maxsize=256)
def cheapest(
    p: Problem, tolerance: float | None, target: Target, *, constant: bool = False
) -> int | None:
    """The m of the F(m, 3) predicted to be fastest; None for the direct sum.

    Args:
        p: The convolution.
        tolerance: Error allowed.
        target: Where it runs.
        constant: Whether the windows are constant, and transformed ahead.
    """
    allowed = [m for m in NAMES if serves_problem(m, p, tolerance)]
    costs: dict[int | None, float] = {
        m: winograd_model.cycles(blocks(m, p), target, constant=constant)
        for m in allowed
    }
    if allowed:
        costs[None] = min(convolution_layouts.predicted(p, "f32", target))
    return min(costs, key=costs.__getitem__, default=None)
