"""`tlang explore`: a page that shows an operator through all stages, linked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tensorlang import runtime
from tensorlang.cli import completion, configuration, console, document, options
from tensorlang.cli import explored_search as searches
from tensorlang.cli.contests import DEFAULT, RECORD, named
from tensorlang.errors import ArgumentError
from tensorlang.explorer.page import Subject, page
from tensorlang.explorer.serving import serve
from tensorlang.ops import Operator
from tensorlang.targets import Target
from tensorlang.workload import Workload

app = typer.Typer(add_completion=False)


@app.command()
def explore(
    op: options.Name,
    *,
    target: options.TargetName = None,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the page to a file."
        ),
    ] = None,
    serving: Annotated[
        bool, typer.Option("--serve", help="Show the page on a local port.")
    ] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Show B, and how it differs from A.",
            autocompletion=completion.configurations,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="SEARCH",
            help="A file of tlang studies export, or an Optuna storage (default: the "
            "usual one).",
        ),
    ] = None,
) -> None:
    """Show an operator from definition to machine code on one page, lines linked.

    Hovering over a line of a stage shows what it became in all others; the steps of the
    schedule are shown as differences. CUDA needs no GPU: without one the page is for
    cuda:sm_90a.

    If there is a record, the page also has how it differs from the default; if the
    workload was tuned here, its search: history, knobs, failures.

    --compare takes two of: default, record (what a call runs), knob=value,...,
    algorithm(knob=value, ...) as reports have it, or a file with one of them.

    Examples:
        tlang explore dense --shape 64x784,512x784 -o dense.html
        tlang explore softmax --serve
        tlang explore dense --compare default record -o dense.html
    """
    if (output is None) != serving:
        raise ArgumentError("give either -o FILE or --serve")
    if output is not None and not (folder := output.parent).is_dir():
        raise ArgumentError(f"{output}: there is no folder {folder}; make it first")
    chosen = options.to_compile(target)
    found = options.operator(op)
    workload = options.workload(found, shape, dtype, attr)

    def make() -> str:
        texts = compare or (DEFAULT, RECORD)
        other, shown = (named(text, found, workload, chosen) for text in texts)
        subject = subject_of(found, workload, chosen, shown)
        known = searches.of(found, workload, chosen, search)
        same = (other.algorithm, other.knobs.values) == (
            shown.algorithm,
            shown.knobs.values,
        )
        if same:
            if compare is not None:
                console.say(f"{texts[0]} and {texts[1]} are one configuration here")
            return page(subject, None, known)
        return page(subject, subject_of(found, workload, chosen, other), known)

    if output is not None:
        output.write_text(make(), "utf-8")
        console.say(f"written to {output}")
        document.found("page", output)
    else:
        serve(make, console.say)


def subject_of(
    op: Operator, workload: Workload, target: Target, chosen: configuration.Chosen
) -> Subject:
    """A configuration of an operator, built."""
    kernel = runtime.build(chosen.schedule, target, knobs=chosen.knobs.values)
    return Subject(
        f"{op.described(workload)} on {target.name}",
        f"{chosen.algorithm}; {chosen.why}",
        op.function(workload, chosen.algorithm),
        chosen.schedule,
        kernel,
        chosen.knobs,
        op.sizes(workload),
        configuration.measured(chosen.record, workload, target),
    )
