"""Windowed products, found by their accesses: convolutions and their gradients.

    frame[b, i, j, c] = ...                     a copy of an operand
    sums[b, i, j, o] += frame[b, i * 2 + ky, j * 2 + kx, c] * w[c, ky, kx, o]
    y[b, i, j, o] = max(sums[b, i, j, o] + bias[o], 0)

The loops of such a product are those of a batched matrix product (`batch`, `m`, `n`,
`k`), and the loops of its windows. No name of a buffer or of a loop matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import blocks, free_vars, reads, writes
from tensorlang.ir.nodes import Block, Buffer, Load, Reduce, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.stages import (
    Stage,
    is_elementwise,
    is_product,
    stages,
    variables,
)
from tensorlang.scheduling import Schedule

T = TypeVar("T")


@frozen
class Product:
    """A sum of products of images, read by windows, with another operand."""

    stage: Stage
    image: Load  # load of the images
    other: Load  # other load: a filter, or the gradient of a result
    batch: tuple[str, ...]  # loops over the result that index both operands: groups
    m: tuple[str, ...]  # loops over the result that index only the images
    n: tuple[str, ...]  # loops over the result that index only the other operand
    k: tuple[str, ...]  # summed loops that index both operands
    # loops over windows: the result's, in one index of the images with taps
    places: tuple[str, ...]
    taps: tuple[str, ...]  # summed loops in one index of the images with places
    # other loops over the result, in sums of indices in both operands
    phases: tuple[str, ...]
    # Whether the other operand is a filter, the same for all images. Otherwise images
    # are summed, or it has one of each: a gradient of weights.
    filters: bool

    @property
    def name(self) -> str:
        """The block's name."""
        return self.stage.name

    @property
    def output(self) -> Buffer:
        """The sums."""
        return self.stage.output

    def axes(self, loops: Sequence[str]) -> list[Var]:
        """The axes that loops drive."""
        return [self.stage.axis(x) for x in self.stage.loops if x.var.name in loops]

    @property
    def rank(self) -> int:
        """The number of dimensions of the images besides batch and channels."""
        return len(self.taps)

    @property
    def depthwise(self) -> bool:
        """Whether each channel is convolved separately."""
        return not self.n

    @property
    def lines(self) -> bool:
        """Whether neighbours of a line are contiguous: channels-first layout."""
        return not isinstance(self.image.indices[-1], Var)


def products(s: Schedule) -> list[Product]:
    """The windowed products of a function, in program order."""
    found = (_product(stage) for stage in stages(s.function))
    return [product for product in found if product]


def makers(s: Schedule, buffer: Buffer) -> list[Stage]:
    """The injective stages that make an operand from the function's inputs, in order.

    Each is a copy of one buffer: padded, permuted or in another element type.
    """
    made = next((x for x in stages(s.function) if x.output == buffer), None)
    if made is None or made.driven("reduction"):
        return []
    of = {load.buffer for load in made.loads}
    return [*(makers(s, *of) if len(of) == 1 else ()), made]


def rearranged(s: Schedule, buffer: Buffer) -> str | None:
    """The block that makes an operand, unless it only converts elements."""
    found = makers(s, buffer)
    return found[-1].name if found and not is_elementwise(found[-1]) else None


def readers(s: Schedule, *names: str) -> list[str]:
    """The blocks that read one of the buffers with these names, but do not write it."""
    return [
        block.name
        for block in blocks(s.function)
        if {buffer.name for buffer in reads(block) - writes(block)} & {*names}
    ]


def stage_reading(s: Schedule, name: str) -> Stage | None:
    """The stage that alone reads a buffer, if any."""
    found = readers(s, name)
    alike = [stage for stage in stages(s.function) if [stage.name] == found]
    return alike[0] if alike else None


def loads(block: Block) -> set[Load]:
    """The loads of a block."""
    return {node for node in walk(block) if isinstance(node, Load)}


def only(found: Sequence[T], what: str) -> T:
    """The only element; ScheduleError if there are several, or none."""
    if len(found) != 1:
        raise ScheduleError(f"this schedule is for one {what}, not {len(found)}")
    return found[0]


def _product(stage: Stage) -> Product | None:
    """Classify a stage's loops; None if it is no windowed product of two operands."""
    update, read = stage.update, stage.loads
    folds = isinstance(update, Reduce) and update.reducer.name == "sum"
    if folds and len(read) == 2 and is_product(stage):
        pairs = (_classified(stage, *read), _classified(stage, *reversed(read)))
        return next((product for product in pairs if product.places), None)
    return None


def _classified(stage: Stage, image: Load, other: Load) -> Product:
    """The classes of a stage's loops, with one of its operands as the images."""
    spatial, summed = _axes(stage, "spatial"), _axes(stage, "reduction")
    own, others = alone(image), alone(other)
    windows = [free_vars(i) for i in image.indices if free_vars(i) & summed.keys()]
    inside = frozenset[Var]().union(*windows)

    batch = spatial.keys() & own & others
    m = (spatial.keys() & own) - variables(other)
    n = (spatial.keys() & others) - variables(image)
    k = summed.keys() & own & others
    places = (spatial.keys() & inside) - variables(other)
    taps, phases = summed.keys() - k, spatial.keys() - batch - m - n - places

    def loops(axes: set[Var]) -> tuple[str, ...]:
        return tuple(name for v, name in {**spatial, **summed}.items() if v in axes)

    return Product(
        stage,
        image,
        other,
        loops(batch),
        loops(m),
        loops(n),
        loops(k),
        loops(places),
        loops(taps),
        loops(phases),
        filters=image.indices[0] in m,
    )


def _axes(stage: Stage, kind: str) -> dict[Var, str]:
    """The loops of a kind, by the axes that they drive."""
    return {stage.axis(loop): loop.var.name for loop in stage.driven(kind)}


def alone(load: Load) -> frozenset[Var]:
    """The axes that are an index of their own."""
    return frozenset(index for index in load.indices if isinstance(index, Var))
