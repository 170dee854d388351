"""Attention that a program writes out, as one operator.

    scores = math.matmul(q, nn.transpose(k, (0, 1, 3, 2))) * 0.125 + bias
    y = math.matmul(nn.softmax(scores), v)
    # becomes
    y = nn.attention(q, k, v, scale=0.125, mask=bias)

Factors may stand at either operand or at the scores, and masks may be added or chosen
by `math.where`. Keys may be transposed in any way: what is left of it is computed. It
is fused if nothing else uses the softmax. A row of scores that are all minus infinity
gives zeros then, also where the program gives NaN.
"""

from __future__ import annotations

import math as numbers
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.passes.attention_scores import Scores, number_of, scores_of
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import named
from tensorlang.graph.specs import Extent
from tensorlang.graph.values import Argument, Node, Tensor, Value
from tensorlang.ops import math, nn

Shape: TypeAlias = tuple[Extent, ...]


def fuse_attention(graph: Graph) -> Graph:
    """The program with attention as an operator wherever it writes it out."""
    return _FuseAttention().graph(graph)


class _FuseAttention(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.uses: Counter[Value] = Counter()

    def nodes(self, graph: Graph) -> None:
        """Rewrite the nodes of a program in order."""
        self.uses.update(value for node in graph.nodes for value in node.inputs)
        self.uses.update(graph.outputs)
        super().nodes(graph)

    def node(self, node: Node) -> Sequence[Value]:
        """The result of attention in place of its last product."""
        found = self._attention(node) if node.id == "math.matmul" else None
        return self.copied(node) if found is None else [found]

    def _attention(self, node: Node) -> Value | None:
        """Attention, if a product is its last step."""
        given = arguments_of(node)
        weights, v = given["a"], given["b"]
        if given["transpose_a"] or not isinstance(v, Tensor):
            return None
        softmax = self._softmax(weights)
        scores = None if softmax is None else scores_of(softmax)
        if softmax is None or scores is None or not _fits(scores, softmax, v):
            return None
        with named(node.path):
            made = self._fused(scores, v, transposed=given["transpose_b"])
            return _reshaped(made, node.results[0].shape)

    def _softmax(self, weights: Argument) -> Tensor | None:
        """The scores of weights that nothing else uses."""
        node = weights.node if isinstance(weights, Value) else None
        if node is not None and node.id == "math.where":
            test, other, kept = node.args
            nan = test.node if isinstance(test, Value) else None
            if nan is None or nan.id != "math.isnan" or nan.args[0] is not kept:
                return None
            if number_of(other) != 0.0 or self.uses[kept] > 2:
                return None
            node = kept.node
        elif self.uses[weights] > 1:
            return None
        if node is None or node.id != "nn.softmax":
            return None
        given = arguments_of(node)
        last = given["axis"] in (-1, node.results[0].ndim - 1)
        return given["x"] if last else None

    def _fused(self, scores: Scores, v: Tensor, *, transposed: bool) -> Tensor:
        q = self._new(scores.q)
        for name, factor in scores.factors:
            apply = math.multiply if name == "math.multiply" else math.divide
            q = apply(q, self.given(factor))
        k = self._swapped(scores.k) if scores.transposed else self._new(scores.k)
        v = self._swapped(v) if transposed else self._new(v)
        made: Tensor = nn.attention(
            *(_reshaped(each, _in_heads(each.shape)) for each in (q, k, v)),
            scale=scores.scale,
            mask=self._mask(scores),
        )
        return made

    def _new(self, value: Value) -> Tensor:
        made = self[value]
        assert isinstance(made, Tensor)
        return made

    def _swapped(self, value: Value) -> Tensor:
        """A value with its last two dimensions swapped; earlier swaps are undone."""
        node = value.node
        if node is not None and node.id == "nn.reshape":
            x = arguments_of(node)["x"]
            if x.ndim > 1 and x.shape[-2:] == value.shape[-2:]:
                *lead, m, n = value.shape
                return _reshaped(self._swapped(x), (*lead, n, m))
        *others, last = range(value.ndim)
        order = [*others[:-1], last, others[-1]]
        while value.node is not None and value.node.id == "nn.transpose":
            given = arguments_of(value.node)
            value, axes = given["x"], given["axes"] or range(last + 1)[::-1]
            order = [axes[at] % (last + 1) for at in order]
        if order == [*others, last]:
            return self._new(value)
        made: Tensor = nn.transpose(self[value], tuple(order))
        return made

    def _mask(self, scores: Scores) -> Tensor | None:
        """The mask: truth values if there is only one of them that hides entirely."""
        rank, several = scores.q.ndim, len(scores.masks) > 1
        made: Tensor | None = None
        for mask, low in scores.masks:
            each = self._new(mask)
            if each.spec.dtype == "bool" and (several or low > -numbers.inf):
                zero, least = (np.array(n, scores.q.spec.numpy) for n in (0.0, low))
                made = math.where(each, zero if made is None else made, least)
            else:
                made = each if made is None else made + each
        if made is None:
            return None
        shape = _in_heads((*(1,) * (rank - made.ndim), *made.shape))
        return _reshaped(made, shape)


def _fits(scores: Scores, softmax: Tensor, v: Tensor) -> bool:
    """Whether attention takes these arrays: one type, and equal batches and heads."""
    each = (scores.q, scores.k, v)
    lead = softmax.shape[:-2]
    largest = float(np.finfo(np.float32).max)
    return (
        softmax.ndim > 1
        and v.ndim == softmax.ndim
        and all(x.spec.dtype == softmax.spec.dtype for x in each)
        and all(x.shape[:-2] == lead for x in each)
        and all(isinstance(x.shape[-1], int) for x in (scores.q, v))
        and softmax.shape[-1] != 0
        and abs(scores.scale) <= largest
        and all(_broadcasts(mask.shape, softmax.shape) for mask, _ in scores.masks)
    )


def _broadcasts(mask: Shape, scores: Shape) -> bool:
    """Whether a mask has size 1 or that of the scores in all dimensions.

    Those before the heads are taken together.
    """
    whole = (*(1,) * (len(scores) - len(mask)), *mask)
    before, alike = whole[:-3], scores[:-3]
    return (
        len(mask) <= len(scores)
        and all(n in (1, of) for n, of in zip(whole, scores, strict=True))
        and (before == alike or all(n == 1 for n in before))
    )


def _in_heads(shape: Shape) -> Shape:
    """A shape as `[batch, heads, m, n]`."""
    *lead, m, n = shape
    batch: Extent = numbers.prod(lead[:-1] or lead)
    return batch, lead[-1] if len(lead) > 1 else 1, m, n


def _reshaped(x: Tensor, shape: Shape) -> Tensor:
    """An array in another shape: as it is, or as it was, if it had that shape."""
    before = x.node
    if before is not None and before.id == "nn.reshape" and x.shape != shape:
        x = arguments_of(before)["x"]
    return x if x.shape == shape else nn.reshape(x, shape)
