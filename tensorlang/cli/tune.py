"""`tlang tune`: search with a progress bar, then the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tensorlang import machine as machines
from tensorlang.cli import completion, console, document, options
from tensorlang.cli.contests import compare_two
from tensorlang.cli.progress_display import watcher
from tensorlang.cli.quantities import Seconds
from tensorlang.cli.tune_network import tune_network
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.ops import find
from tensorlang.targets import Target
from tensorlang.tuner.limits.probe import probe
from tensorlang.tuner.progress import Progress, Report
from tensorlang.tuner.static import tuning as static_tuning
from tensorlang.tuner.storage.databases import default_url, redacted
from tensorlang.tuner.tuning import CANDIDATE_LIMIT
from tensorlang.tuner.tuning import tune as search

app = typer.Typer(add_completion=False)

INTERRUPTED: Final = 130
_BUDGET: Final = "60s"
_MOST_REASONS: Final = 40
_WITH_PROBE: Final = 10.0  # seconds of a budget that has room for it


@app.command()
def tune(
    op: options.OptionalName = None,
    *,
    model: options.ModelFile = None,
    batch: options.Batch = None,
    tolerance: options.Tolerance = None,
    target: options.TargetName = None,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Such as 90s, 2m or 1h (default: 60s). The default configuration has "
            f"{CANDIDATE_LIMIT:.0f} s even so.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="Stop after this many configurations instead."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the search.")] = 0,
    storage: options.Storage = None,
    resume: Annotated[
        bool, typer.Option(help="Continue from the trials of earlier runs.")
    ] = True,
    compile_only: Annotated[
        bool,
        typer.Option("--compile-only", help="Rank by static cost, without the GPU."),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write tracebacks of failed trials here."),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Only compare two configurations.",
            autocompletion=completion.configurations,
        ),
    ] = None,
) -> None:
    """Find the fastest schedule of an operator, a family's members, or a network.

    Every candidate is checked before it is timed, and only a candidate that beats the
    default beyond measurement noise is recorded. Trials survive Ctrl-C: the same
    command resumes.

    With --compile-only nothing is run: candidates for a CUDA architecture are compiled,
    and the one with the lowest static cost is recorded as an estimate, which any
    measured record overrides.

    --compare takes two of: default, record (what a call runs), knob=value,...,
    algorithm(knob=value, ...) as reports have it, or a file with one of them; --budget
    is then the time to wait for other processes that measure.

    Examples:
        tlang tune dense --shape 64x784,512x784 --budget 60s
        tlang tune random.bits --target opencl --trials 40
        tlang tune softmax --target cuda:sm_90a --compile-only
        tlang tune --model network.onnx --batch 8 --budget 10m
        tlang tune bits --compare default record
    """
    limit = _end(budget, trials, seed)
    if compile_only and model is not None:
        raise ArgumentError("--compile-only takes an operator: leave out --model")
    if compile_only:
        options.to_compile(target)  # prints which architecture cuda stands for
    machine = static_tuning.machine(target, compile_only=compile_only)
    how = {"target": machine, "seed": seed, "storage": storage, "resume": resume}
    how["log"] = log
    if model is None:
        options.of_models(tolerance)
    if model is not None:
        _refuse_beside_model(op, shape, dtype, attr, trials, compare)
        whole = limit or options.seconds(_BUDGET)
        left = whole - _probe_once(machine, whole)
        tune_network(model, batch, left, how, _tell, tolerance=tolerance)
    elif op is None:
        raise ArgumentError("name an operator to tune, or a network with --model FILE")
    elif compare is not None:
        if compile_only:
            raise ArgumentError("--compare measures: leave out --compile-only")
        found = options.operator(op)
        workload = options.workload(found, shape, dtype, attr)
        compare_two(found, workload, machine, compare, limit)
    else:
        members, request = _asked(op, shape, dtype, attr)
        probing = _probe_once(machine, limit)
        limit = None if limit is None else limit - probing
        request |= {"budget": limit, "trials": trials, "compile_only": compile_only}
        how_judged = "by static cost for" if compile_only else "on"
        console.say(f"tuning {op} {how_judged} {machine}")
        _search(op, members, request | how)


def _refuse_beside_model(*given: object) -> None:
    """Check that no option for an operator is given beside a network."""
    if any(each not in (None, []) for each in given):
        raise ArgumentError(
            "--model tunes all its workloads within --budget: leave out OP, --shape, "
            "--dtype, --attr, --trials and --compare"
        )


def _asked(
    op: str, shape: str | None, dtype: str | None, attr: list[str] | None
) -> tuple[int, dict[str, Any]]:
    """The number of operators that a name stands for, and the workload to tune.

    Raises:
        ShapeError, DTypeError, ArgumentError: it does not fit one of them.
        OperatorError: there is none of this name.
    """
    members = options.operators(op)
    for member in members:
        options.workload(member, shape, dtype, attr)
    shapes = members[0].shorthand(options.shapes(shape)) or None
    given = {"shapes": shapes, "dtypes": options.dtypes(dtype)}
    return len(members), given | options.attributes(attr)


def _search(op: str, members: int, request: Mapping[str, Any]) -> None:
    """Search with a progress line, and print the results.

    Raises:
        typer.Exit: Ctrl-C ended it.
    """
    begun = time.monotonic()
    with watcher(members, request["budget"], request["trials"]) as watched:
        reports, stopped = _searched(op, watched, request)
    _tell(reports, time.monotonic() - begun)
    document.found("interrupted", stopped)
    if stopped:
        place = redacted(request["storage"] or default_url())
        typer.echo(
            f"tlang: stopped; trials are kept in {place}, and the same command "
            "resumes from there",
            err=True,
        )
        raise typer.Exit(INTERRUPTED)


def _probe_once(machine: Target, budget: float | None) -> float:
    """Measure this machine, to be tuned for, once; without success, go on.

    Returns:
        The seconds that it took. A short budget leaves it to a later run.
    """
    if machine.kind != "llvm" or not machines.may_probe():
        return 0.0
    if machines.kept() is not None or (budget or inf) < _WITH_PROBE:
        return 0.0
    console.say("measuring this machine once; tlang machine shows the result")
    begun = time.monotonic()
    try:
        machines.keep(probe())
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename else ""
        console.say(f"it is not kept: {place}{problem.strerror}")
    except TensorlangError as problem:
        console.say(f"it could not be measured: {problem}")
    return min(time.monotonic() - begun, (budget or inf) / 2)


def _end(budget: str | None, trials: int | None, seed: int) -> float | None:
    """Seconds that a run may take; None if only trials limit it."""
    if trials is not None and trials < 1:
        raise ArgumentError(f"--trials {trials}: at least one is needed")
    if not 0 <= seed < 1 << 32:
        raise ArgumentError(f"--seed {seed}: must be from 0 to 2^32 - 1")
    if budget is None and trials is not None:
        return None
    return options.seconds(_BUDGET if budget is None else budget)


def _searched(
    op: str, watched: Callable[[Progress], None], request: Mapping[str, Any]
) -> tuple[list[Report], bool]:
    """The reports, and whether Ctrl-C ended the search."""
    try:
        reports = search(op, listen=watched, **request)
    except KeyboardInterrupt:
        return [], True
    return reports, any(report.interrupted for report in reports)


def _tell(reports: list[Report], seconds: float) -> None:
    """Print the results, failures by kind, and where the time went, in 80 columns."""
    if not reports:
        return
    for report in reports:
        document.append("reports", _finding(report))
        console.paragraph(find(report.operator).described(report.workload))
        console.paragraph(_result(report), "  ")
        console.paragraph(str(report.best), "  ")
    for report in reports:
        for reason, count in list(report.reasons.items())[:_MOST_REASONS]:
            console.paragraph(f"{report.operator}: {count} x {reason}")
        if (more := len(report.reasons) - _MOST_REASONS) > 0:
            console.say(f"{report.operator}: {more} more kinds of failure")
        for said in filter(None, (report.note, report.disturbed)):
            console.paragraph(f"{report.operator}: {said}")
    files = {report.record.parent for report in reports if report.record}
    for folder in sorted(files):
        console.say(f"recorded in {folder}")
    console.paragraph(_stages(reports, seconds))


def _finding(report: Report) -> dict[str, object]:
    """A report in JSON."""
    ratio = report.ratio
    return {
        "workload": report.workload,
        "machine": report.target,
        "default_seconds": report.default_seconds,
        "seconds": report.seconds,
        "spread": report.spread if report.seconds is not None else None,
        "algorithm": report.best.algorithm,
        "knobs": report.best.knobs,
        "gain": ratio and ratio.median,
        "interval": ratio and (ratio.low, ratio.high),
        "static": report.static,
        "trials": report.trials,
        "counts": report.counts,
        "failures": report.reasons,
        "record": report.record,
        "interrupted": report.interrupted,
        "note": report.note,
    }


def _result(report: Report) -> str:
    if report.default_seconds is None or report.seconds is None:
        return f"the default was not timed and stands, {_tried(report)}"
    spread = f" +- {report.spread:.1%}" if report.spread else ""
    about = "about " if report.static else ""
    return (
        f"default {about}{Seconds(report.default_seconds)}, "
        f"best {about}{Seconds(report.seconds)}{spread}, "
        f"{_faster(report, report.default_seconds, report.seconds)}, {_tried(report)}"
    )


def _tried(report: Report) -> str:
    """The number of trials, and how many of them are of earlier runs."""
    earlier = f"{report.earlier} earlier" if report.earlier else ""
    remarks = filter(None, ("all" if report.exhausted else "", earlier))
    said = ", ".join(remarks)
    return f"{report.trials} tried ({said})" if said else f"{report.trials} tried"


def _faster(report: Report, default: float, best: float) -> str:
    """Speedup over the default, as far as it is known."""
    if report.static and best < default:
        return f"static, {default / best:.2f}x"
    if report.ratio is not None:
        return str(report.ratio)
    return "the default stands" if report.compared else "not compared"


def _stages(reports: Iterable[Report], seconds: float) -> str:
    """One line on where the time went."""
    total: dict[str, float] = {}
    trials = 0
    for report in reports:
        trials += report.trials - report.earlier
        for stage, spent in report.spent.items():
            total[stage] = total.get(stage, 0.0) + spent
    parts = [f"{stage} {Seconds(spent)}" for stage, spent in _sorted(total)]
    said = "1 trial" if trials == 1 else f"{trials} trials"
    return f"{said} in {Seconds(seconds)}: {', '.join(parts)}"


def _sorted(total: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(total.items(), key=lambda item: -item[1])
