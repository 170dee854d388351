"""`tlang studies`: the searches of a storage, and how far they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tensorlang.cli import completion, console, document, options
from tensorlang.cli.quantities import Seconds
from tensorlang.tuner.landscapes import landscape as landscapes
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.storage import studies as stored
from tensorlang.tuner.storage.databases import default_url, redacted
from tensorlang.tuner.storage.storage import GRACE
from tensorlang.tuner.storage.studies import Study

app = typer.Typer(add_completion=False)

_SHOWN = 5  # configurations

Name = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Its number, or a part of its name.",
        autocompletion=completion.stored,
    ),
]


@app.callback(invoke_without_command=True)
def _about(ctx: typer.Context) -> None:
    """List, show and export searches, shared ones too.

    Examples:
        tlang studies ls
        tlang studies show 1
    """
    if ctx.invoked_subcommand is None:
        console.say(ctx.get_help())


@app.command()
def ls(*, storage: options.Storage = None) -> None:
    """List the studies: a workload on a machine each.

    Examples:
        tlang studies ls
        tlang studies ls --storage postgresql://host/searches --json
    """
    url = storage or default_url()
    rows = [
        (
            study.id,
            str(study.about.workload) if study.about else study.name,
            study.about.device if study.about else "",
            study.finished,
            study.running or None,
            None if study.seconds is None else Seconds(study.seconds),
            "" if study.latest is None else f"{study.latest:%Y-%m-%d %H:%M}",
        )
        for study in stored.every(url)
    ]
    head = ("study", "workload", "machine", "trials", "claimed", "best", "latest")
    if rows or document.wanted():
        console.table(head, rows, name="studies")
    else:
        console.say(f"no studies in {redacted(url)}; tlang tune begins them")


@app.command()
def show(name: Name, *, storage: options.Storage = None) -> None:
    """Show what came of a study's trials, its best, and what is being measured.

    Examples:
        tlang studies show 3
        tlang studies show "random.bits(u32[2], shape[4096]"
    """
    url = storage or default_url()
    study = stored.named(url, name)
    trials = stored.trials(url, study)
    rows = [trial.row for trial in trials if trial.row is not None and trial.told]
    console.paragraph(study.name)
    document.found("study", study.name)
    counts = Counter(row.outcome.status for row in rows)
    said = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    console.paragraph(f"{len(rows)} trials" + (f": {said}" if said else ""), "  ")
    right = {row.candidate.key: row for row in rows if row.outcome.ok}
    best = sorted(right.values(), key=lambda row: row.outcome.seconds)
    document.found("trials", counts)
    for row in best[:_SHOWN]:
        timed = {"candidate": row.candidate, "seconds": row.outcome.seconds}
        document.append("best", timed)
        told = f"{Seconds(row.outcome.seconds)}  {row.candidate}"
        console.paragraph(told, "  ")
    for trial in trials:
        if trial.running and trial.row is not None and trial.age is not None:
            claimed = {"candidate": trial.row.candidate, "heartbeat": trial.age}
            document.append("claimed", claimed)
            ended = ", and free again" if trial.age >= GRACE else ""
            console.paragraph(
                f"claimed: {trial.row.candidate}, last heartbeat {trial.age:.0f} s "
                f"ago{ended}",
                "  ",
            )


@app.command()
def export(
    name: Name,
    to: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Rows (.jsonl), Kernel Tuner's cache (.json) or T4 (.t4.json).",
        ),
    ],
    *,
    storage: options.Storage = None,
) -> None:
    """Write a study as a file that tlang replay reads.

    Examples:
        tlang studies export 3 rows.jsonl
        tlang studies export 3 cache.json
    """
    url = storage or default_url()
    study = stored.named(url, name)
    landscapes.write(_landscape(url, study), to)
    console.say(f"written to {to}")
    document.found("file", to)


def _landscape(url: str, study: Study) -> Landscape:
    rows = [
        trial.row
        for trial in stored.trials(url, study)
        if trial.row is not None and trial.told
    ]
    about = study.about
    if about is None:
        return Landscape.of(study.name, "", rows)
    return Landscape.of(str(about.workload), about.device, rows, about.workload)
