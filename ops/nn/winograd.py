"""Where Winograd's algorithms serve a convolution: what they may lose, what they cost.

Their error grows with the tile (`winograd_matrices`), so a caller has to allow it: with
`tolerance`, which a workload holds as the largest one that an algorithm declares, so
that calls of other tolerances share its kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.nn import convolution_plans as plans
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, Blocks, blocks
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, WINDOW

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Plan, Shape
    from tensorlang.workload import Workload

NONFUSED: Final = {4: "winograd43_nonfused", 2: "winograd23_nonfused"}
_WORTH: Final = {4: 32, 2: 128}  # channels
NAMES: Final = {2: "winograd23", 4: "winograd43"}
TOLERANCE: Final = "tolerance"
_FEW: Final = 16  # channels, below which vectors of them are filled up with zeros
_NEAR: Final = 1 << 20  # bytes of weights that a second-level cache holds


@dataclass(frozen=True, slots=True)
class _Cycles:
    """What transforms take on a core with vectors of 16, measured on Zen 5.

    Attributes:
        image: A tile of a vector of channels, from the image to its points.
        result: A tile of a vector of outputs, from its points to the result.
        weight: A vector of outputs for one input.
    """

    image: int
    result: int
    weight: int


_CYCLES: Final = {2: _Cycles(95, 90, 160), 4: _Cycles(330, 290, 240)}
_DIRECT: Final = 1.1  # cycles of the plain sum over those of its products
_ROWS: Final = 14  # tiles of a register tile
_CHAIN: Final = 4  # cycles of an addition, which the next one waits for
_FAR: Final = 10  # cycles to load two vectors of weights from the third-level cache


def forward(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv(x, w[, b])`, with the tolerance where it changes anything."""
    plan = plans.forward(id, rank, shapes, dtypes, asked)
    given = asked.get(TOLERANCE) or 0.0
    allowed = [t.tolerance for t in TRANSFORMS.values() if t.tolerance <= given]
    if not allowed or not _fits(plan):
        return plan
    return replace(plan, attributes={**plan.attributes, TOLERANCE: max(allowed)})


def _fits(plan: Plan) -> bool:
    """Whether these are windows of 3 by 3 a pixel apart, channels first, in f32."""
    given, w = plan.attributes, plan.shapes[1]
    return (
        given["layout"] == "NCHW"
        and w[2:] == (WINDOW, WINDOW)
        and {*given["stride"], *given["dilation"]} == {1}
        and plan.dtypes[0] == "f32"
    )


def serves(m: int) -> Callable[[Workload], bool]:
    """Whether F(m, 3) is allowed for a workload."""

    def allowed(workload: Workload) -> bool:
        given = workload.named.get(TOLERANCE)
        return isinstance(given, float) and given >= TRANSFORMS[m].tolerance

    return allowed


def serves_tiles(m: int) -> Callable[[Workload], bool]:
    """Whether F(m, 3) in stages is allowed, of whole tiles, and worth it.

    Transformed images are (m + 2)^2 / m^2 times as large, and written and read twice.
    """

    def allowed(workload: Workload) -> bool:
        if not serves(m)(workload):
            return False
        (_, inputs, *size), (outputs, *_) = workload.shapes[:2]
        padding: Any = workload.named["padding"]
        sides = zip(size, padding[::2], padding[1::2], strict=True)
        made = [n + low + high - WINDOW + 1 for n, low, high in sides]
        return min(inputs, outputs) >= _WORTH[m] and not any(n % m for n in made)

    return allowed


def preferred(workload: Workload) -> str | None:
    """The algorithm that is cheapest for one image; None for the plain sum.

    More images only make it cheaper: weights are transformed once.
    """
    costs: dict[float, str | None] = {_plain(workload): None}
    for m, name in NAMES.items():
        if serves(m)(workload):
            costs[_cost(_cut(workload, m))] = name
    return costs[min(costs)]


def _cut(workload: Workload, m: int) -> Blocks:
    (_, inputs, *size), (outputs, *_) = workload.shapes[:2]
    padding: Any = workload.named["padding"]
    return blocks(m, inputs, outputs, tuple(size), padding)


def _plain(workload: Workload) -> float:
    """Cycles of the plain sum for one image."""
    cut = _cut(workload, 2)
    products = cut.inputs * cut.outputs * WINDOW**2
    filled = max(_FEW, cut.outputs) / cut.outputs
    return _DIRECT * filled * cut.results[0] * cut.results[1] * products / (2 * LANES)


def _cost(cut: Blocks) -> float:
    """Cycles for one image, its weights included."""
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
    return products + around + results * groups * LANES * cycles.weight
