"""Convolutions and their gradients, whichever algorithm their definition follows.

The sums are scheduled as the algorithm wants, gradients of weights by their form, and
everything else generically. All are found by their accesses; see `schedules.products`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tensorlang.ir.contents import blocks
from tensorlang.schedules.contraction.outer_products import outer_products
from tensorlang.schedules.convolution import channels_last as conv_last
from tensorlang.schedules.convolution import depthwise, pixels
from tensorlang.schedules.convolution import flattened as conv
from tensorlang.schedules.convolution.products import (
    Product,
    products,
    readers,
    rearranged,
    stage_reading,
)
from tensorlang.schedules.convolution.tiles import copied_image
from tensorlang.schedules.generic import generic
from tensorlang.schedules.stages import (
    CONTRACTION,
    extent_of,
    is_elementwise,
    kind_of,
    stages,
)
from tensorlang.scheduling import Knobs, Schedule, schedule

# schedules sums of a convolution, and returns the names of the blocks it is done with
Forward: TypeAlias = Callable[[Schedule, Knobs, Sequence[Product]], set[str]]
_FORWARD: Final[dict[str, Forward]] = {
    "implicit_gemm": conv.forward,
    "channels_last": conv_last.forward,
    "depthwise": depthwise.forward,
    "dot_products": pixels.forward,
}


@schedule("conv")
def direct(s: Schedule, knobs: Knobs) -> None:
    """As the algorithm whose form the definition has already, if any."""
    sums = [product for product in products(s) if product.filters]
    forward = _form(s, sums[0]) if len(sums) == 1 else None
    if not forward or not s.attempt(convolution, s, knobs, forward):
        convolution(s, knobs, None)


def _form(s: Schedule, product: Product) -> Forward | None:
    """What schedules a product without changing its layout."""
    image = product.image.buffer
    if rearranged(s, image) and len(readers(s, image.name)) > 1:
        return None
    sizes = {x.var.name: extent_of(x) for x in product.stage.loops}
    if None in {size for name, size in sizes.items() if name not in product.m}:
        return None
    last = product.stage.driven("spatial")[-1].var.name
    if product.axes([last]) == [product.other.indices[-1]]:
        return conv_last.forward
    whole = len(product.places) == product.rank and sizes[last] != 1
    return depthwise.forward if product.depthwise and whole else None


def convolution(s: Schedule, knobs: Knobs, forward: Forward | None) -> None:
    """Schedule the sums by `forward`, and gradients of weights by their form."""
    names = {block.name for block in blocks(s.function)}
    found = products(s)
    sums = [product for product in found if product.filters]
    done = forward(s, knobs, sums) if sums and forward else set()
    done |= _gradients(s, knobs, [p for p in found if not p.filters])
    if not found:
        done |= _matrix_product(s)
    if names - done:
        generic(s, knobs)


def _gradients(s: Schedule, knobs: Knobs, found: Sequence[Product]) -> set[str]:
    """Depthwise, sums per lane that are then added; or outer products, permuted."""
    done: set[str] = set()
    lanes: list[tuple[Product, str]] = []
    for product in found:
        stage = stage_reading(s, product.name)
        if stage and stage.driven("reduction"):
            lanes.append((product, stage.name))
        elif stage and not is_elementwise(stage):
            done |= outer_products(s, knobs, product, stage.name)
    return done | (depthwise.depthwise_weights(s, knobs, lanes) if lanes else set())


def _matrix_product(s: Schedule) -> set[str]:
    """The copies of images, if a convolution of single pixels is a matrix product."""
    sums = [stage for stage in stages(s.function) if kind_of(stage) == CONTRACTION]
    operands = [load.buffer for stage in sums for load in stage.loads]
    copies = {name for buffer in operands if (name := rearranged(s, buffer))}
    return {name for name in sorted(copies) if s.attempt(copied_image, s, name)}


def _register(algorithm: str, forward: Forward | None) -> None:
    schedule("conv", algorithm=algorithm)(
        lambda s, knobs: convolution(s, knobs, forward)
    )


for _name, _forward in _FORWARD.items():
    _register(_name, _forward)
_register("outer_products", None)
