"""Minimum cuts cost as little as the best of all assignments to sides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tensorlang.graph.passes.minimum_cut import MinimumCut, Side

NODES = (0, 1, 2, 3, Side.FIRST, Side.OTHER)


def cost(edges, beyond) -> float:
    others = {*beyond, Side.OTHER}
    return sum(c for a, b, c in edges if a not in others and b in others)


@pytest.mark.parametrize("count", [0, 1, 4, 8, 16])
def test_no_assignment_costs_less(count) -> None:
    draw = np.random.default_rng(count)
    for _ in range(40):
        ends = draw.integers(0, len(NODES), (count, 2))
        edges = [(NODES[a], NODES[b], int(draw.integers(0, 10))) for a, b in ends]
        cut = MinimumCut[int]()
        for edge in edges:
            cut.add(*edge)
        least = min(
            cost(edges, beyond)
            for size in range(5)
            for beyond in itertools.combinations(range(4), size)
        )
        assert cost(edges, cut.beyond()) == least


def test_what_costs_nothing_to_separate_stays_on_the_first_side() -> None:
    cut = MinimumCut[str]()
    cut.add(Side.FIRST, "a", 1.0)
    cut.add("b", Side.OTHER, 2.0)
    assert cut.beyond() <= {"b"}
    assert MinimumCut[str]().beyond() == set()
