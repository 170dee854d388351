"""The gradient of `nn.scatter`, by operators.

A reduction treats a row of `x` and the updates to it alike: the gradient of an element
is a function of its value and of sums and products over all that are combined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensorlang.graph.differentiation.gradients import Gradients, Site, rule
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import OpResult, Value, zeros
from tensorlang.ops import math, nn

# maps elements, and how to give them a row's values, to their gradient
Slope: TypeAlias = Callable[[Value, Callable[[Value], Value]], Value]


@rule("nn.scatter")
def _scatter(site: Site) -> Gradients:
    """For the table and for the updates."""
    ids, x, updates = (site.named[name] for name in ("ids", "x", "updates"))
    how, dy = site.named["reduction"], site.dy

    def rows(table: Value) -> OpResult:
        return nn.embedding(ids, table)

    if how == "none":
        return [
            (x, nn.scatter(ids, dy, zeros(updates.spec))),
            (updates, math.where(_stays(ids, x), rows(dy), 0.0)),
        ]
    slope = {"add": _added, "mul": _multiplied}.get(how, _selected)(site)
    return [(x, slope(x, lambda table: table)), (updates, slope(updates, rows))]


def _stays(ids: Value, x: Value) -> OpResult:
    """Whether an update is the last one of its row."""
    ones = zeros(TensorSpec(ids.shape, "int64")) + 1
    order = math.cumsum(nn.reshape(ones, (-1,)), 0)
    order = nn.reshape(order, (*ids.shape, 1))
    none = zeros(TensorSpec((x.shape[0], 1), "int64"))
    return math.equal(nn.embedding(ids, nn.scatter(ids, none, order)), order)


def _added(site: Site) -> Slope:
    return lambda _, rows: rows(site.dy)


def _multiplied(site: Site) -> Slope:
    """`dy` times the product of the others, which is 0 if one of them is."""
    ids, x, updates = (site.named[name] for name in ("ids", "x", "updates"))
    no_zeros = (math.where(math.equal(v, 0.0), 1.0, v) for v in (x, updates))
    product = nn.scatter(ids, *no_zeros, "mul")
    count = nn.scatter(
        ids, *(_count(math.equal(v, 0.0), v) for v in (x, updates)), "add"
    )

    def slope(v: Value, rows: Callable[[Value], Value]) -> OpResult:
        empty = math.equal(v, 0.0)
        others = rows(product * site.dy) / math.where(empty, 1.0, v)
        return math.where(math.equal(rows(count), _count(empty, v)), others, 0.0)

    return slope


def _selected(site: Site) -> Slope:
    """Shared evenly between equal elements, as in PyTorch."""
    ids, x, updates = (site.named[name] for name in ("ids", "x", "updates"))
    y = site.node.results[0]
    first, rest = math.equal(x, y), math.equal(updates, nn.embedding(ids, y))
    share = site.dy / nn.scatter(ids, _count(first, x), _count(rest, updates), "add")

    def slope(v: Value, rows: Callable[[Value], Value]) -> OpResult:
        return math.where(math.equal(v, rows(y)), rows(share), 0.0)

    return slope


def _count(found: Value, like: Value) -> OpResult:
    """1.0 where a condition holds, and 0.0 elsewhere."""
    return math.where(found, 1.0, zeros(like.spec))
