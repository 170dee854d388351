"""The values of a program that depend on constants alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tensorlang.graph.networks.leaves import ConstantTensor
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import KeySpec
from tensorlang.graph.values import Node, Value
from tensorlang.ops.operator import Operator


def constants_of(graph: Graph, fixed: Iterable[Value]) -> set[Value]:
    """All constant values of a program.

    Args:
        graph: The program.
        fixed: Values from outside that do not change between runs.
    """
    found = {*fixed, *_literals(graph)}
    for node in graph.nodes:
        if _is_function(node) and found.issuperset(node.inputs):
            found.update(node.results)
    return found


def read_only(known: Mapping[Value, np.ndarray]) -> set[Value]:
    """The values whose memory is read-only, as that of frozen weights is."""
    return {value for value, array in known.items() if not array.flags.writeable}


def _literals(graph: Graph) -> Iterable[Value]:
    values = (value for node in graph.nodes for value in node.inputs)
    return (value for value in values if isinstance(value, ConstantTensor))


def _is_function(node: Node) -> bool:
    """Whether a node computes tensors from tensors, the same at each run."""
    if not isinstance(node.op, Operator) or node.op.inplace or not node.inputs:
        return False
    return not any(isinstance(v.spec, KeySpec) for v in (*node.inputs, *node.results))
