"""Every operator once, with its default shapes and operation counts.

These are the points in the figures on the operators' pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tensorlang import targets
from tensorlang.errors import TensorlangError
from tensorlang.ir.cost import cost_at
from tensorlang.ops import operators
from tensorlang.ops.operator import Operator
from tensorlang.ops.spec.examples import arguments
from tensorlang.tuner.measurement.rounds import interleaved

HEAD: Final = """Every operator

The default kernel of each operator for its usual shapes, and the share that it reaches
of the limit nearest to it: arithmetic, or memory written past the caches. More than
100 % is work that stayed in the caches."""


def rows(rounds: int, only: str) -> Iterator[dict[str, Any]]:
    """A row per operator of the library, except those that cannot be built alone."""
    for op in operators():
        if only not in op.id or not op.in_library:
            continue
        print(op.id, file=sys.stderr)
        try:
            yield _row(op, rounds)
        except TensorlangError as problem:
            print(f"{op.id}: {problem}", file=sys.stderr)


def _row(op: Operator, rounds: int) -> dict[str, Any]:
    workload = op.default
    kernel = op.build(workload, targets.host())
    arrays, scalars = arguments(op, workload)
    timing = interleaved(
        {"ours": lambda: kernel.launch(*arrays, *scalars)},
        rounds=rounds,
        min_sample=0.005,
        warm_up=0.02,
    )["ours"]
    floating, integer, read, written = cost_at(
        op.function(workload), op.sizes(workload)
    )
    shapes = ", ".join("x".join(map(str, shape)) for shape in workload.shapes)
    return {
        "work": f"{op.id} {shapes}",
        "operator": op.id,
        "floating": floating,
        "integer": integer,
        "moved": read + written,
        "seconds": {"ours, into existing": timing.median},
        "spread": {"ours, into existing": timing.spread},
    }


def page(run: Mapping[str, Any]) -> Iterator[str]:
    """The rows of one thread count."""
    limits = run["limits"]
    yield "| operator | ms | Gop/s | GB/s | of its limit |"
    yield "| --- | --- | --- | --- | --- |"
    for row in run["rows"]:
        seconds = row["seconds"]["ours, into existing"]
        done = row["floating"] or row["integer"]
        least = max(
            row["floating"] / limits["fma"],
            row["integer"] / limits["integer_mix"],
            row["moved"] / limits["nontemporal_fill"],
        )
        yield (
            f"| {row['work']} | {seconds * 1e3:.3g} | "
            f"{done / seconds / 1e9:.3g} | {row['moved'] / seconds / 1e9:.3g} | "
            f"{least / seconds:.0%} |"
        )
