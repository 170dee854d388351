"""Minimum cuts: each node on one of two sides, at the least total cost.

Edmonds and Karp, "Theoretical improvements in algorithmic efficiency for network flow
problems", 1972.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from enum import Enum, auto
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)


class Side(Enum):
    """A side, and what is on it in any case."""

    FIRST = auto()
    OTHER = auto()


class MinimumCut(Generic[N]):
    """Costs between nodes that are on different sides."""

    def __init__(self) -> None:
        self._left: defaultdict[N | Side, defaultdict[N | Side, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def add(self, a: N | Side, b: N | Side, cost: float) -> None:
        """Add a cost that is due if `a` is on the first side and `b` on the other."""
        self._left[a][b] += cost
        self._left[b][a] += 0.0

    def beyond(self) -> set[N]:
        """The nodes on the other side, at the least cost."""
        while Side.OTHER in (reached := self._reached()):
            path: list[N | Side] = [Side.OTHER]
            while path[-1] is not Side.FIRST:
                path.append(reached[path[-1]])
            edges = list(zip(path[1:], path, strict=False))
            least = min(self._left[a][b] for a, b in edges)
            for a, b in edges:
                self._left[a][b] -= least
                self._left[b][a] += least
        beyond = self._left.keys() - reached.keys()
        return {node for node in beyond if not isinstance(node, Side)}

    def _reached(self) -> dict[N | Side, N | Side]:
        """The nodes that more could flow to from the first side, and whence."""
        found: dict[N | Side, N | Side] = {Side.FIRST: Side.FIRST}
        waiting: deque[N | Side] = deque(found)
        while waiting:
            node = waiting.popleft()
            for other, left in self._left[node].items():
                if left > 0 and other not in found:
                    found[other] = node
                    waiting.append(other)
        return found
