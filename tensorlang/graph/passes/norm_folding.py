"""Fold batch norms into the convolutions before them, and fuse what follows.

    y = nn.relu(nn.batch_norm(nn.conv2d(x, w, b), mean, var, weight, bias))
    # becomes, with s = weight / sqrt(var + eps)
    y = nn.conv2d(x, w * s, (b - mean) * s + bias, activation="relu")

where weights and moments are constant, so that the products are computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.passes.fusion import Fuse
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import named as layer
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import Named, Node, Value
from tensorlang.ops import math, nn

_CONVOLUTIONS: Final = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_FLOATS: Final = ("f32", "f64")


def fold_norms(
    graph: Graph, constant: AbstractSet[Value]
) -> tuple[Graph, dict[Value, Value]]:
    """The program with batch norms folded, and the new values of old ones.

    Args:
        graph: The program, without calls.
        constant: The values that are constant.
    """
    folding = _Fold(constant)
    folded = folding.graph(graph)
    if not folding.found:
        return graph, {}
    fusing = Fuse()
    made = fusing.graph(folded)
    return made, {old: fusing[new] for old, new in folding.now.items()}


class _Fold(Rewriter):
    def __init__(self, constant: AbstractSet[Value]) -> None:
        super().__init__()
        self.found = False
        self._constant = constant
        self._uses: Counter[Value] = Counter()

    def nodes(self, graph: Graph) -> None:
        """Rewrite the nodes of a program in order."""
        # a captured value counts here and where it is made, so it is never used once
        self._uses.update(v for node in graph.nodes for v in node.inputs)
        self._uses.update(graph.outputs)
        super().nodes(graph)

    def node(self, node: Node) -> Sequence[Value]:
        conv = self._convolution(node) if node.id == "nn.batch_norm" else None
        if conv is None:
            return self.copied(node)
        self.found = True
        return [self._folded(arguments_of(node), conv)]

    def _convolution(self, node: Node) -> Node | None:
        """The convolution that a norm is folded into."""
        norm = arguments_of(node)
        conv, spec = norm["x"].node, node.results[0].spec
        if conv is None or conv.id not in _CONVOLUTIONS or self._uses[norm["x"]] > 1:
            return None
        given = arguments_of(conv)
        fixed = (given["w"], given["b"], *(norm[name] for name in _MOMENTS))
        last = given["layout"] is not None and given["layout"].endswith("C")
        fits = (
            all(each is None or each in self._constant for each in fixed)
            and given["activation"] is given["addend"] is None
            and norm["axis"] % len(spec.shape) == (len(spec.shape) - 1 if last else 1)
            and len(spec.shape) == given["w"].ndim
            and isinstance(spec, TensorSpec)
            and spec.dtype in _FLOATS
        )
        return conv if fits else None

    def _folded(self, norm: Named, conv: Node) -> Value:
        mean, var, weight, bias = (
            None if norm[name] is None else self[norm[name]] for name in _MOMENTS
        )
        named = {name: self.given(value) for name, value in arguments_of(conv).items()}
        x, w, b = (named.pop(name) for name in "xwb")
        with layer(conv.path):
            scale = math.rsqrt(math.add(var, norm["eps"]))
            scale = scale if weight is None else math.multiply(weight, scale)
            shift = math.negative(mean) if b is None else math.subtract(b, mean)
            shift = math.multiply(shift, scale)
            shift = shift if bias is None else math.add(shift, bias)
            each = nn.reshape(scale, (w.shape[0], *(1,) * (w.ndim - 1)))
            made: Value = conv.op(x, math.multiply(w, each), shift, **named)  # type: ignore[operator]
        assert made.node is not None
        made.node.where, made.node.path = conv.where, conv.path
        return made


_MOMENTS: Final = ("mean", "var", "weight", "bias")
