"""Model summaries."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tensorlang import lazy
from tensorlang.graph.networks.leaves import Weight
from tensorlang.graph.program import Body, trace
from tensorlang.graph.scopes import path
from tensorlang.graph.specs import Spec, TensorSpec, at_sizes

with lazy.modules(__name__):  # only to print
    from rich import console
    from rich import table as tables
    from rich import text as texts


@dataclass(slots=True)
class Row:
    """An application of a layer."""

    path: str
    layer: str  # its description
    shapes: str = ""  # shapes of its results
    weights: list[Weight] = field(default_factory=list)  # its own weights


_ROWS: ContextVar[list[Row] | None] = ContextVar("rows", default=None)


@contextmanager
def recorded(layer: object) -> Iterator[Row | None]:
    """Record the application of a layer if a summary is being made."""
    rows = _ROWS.get()
    if rows is None:
        yield None
        return
    row = Row(path(), repr(layer))
    rows.append(row)
    yield row


def rows_of(layer: Body, specs: Sequence[Spec]) -> list[Row]:
    """The layer applications for inputs of these specs, in order.

    If there are no layers, such as for a program from a file, one row for each layer in
    the paths of the weights.
    """
    rows: list[Row] = []
    token = _ROWS.set(rows)
    try:
        written = trace(layer, specs, name="summary")
    finally:
        _ROWS.reset(token)
    named = {weight for row in rows for weight in row.weights}
    return rows + _from_names(w for w in written.weights if w not in named)


def _from_names(weights: Iterable[Weight]) -> list[Row]:
    """A row for each layer in the paths of weights."""
    rows: dict[str, Row] = {}
    for weight in weights:
        place = weight.path.rpartition(".")[0] or weight.path
        rows.setdefault(place, Row(place, "")).weights.append(weight)
    return list(rows.values())


def summary(layer: Body, specs: Sequence[TensorSpec]) -> str:
    """A table of the applied layers with output shapes and parameter counts."""
    table = tables.Table("layer", "", "output", "parameters")
    table.columns[3].justify = "right"
    seen: set[Weight] = set()
    for row in rows_of(layer, specs):
        if not (
            row.path or row.weights
        ):  # the whole model, whose parts have their own rows
            continue
        own = [weight for weight in row.weights if weight not in seen]
        again = bool(row.weights) and not own
        seen.update(own)
        count = "shared" if again else f"{sum(map(size, own)):,}"
        cells = (row.path, row.layer, row.shapes, count)
        table.add_row(*map(texts.Text, cells))
    table.add_row("", "", "", f"{sum(map(size, seen)):,}", style="bold")
    text = io.StringIO()
    console.Console(file=text, width=100).print(table)
    return text.getvalue()


def size(weight: Weight) -> int:
    """The number of elements of a weight."""
    return math.prod(at_sizes(weight.shape, {}))
