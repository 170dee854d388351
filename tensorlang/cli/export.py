"""`tlang export`: an operator or a network as a C library that needs no Python."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tensorlang import export as exports
from tensorlang import layers
from tensorlang.cli import console, document, options
from tensorlang.errors import ArgumentError

app = typer.Typer(add_completion=False)


@app.command()
def export(
    op: options.OptionalName = None,
    *,
    model: options.ModelFile = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="A model's largest batch, for all from 1 on; repeated, those only.",
        ),
    ] = None,
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
    tolerance: options.Tolerance = None,
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
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A GPU's architecture such as cuda:sm_90a, repeatable. Default: CPUs.",
        ),
    ] = None,
    triple: Annotated[
        str, typer.Option(metavar="SYSTEM", help="Another system: aarch64-linux-gnu.")
    ] = "",
    threads: Annotated[
        int, typer.Option(metavar="N", help="The most threads to plan for.")
    ] = 0,
) -> None:
    """Export an operator or a network as a C library without Python.

    It has a header, objects, a launcher, a CMake file and an example. Sizes that a
    kernel takes at run time are arguments of the function. Numbers such as the rate of
    dropout are fixed by --attr.

    Examples:
        tlang export dense --shape 64x784,512x784 -o dense
        tlang export softmax --cpu x86-64-v2 --cpu x86-64-v4 -o softmax
        tlang export dense --target cuda:sm_80 --target cuda:sm_90a -o dense
        tlang export --model network.onnx --batch 32 -o network
    """
    if output.exists() and not output.is_dir():
        raise ArgumentError(f"-o {output} is a file: name a folder")
    gpus = [options.to_compile(each) for each in target or ()]
    if gpus and (model or cpu or triple or threads):
        raise ArgumentError(
            "--target cuda takes no --model, --cpu, --triple, --threads"
        )
    if model is None:
        options.of_models(tolerance)
    on = exports.machines(cpu or (), triple, threads)
    if model is not None:
        if op or shape or dtype or attr:
            raise ArgumentError("--model takes no OP, --shape, --dtype or --attr")
        several = batch[0] if batch and len(batch) == 1 else batch or ()
        loaded = layers.Model.load(model, train=False, tolerance=tolerance)
        made = loaded.export(output, batch=several, name=name or "model", on=on)
    elif batch:
        raise ArgumentError("--batch is for --model: give --shape for an operator")
    elif op is None:
        raise ArgumentError(
            "name an operator to export, or a network with --model FILE"
        )
    else:
        found, asked = options.operator(op), options.attributes(attr)
        given = [
            options.workload(found, each, dtype, attr) for each in shape or (None,)
        ]
        values = {n: v for n, v in asked.items() if n in exports.numbers(found)}
        write = partial(exports.export_operator, on=on)
        if gpus:
            write = partial(exports.export_cuda, on=gpus)
        made = write(found, given, output, name=name, values=values)
    _tell(made)


def _tell(made: exports.Exported) -> None:
    """Print what was written, and what is missing."""
    document.found("files", [*made.libraries, *made.objects])
    for path in (*made.libraries, *made.objects):
        console.say(f"{path.relative_to(made.folder)}  {path.stat().st_size} bytes")
    if made.missing:
        console.paragraph(made.missing)
