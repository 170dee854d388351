"""Winograd's convolutions, by weights as they are or transformed; see the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.ops.nn import winograd_stages as stages
from tensorlang.ops.nn.images import numbers
from tensorlang.ops.nn.winograd_blocks import Blocks, blocks
from tensorlang.ops.nn.winograd_weights import weights

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor


def f23(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    padding: tuple[int, ...],
    activation: str | None,
    **_: Any,
) -> Tensor:
    """As `convolution_definitions.conv`, windows of 3 by 3 a pixel apart: F(2, 3)."""
    return _conv(x, w, b, 2, padding, activation)


def f43(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    padding: tuple[int, ...],
    activation: str | None,
    **_: Any,
) -> Tensor:
    """As `convolution_definitions.conv`, windows of 3 by 3 a pixel apart: F(4, 3)."""
    return _conv(x, w, b, 4, padding, activation)


def _conv(  # noqa: PLR0917 - as the two above
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    m: int,
    padding: tuple[int, ...],
    activation: str | None,
) -> Tensor:
    outputs, inputs = numbers(w.shape[:2])
    cut = blocks(m, inputs, outputs, numbers(x.shape[2:]), padding)
    return convolved(x, weights(w, cut.transforms), b, cut, activation)


def convolved(
    x: Tensor, weight: Tensor, b: Tensor | None, cut: Blocks, activation: str | None
) -> Tensor:
    """The convolution by weights that are transformed.

    Args:
        x: Images `[n, c, h, w]`.
        weight: As `winograd_weights.weights` makes them.
        b: The bias, `[o]`.
        cut: How images are cut.
        activation: The activation's name.
    """
    image = stages.image(stages.turned(stages.lines(x, cut, weight)), cut)
    tiles = stages.tiles(stages.sums(image, weight, cut), cut)
    return stages.results(stages.turned_back(tiles), b, cut, activation)
