"""`tlang replay`: a finished search, compared samplers, plots and other formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from tensorlang import lazy, targets
from tensorlang.cli import completion, console, document, options
from tensorlang.cli.quantities import Seconds, Times
from tensorlang.errors import ArgumentError
from tensorlang.ops import Operator
from tensorlang.targets import Target
from tensorlang.tuner.landscapes import landscape as landscapes
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.storage import studies
from tensorlang.tuner.storage.databases import default_url
from tensorlang.tuner.tuning_run import Run
from tensorlang.workload import Workload

with lazy.modules(__name__):  # Optuna is slow to import
    from tensorlang.tuner.landscapes import plots as study_plots
    from tensorlang.tuner.landscapes import replay as replays


app = typer.Typer(add_completion=False)

_SUFFIXES: Final = (".jsonl", ".json")  # of files
_MARKS: Final = (1, 2, 5)  # trials at which the best is shown, times powers of ten


@app.command()
def replay(
    search: Annotated[
        str,
        typer.Argument(
            metavar="SEARCH",
            help="An operator that was tuned here, or a file.",
            autocompletion=completion.operators,
        ),
    ],
    *,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    target: options.TargetName = None,
    storage: options.Storage = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Such as model,tpe,random or module:name (default: random,tpe).",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(metavar="N", min=1, help="Configurations to try.")
    ] = 100,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Runs of each sampler.")
    ] = 5,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write it as rows (.jsonl), Kernel Tuner's cache (.json) or T4 "
            "(.t4.json).",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw history and importance of knobs."),
    ] = None,
) -> None:
    """Run samplers over a finished search, without hardware and in seconds.

    A search is the trials that tlang tune kept for a workload, or a file: rows written
    with --to, a cache file of Kernel Tuner, or T4 results.

    The table has the best time so far over the best of the search, the median of all
    runs. The sampler model is the tuner's own. --to and --plot alone replay nothing.

    Examples:
        tlang replay dense --shape 64x784,512x784 --sampler model,tpe,random
        tlang replay rows.jsonl --trials 50 --seeds 20
        tlang replay rows.jsonl --plot pictures
    """
    if Path(search).is_file():
        if shape or dtype or attr or target or storage:
            raise ArgumentError(f"{search} is a file: leave out what names a workload")
        found = landscapes.read(Path(search))
    elif Path(search).suffix in _SUFFIXES or len(Path(search).parts) > 1:
        raise ArgumentError(f"there is no file {search}")
    else:
        op = options.operator(search)
        workload = options.workload(op, shape, dtype, attr)
        found = _kept(op, workload, targets.get(target), storage or default_url())
    _describe(found)
    if to is not None:
        landscapes.write(found, to)
        console.say(f"written to {to}")
        document.found("file", to)
    if plot is not None:
        for path in study_plots.plot(found, plot):
            console.say(f"drawn in {path}")
    if sampler or not (to or plot):
        _compare(found, (sampler or "random,tpe").split(","), trials, seeds)


def _kept(op: Operator, workload: Workload, here: Target, url: str) -> Landscape:
    """The trials of a workload in the storage."""
    workload = replace(workload, threads=here.threads)
    rows = studies.rows(url, Run(op, workload, here).study)
    if not rows:
        raise ArgumentError(
            f"{op.described(workload)} was not tuned on {here}; tlang tune does"
        )
    said = op.described(workload)
    return Landscape.of(said, here.fingerprint, rows, workload)


def _describe(found: Landscape) -> None:
    """Print the size of a search, its best, and what mattered."""
    timed = sum(row.outcome.ok for row in found.rows)
    on = f" on {found.device}" if found.device else ""
    console.paragraph(f"{found.name}{on}")
    best = found.best
    document.found("search", found.name)
    document.found("device", found.device)
    document.found("configurations", len(found.rows))
    document.found("timed", timed)
    document.found("best", best.candidate)
    document.found("seconds", best.outcome.seconds)
    console.paragraph(
        f"{len(found.rows)} configurations, {timed} of them timed; the best "
        f"{Seconds(best.outcome.seconds)}: {best.candidate}",
        "  ",
    )
    shares = study_plots.importances(found)
    document.found("importance", shares)
    told = ", ".join(f"{name} {part:.0%}" for name, part in shares.items() if part)
    if told:
        console.paragraph(f"importance for the fastest: {told}", "  ")


def _compare(found: Landscape, names: list[str], trials: int, seeds: int) -> None:
    """Print the best so far of each sampler against the number of trials."""
    makers = {name: replays.sampler(name, found) for name in names}
    least = found.best.outcome.seconds
    columns: dict[str, list[list[float]]] = {}
    for name, make in makers.items():
        runs = [
            replays.replay(found, make, trials=trials, seed=n)
            for n in console.tracked(range(seeds), name)
        ]
        columns[name] = [run.best for run in runs]
        if near := sum(run.near for run in runs):
            share = near / sum(len(run.best) for run in runs)
            console.paragraph(
                f"{name}: {share:.0%} of its configurations are the nearest measured "
                "ones, not the suggested ones"
            )
    most = max(len(best) for runs in columns.values() for best in runs)
    marks = [m * 10**n for n in range(9) for m in _MARKS if m * 10**n < most] + [most]
    rows = [
        (mark, *(Times(_at(mark, runs) / least) for runs in columns.values()))
        for mark in marks
    ]
    console.table(("trials", *columns), rows, name="samplers")


def _at(mark: int, runs: list[list[float]]) -> float:
    """The median of the best times after some trials."""
    return median(best[min(mark, len(best)) - 1] for best in runs)
