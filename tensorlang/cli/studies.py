"""`tlang studies`: the searches of a storage, and how far they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tensorlang.cli import console
from tensorlang.tuner.landscapes import landscape as landscapes
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.storage import studies as stored
from tensorlang.tuner.storage.databases import default_url, redacted
from tensorlang.tuner.storage.storage import GRACE
from tensorlang.tuner.storage.studies import Study

app = typer.Typer(add_completion=False)

_SHOWN = 5  # configurations

Storage = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Optuna storage (default: a SQLite file)."),
]
Name = Annotated[
    str, typer.Argument(metavar="STUDY", help="Its number, or a part of its name.")
]


@app.callback(invoke_without_command=True)
def _about(ctx: typer.Context) -> None:
    """List, show and export searches, shared ones too."""
    if ctx.invoked_subcommand is None:
        console.say(ctx.get_help())


@app.command()
def ls(*, storage: Storage = None) -> None:
    """List the studies: a workload on a machine each."""
    url = storage or default_url()
    rows = [
        (
            str(study.id),
            str(study.about.workload) if study.about else study.name,
            study.about.device if study.about else "",
            str(study.finished),
            str(study.running or ""),
            "" if study.seconds is None else console.duration(study.seconds),
            "" if study.latest is None else f"{study.latest:%Y-%m-%d %H:%M}",
        )
        for study in stored.every(url)
    ]
    head = ("study", "workload", "machine", "trials", "claimed", "best", "latest")
    if rows:
        console.table(head, rows)
    else:
        console.say(f"no studies in {redacted(url)}; tlang tune begins them")


@app.command()
def show(name: Name, *, storage: Storage = None) -> None:
    """Show what came of a study's trials, its best, and what is being measured."""
    url = storage or default_url()
    study = stored.named(url, name)
    trials = stored.trials(url, study)
    rows = [trial.row for trial in trials if trial.row is not None and trial.told]
    console.paragraph(study.name)
    counts = Counter(row.outcome.status for row in rows)
    said = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    console.paragraph(f"{len(rows)} trials" + (f": {said}" if said else ""), "  ")
    right = {row.candidate.key: row for row in rows if row.outcome.ok}
    best = sorted(right.values(), key=lambda row: row.outcome.seconds)
    for row in best[:_SHOWN]:
        told = f"{console.duration(row.outcome.seconds)}  {row.candidate}"
        console.paragraph(told, "  ")
    for trial in trials:
        if trial.running and trial.row is not None and trial.age is not None:
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
    storage: Storage = None,
) -> None:
    """Write a study as a file that tlang replay reads."""
    url = storage or default_url()
    study = stored.named(url, name)
    landscapes.write(_landscape(url, study), to)
    console.say(f"written to {to}")


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
