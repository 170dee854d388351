"""Fused Winograd convolutions, with plain or transformed weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang import ir
from tensorlang.ops.nn import winograd_stages as stages
from tensorlang.ops.nn.winograd_blocks import Blocks, blocks
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS
from tensorlang.ops.nn.winograd_weights import weights

if TYPE_CHECKING:
    from tensorlang.ops.nn.convolution_problem import Problem


def conv(m: int) -> Callable[..., ir.Tensor]:
    """As `convolution_definitions.conv`, for 3x3 windows with stride 1: F(m, 3)."""

    def define(
        x: ir.Tensor,
        w: ir.Tensor,
        b: ir.Tensor | None,
        p: Problem,
        activation: str | None,
    ) -> ir.Tensor:
        return convolved(x, weights(w, TRANSFORMS[m]), b, blocks(m, p), activation)

    return define


def convolved(
    x: ir.Tensor,
    weight: ir.Tensor,
    b: ir.Tensor | None,
    cut: Blocks,
    activation: str | None,
) -> ir.Tensor:
    """The convolution with transformed weights.

    Args:
        x: Images `[n, c, h, w]`.
        weight: Result of `winograd_weights.weights`.
        b: Bias `[o]`, or None.
        cut: The blocking.
        activation: Name of the activation.
    """
    image = stages.image(stages.transposed(stages.lines(x, cut, weight)), cut)
    tiles = stages.tiles(stages.sums(image, weight, cut), cut)
    return stages.results(stages.transposed_back(tiles), b, cut, activation)
