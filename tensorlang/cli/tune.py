"""`tlang tune`: search with a progress bar, then what was found against the default."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tensorlang.cli import console, options
from tensorlang.cli.tune_network import tune_network
from tensorlang.cli.watching import watcher
from tensorlang.errors import ArgumentError
from tensorlang.tuner import static_tuning
from tensorlang.tuner.storage import default_url, redacted
from tensorlang.tuner.tuning import tune as search

if TYPE_CHECKING:
    from tensorlang.tuner.progress import Progress, Report

app = typer.Typer(add_completion=False)

INTERRUPTED: Final = 130
_BUDGET: Final = "60s"
_MOST_REASONS: Final = 40


@app.command()
def tune(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="[OP]", help="An operator, or module:name for your own."
        ),
    ] = None,
    *,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An ONNX file: tune all that it computes."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", help="First size of a model's inputs where open."),
    ] = None,
    target: options.TargetName = None,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Such as 90s, 2m or 1h; 60s by default."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="End after so many configurations instead."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the search.")] = 0,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Optuna's; by default a file of the user's."),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on from the trials of earlier runs.")
    ] = True,
    compile_only: Annotated[
        bool,
        typer.Option(
            "--compile-only", help="For a GPU that is not here: by static cost."
        ),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For tracebacks of what failed."),
    ] = None,
) -> None:
    """Find the fastest schedule of an operator, a family's members, or a network's.

    Every candidate is checked before it is timed, and only what beats the default
    beyond the noise is recorded. Ctrl-C keeps what was tried: the same command goes on.

    With --compile-only nothing is run: candidates for a CUDA architecture are compiled,
    and the one that should be the fastest is recorded as a guess, which gives way to
    whatever is measured.
    """
    limit = _end(budget, trials, seed)
    if compile_only and model is not None:
        raise ArgumentError("--compile-only takes an operator: leave out --model")
    if compile_only:
        options.to_compile(target)  # which says what cuda stands for
    machine = static_tuning.machine(target, compile_only=compile_only)
    if model is not None:
        if op is not None or shape or dtype or attr or trials is not None:
            raise ArgumentError(
                "--model names all that is tuned, within --budget: leave out OP, "
                "--shape, --dtype, --attr and --trials"
            )
        how = {"target": machine, "seed": seed, "storage": storage, "resume": resume}
        how["log"] = log
        tune_network(model, batch, limit or options.seconds(_BUDGET), how, _tell)
        return
    if op is None:
        raise ArgumentError("name an operator to tune, or a network with --model FILE")
    members = options.operators(op)
    for member in members:
        options.workload(member, shape, dtype, attr)
    request: dict[str, Any] = {
        "shapes": members[0].shorthand(options.shapes(shape)) or None,
        "dtypes": options.dtypes(dtype),
        **options.attributes(attr),
        "budget": limit,
        "trials": trials,
        "target": machine,
        "seed": seed,
        "storage": storage,
        "resume": resume,
        "compile_only": compile_only,
        "log": log,
    }
    console.say(
        f"tuning {op} {'by static cost for' if compile_only else 'on'} {machine}"
    )
    begun = time.monotonic()
    with watcher(len(members), limit, trials) as watched:
        reports, stopped = _searched(op, watched, request)
    _tell(reports, time.monotonic() - begun)
    if stopped:
        place = redacted(storage or default_url())
        typer.echo(
            f"tlang: stopped; what was tried is kept in {place}, and the same command "
            "goes on from there",
            err=True,
        )
        raise typer.Exit(INTERRUPTED)


def _end(budget: str | None, trials: int | None, seed: int) -> float | None:
    """The seconds that a run may take, None where trials alone end it.

    Raises:
        ArgumentError: budget, trials or seed are out of their domains.
    """
    if trials is not None and trials < 1:
        raise ArgumentError(f"--trials {trials}: at least one is needed")
    if not 0 <= seed < 1 << 32:
        raise ArgumentError(f"--seed {seed}: it must be from 0 to 2^32 - 1")
    if budget is None and trials is not None:
        return None
    return options.seconds(_BUDGET if budget is None else budget)


def _searched(
    op: str, watched: Callable[[Progress], None], request: Mapping[str, Any]
) -> tuple[list[Report], bool]:
    """What was found, and whether Ctrl-C ended the search."""
    try:
        reports = search(op, listen=watched, **request)
    except KeyboardInterrupt:
        return [], True
    return reports, any(report.interrupted for report in reports)


def _tell(reports: list[Report], seconds: float) -> None:
    """The table of what was found, the failures by kind, and where time went."""
    if not reports:
        return
    head = ("workload", "default", "best", "faster", "tried", "with")
    console.table(head, map(_row, reports))
    for report in reports:
        for reason, count in list(report.reasons.items())[:_MOST_REASONS]:
            console.say(f"{report.operator}: {count} x {reason}")
        if (more := len(report.reasons) - _MOST_REASONS) > 0:
            console.say(f"{report.operator}: {more} more kinds of failure")
        if report.note:
            console.say(f"{report.operator}: {report.note}")
    files = {report.record.parent for report in reports if report.record}
    for folder in sorted(files):
        console.say(f"recorded in {folder}")
    console.say(_stages(reports, seconds))


def _row(report: Report) -> tuple[str, ...]:
    spread = f" +- {report.spread:.1%}" if report.spread else ""
    about = "about " if report.static else ""
    return (
        str(report.workload),
        about + console.duration(report.default_seconds),
        about + console.duration(report.seconds) + spread,
        _faster(report),
        f"{report.trials} (all)" if report.exhausted else str(report.trials),
        str(report.best),
    )


def _faster(report: Report) -> str:
    """How much faster than the default, as far as is known."""
    if report.static and report.seconds < report.default_seconds:
        return f"static, {report.default_seconds / report.seconds:.2f}x"
    if report.ratio is not None:
        return str(report.ratio)
    return "the default stands" if report.compared else "not compared"


def _stages(reports: Iterable[Report], seconds: float) -> str:
    """Where the time went, one line."""
    total: dict[str, float] = {}
    trials = 0
    for report in reports:
        trials += report.trials
        for stage, spent in report.spent.items():
            total[stage] = total.get(stage, 0.0) + spent
    parts = [f"{stage} {console.duration(spent)}" for stage, spent in _sorted(total)]
    return f"{trials} trials in {console.duration(seconds)}: {', '.join(parts)}"


def _sorted(total: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(total.items(), key=lambda item: -item[1])
