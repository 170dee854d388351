"""`tlang ops`: the operators."""

from __future__ import annotations

from typing import Annotated

import typer

from tensorlang.cli import console, options
from tensorlang.ops import Operator
from tensorlang.ops import operators as known

app = typer.Typer(add_completion=False)


@app.command()
def ops(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Only this operator or family."),
    ] = None,
) -> None:
    """List the operators: ids, aliases, families, algorithms and dtypes."""
    listed = known() if name is None else options.operators(name)
    head = ("operator", "aliases", "family", "algorithms", "dtypes", "what it does")
    console.table(head, map(_row, listed))


def _row(op: Operator) -> tuple[str, ...]:
    return (
        op.id,
        ", ".join(op.aliases) or "-",
        op.family or "-",
        ", ".join(op.algorithms),
        " ".join(op.dtypes) or "any",
        (op.__doc__ or "").strip().partition("\n")[0],
    )
