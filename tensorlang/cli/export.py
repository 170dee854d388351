"""`tlang export`: an operator as a C library that needs no Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tensorlang import export as exports
from tensorlang.cli import console, document, options
from tensorlang.errors import ArgumentError

app = typer.Typer(add_completion=False)


@app.command()
def export(
    op: options.Name,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.")
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES",
            help="Array shapes, such as 64x784,512x784; repeat it for other ranges of "
            "sizes.",
        ),
    ] = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Begins the names of files, functions.")
    ] = "",
    cpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A level such as x86-64-v3, repeatable: the library chooses when it "
            "is loaded. Default: this processor.",
        ),
    ] = None,
    triple: Annotated[
        str,
        typer.Option(metavar="SYSTEM", help="Another system: aarch64-linux-gnu."),
    ] = "",
    threads: Annotated[
        int,
        typer.Option(metavar="N", help="The most threads to plan for."),
    ] = 0,
) -> None:
    """Export an operator as a C library: header, objects, launcher, CMake, example.

    Sizes that the kernel takes at run time are arguments of the function. Numbers such
    as the rate of dropout are fixed by --attr.

    Examples:
        tlang export dense --shape 64x784,512x784 -o dense
        tlang export softmax --cpu x86-64-v2 --cpu x86-64-v4 -o softmax
    """
    found = options.operator(op)
    given = [options.workload(found, each, dtype, attr) for each in shape or (None,)]
    asked, fixable = options.attributes(attr), exports.numbers(found)
    made = exports.export_operator(
        found,
        given,
        output,
        name=name,
        values={name: v for name, v in asked.items() if name in fixable},
        on=exports.machines(cpu or (), triple, threads),
    )
    document.found("files", [*made.libraries, *made.objects])
    for path in (*made.libraries, *made.objects):
        console.say(f"{path.relative_to(made.folder)}  {path.stat().st_size} bytes")
    if made.missing:
        raise ArgumentError(made.missing)
