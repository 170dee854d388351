"""Compute products of f32 in a narrow type, with weights and the rest in f32.

    y = nn.dense(x, w, b)
    # becomes
    y = math.cast(nn.dense(*(math.cast(each, "bf16") for each in (x, w, b))), "f32")

Sums are those of the narrow operator, in f32. A pass before gradients, so that products
of the backward pass are narrow too, and gradients of weights are f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import named
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import Node, Value, map_values
from tensorlang.ops import math
from tensorlang.ops.operator import Operator

_WIDE: Final = np.dtype(np.float32)
_NARROW: Final = ("bfloat16", "float16")
_PRODUCTS: Final = {
    "nn.dense",
    "math.matmul",
    "math.einsum",
    "nn.attention",
    *(f"nn.conv{rank}d{suffix}" for rank in (1, 2, 3) for suffix in ("", "_transpose")),
}


def narrow(name: str) -> np.dtype:
    """The type of narrow products; ArgumentError if it is none."""
    if name not in _NARROW:
        raise ArgumentError(f"autocast is {' or '.join(_NARROW)}, not {name!r}")
    return TensorSpec((), name).numpy


def autocasted(graph: Graph, dtype: np.dtype | None) -> Graph:
    """The program with its f32 products in a narrow type; None leaves it as it is."""
    return graph if dtype is None else _Autocast(dtype).graph(graph)


class _Autocast(Rewriter):
    def __init__(self, dtype: np.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def node(self, node: Node) -> Sequence[Value]:
        """A product of f32 as one of the narrow type, between casts."""
        if node.id not in _PRODUCTS or not _is_wide(node.results[0]):
            return self.copied(node)
        assert isinstance(node.op, Operator)
        with named(node.path):
            args = map_values(self.given(node.args), self._narrow)
            kwargs = {
                name: map_values(self.given(value), self._narrow)
                for name, value in node.kwargs.items()
            }
            made = math.cast(node.op(*args, **kwargs), _WIDE.name)
        return [made]

    def _narrow(self, value: Value) -> Value:
        if not _is_wide(value):
            return value
        made: Value = math.cast(value, self.dtype.name)
        return made


def _is_wide(value: Value) -> bool:
    return isinstance(value.spec, TensorSpec) and value.spec.numpy == _WIDE
