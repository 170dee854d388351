"""`tlang ops`: the operators."""

from __future__ import annotations

from typing import Annotated

import typer

from tensorlang.cli import completion, console, options
from tensorlang.cli.quantities import Names, Unlike
from tensorlang.ops import Operator
from tensorlang.ops import operators as known

app = typer.Typer(add_completion=False)


@app.command()
def ops(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Only this operator or family.",
            autocompletion=completion.operators,
        ),
    ] = None,
) -> None:
    """List the operators: ids, aliases, families, algorithms and dtypes.

    Examples:
        tlang ops
        tlang ops conv2d
        tlang ops --json
    """
    listed = known() if name is None else options.operators(name)
    head = ("operator", "aliases", "family", "algorithms", "dtypes", "what it does")
    console.table(head, map(_row, listed), name="operators")


def _row(op: Operator) -> tuple[object, ...]:
    return (
        op.id,
        Names(op.aliases),
        Unlike(op.family or "-", op.family or None),
        Names(op.algorithms),
        Unlike(" ".join(op.dtypes) or "any", op.dtypes),
        (op.__doc__ or "").strip().partition("\n")[0],
    )
