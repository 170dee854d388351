"""How long each node of a bound program takes."""

from __future__ import annotations

import time
from statistics import median

from tensorlang.frozen import frozen
from tensorlang.graph.execution.binding import Bound
from tensorlang.graph.values import Node


@frozen
class LayerTime:
    """A node and its median time in seconds."""

    node: Node
    seconds: float


def layer_times(bound: Bound, rounds: int = 11) -> list[LayerTime]:
    """Time each step of a program by itself, in the order of a run.

    Nodes without a step, such as views, are left out.

    Args:
        bound: The program; its inputs stay as they are.
        rounds: Runs, of which the median counts.
    """
    samples: list[list[float]] = [[] for _ in bound.steps]
    for _ in range(rounds):
        for (launch, arguments), found in zip(bound.steps, samples, strict=True):
            start = time.perf_counter()
            launch(*arguments)
            found.append(time.perf_counter() - start)
    return [
        LayerTime(node, median(found))
        for node, found in zip(bound.nodes, samples, strict=True)
    ]
