"""When Winograd's algorithms serve a convolution: tolerance and cost model.

Their error grows with the tile (`winograd_matrices`), so a caller has to allow it by
`tolerance`, which a workload rounds down to a level that an algorithm declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ops.nn.convolution_problem import Problem, of
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, Blocks, blocks
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, WINDOW
from tensorlang.ops.spec.signature import Static
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
_FEW: Final = 16  # channels, below which vectors are zero-padded
_NEAR: Final = 1 << 20  # bytes of weights that fit the L2 cache


@frozen
class _Cycles:
    """Cycles of the transforms with vectors of 16 lanes, measured on Zen 5."""

    image: int  # input transform of a tile, per vector of channels
    result: int  # output transform of a tile, per vector of outputs
    weight: int  # weight transform of a vector of outputs, per input


_CYCLES: Final = {2: _Cycles(95, 90, 160), 4: _Cycles(330, 290, 240)}
_DIRECT: Final = 1.1  # cycles of the direct sum relative to its FMAs
_ROWS: Final = 14  # rows (tiles) of a register tile
_CHAIN: Final = 4  # latency of an addition, in cycles
_FAR: Final = 10  # cycles to load two vectors of weights from the L3 cache


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


def preferred(workload: Workload) -> str | None:
    """The cheapest algorithm for one image; None for the direct sum.

    Larger batches only make it cheaper, as weights are transformed once.
    """
    given: Any = workload.named.get("tolerance")
    if workload.dtypes[0] != "f32" or not given:
        return None
    m = cheapest(of(workload), given)
    return None if m is None else NAMES[m]


def cheapest(
    p: Problem, tolerance: float | None, *, constant: bool = False
) -> int | None:
    """The m of the cheapest F(m, 3) for one image; None for the direct sum.

    Args:
        p: The convolution.
        tolerance: Error allowed.
        constant: Whether the windows are constant, and transformed ahead.
    """
    costs: dict[int | None, float] = {}
    for m in NAMES:
        if serves_problem(m, p, tolerance):
            cut = blocks(m, p)
            costs[m] = _cost(cut) + (0 if constant else _of_windows(cut))
    if costs:
        costs[None] = _plain(p)
    return min(costs, key=costs.__getitem__, default=None)


def _plain(p: Problem) -> float:
    """Cycles of the direct sum for one image."""
    products = p.inputs * p.outputs * WINDOW**2
    filled = max(_FEW, p.outputs) / p.outputs
    return _DIRECT * filled * p.result[0] * p.result[1] * products / (2 * LANES)


def _cost(cut: Blocks) -> float:
    """Cycles for one image with transformed weights."""
    cycles, points = _CYCLES[cut.transforms.outputs], cut.transforms.points**2
    groups, strips = -(-cut.inputs // LANES), -(-cut.outputs // STRIP)
    far = 4 * points * groups * LANES * strips * STRIP > _NEAR
    pieces = -(-cut.tiles // _ROWS)
    rows = -(-cut.tiles // pieces)
    rows = max(rows, _FAR if far else _CHAIN) + (pieces - 1) * max(rows, _CHAIN)
    products = cut.count * points * strips * groups * LANES * rows * _DIRECT
    tiles = cut.count * cut.tiles
    results = strips * STRIP // LANES
    around = tiles * (groups * cycles.image + results * cycles.result)
    return products + around


def _of_windows(cut: Blocks) -> float:
    """Cycles of the weight transform."""
    pieces = -(-cut.outputs // STRIP) * (STRIP // LANES) * -(-cut.inputs // LANES)
    return pieces * LANES * _CYCLES[cut.transforms.outputs].weight
