"""Let products of an inference program be approximate, within a tolerance.

y = nn.conv2d(x, w, b, activation="relu")
# becomes, with `tolerance` of the network
y = nn.conv2d(x, w, b, activation="relu", tolerance=tolerance)
# and, for constant 3x3 windows, where that is predicted to be faster
y = nn.conv2d_winograd(
    x, nn.conv2d_winograd_weight(w), b, outputs=n, activation="relu"
)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import named as layer
from tensorlang.graph.specs import TensorSpec, at_sizes
from tensorlang.graph.values import Node, Value, make
from tensorlang.ops.nn import winograd, winograd_packing
from tensorlang.ops.nn.convolution_problem import convolution
from tensorlang.ops.operator import Operator
from tensorlang.targets import Target

_WINDOW: Final = ("stride", "padding", "dilation", "groups", "layout")


def checked(tolerance: object) -> float | None:
    """The tolerance of a network; ArgumentError if it is no relative error."""
    if tolerance is None:
        return None
    number = isinstance(tolerance, (int, float, np.floating, np.integer))
    if not number or isinstance(tolerance, bool) or not 0 <= tolerance < math.inf:  # type: ignore[operator]
        raise ArgumentError(
            f"tolerance is None or a relative error from 0, such as 2**-12, not "
            f"{tolerance!r:.80}"
        )
    return float(tolerance)  # type: ignore[arg-type]


def tolerant(graph: Graph, tolerance: float | None) -> Graph:
    """The program with this tolerance for each f32 product that states none."""
    return graph if tolerance is None else _Tolerant(tolerance).graph(graph)


class _Tolerant(Rewriter):
    def __init__(self, tolerance: float) -> None:
        super().__init__()
        self._tolerance = tolerance

    def node(self, node: Node) -> Sequence[Value]:
        """A product with the tolerance, if its operator has one."""
        named = arguments_of(node) if isinstance(node.op, Operator) else {}
        spec = node.results[0].spec if node.results else None
        narrow = not isinstance(spec, TensorSpec) or spec.numpy != np.float32
        if narrow or named.get("tolerance", 0.0) is not None:
            return self.copied(node)
        kwargs = {name: self.given(value) for name, value in node.kwargs.items()}
        kwargs["tolerance"] = self._tolerance
        given, specs = self.given(node.args), [value.spec for value in node.results]
        made = make(node.op, given, kwargs, specs, where=node.where, path=node.path)
        return made.results


def transformed_windows(
    graph: Graph, constant: AbstractSet[Value], sizes: Mapping[str, int], target: Target
) -> TransformedWindows:
    """The rewriting of approximate convolutions of constant windows, where faster.

    Windows are transformed once, so that this pays for smaller images than in a call.

    Args:
        graph: The program, without calls.
        constant: The values that are constant.
        sizes: The values of its named sizes.
        target: Where it runs; the operators are made for CPUs.
    """
    nodes = graph.nodes if target.model == "cpu" else ()
    found = {node: _side(node, constant, sizes, target) for node in nodes}
    return TransformedWindows({node: m for node, m in found.items() if m})


def _side(
    node: Node,
    constant: AbstractSet[Value],
    sizes: Mapping[str, int],
    target: Target,
) -> int | None:
    """The m of the fastest F(m, 3); None if it is no convolution that has one."""
    named = arguments_of(node) if node.id == winograd_packing.CONVOLUTION else {}
    if named.get("tolerance") is None or named["w"] not in constant:
        return None
    x, w = named["x"], named["w"]
    if x.ndim != w.ndim or x.spec.numpy != np.float32:
        return None
    asked = {name: at_sizes(named[name], sizes) for name in _WINDOW}
    p = convolution(node.id, asked, at_sizes(x.shape, sizes), at_sizes(w.shape, sizes))
    return winograd.cheapest(p, named["tolerance"], target, constant=True)


class TransformedWindows(Rewriter):
    """Rewrites convolutions to Winograd's algorithms.

    Attributes:
        chosen: These convolutions, and the m of each F(m, 3).
    """

    def __init__(self, chosen: Mapping[Node, int]) -> None:
        super().__init__()
        self.chosen = chosen

    def node(self, node: Node) -> Sequence[Value]:
        """A convolution as two operators, if it is chosen."""
        if node not in self.chosen:
            return self.copied(node)
        named = {name: self.given(value) for name, value in arguments_of(node).items()}
        w = named["w"]
        kept = {name: named[name] for name in ("padding", "activation", "addend")}
        with layer(node.path):
            windows = winograd_packing.conv2d_winograd_weight(w, m=self.chosen[node])
            made: Value = winograd_packing.conv2d_winograd(
                named["x"], windows, named["b"], outputs=w.shape[0], **kept
            )
        return [made]


__all__ = ["TransformedWindows", "checked", "tolerant", "transformed_windows"]
