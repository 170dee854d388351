"""`tlang records`: tuning records, where they are stored and which one applies."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tensorlang import record_files, targets
from tensorlang import records as held
from tensorlang.cli import completion, configuration, console, document, options
from tensorlang.cli.contests import explain_gain
from tensorlang.cli.quantities import Seconds, Settings, Share, Times, Unlike
from tensorlang.cli.record_checks import every, verify
from tensorlang.cli.record_pins import pin, unpin
from tensorlang.errors import RecordError
from tensorlang.machine.limits import limits_of
from tensorlang.record_files import Record
from tensorlang.workload import Workload

app = typer.Typer(add_completion=False)
for command in (verify, pin, unpin):
    app.command()(command)

Machine = Annotated[
    str | None,
    typer.Option(
        metavar="FINGERPRINT", help="Default: this machine; see tlang targets."
    ),
]


def _refuse(broken: Iterable[str]) -> None:
    problems = list(broken)
    if problems:
        raise RecordError("; ".join(problems))


@app.callback(invoke_without_command=True)
def _about(ctx: typer.Context) -> None:
    """List, explain, merge, export, verify, pin and remove tuning records.

    Examples:
        tlang records ls
        tlang records explain dense --shape 64x784,512x784
    """
    if ctx.invoked_subcommand is None:
        console.say(ctx.get_help())


@app.command()
def ls(op: options.OptionalName = None) -> None:
    """List the records: the user's, and those shipped with the package.

    Examples:
        tlang records ls
        tlang records ls dense --json
    """
    names = {found.id for found in options.operators(op)} if op else set()
    broken: list[str] = []
    rows = [
        (
            str(record.workload),
            record.target,
            f"{record.algorithm}({_settings(record)})",
            Unlike(_time(record), record.seconds),
            Times(record.default_seconds / record.seconds) if record.seconds else None,
            f"{layer}, unverified" if record.unverified else layer,
            record.date,
        )
        for layer, record in every(broken)
        if not names or record.workload.operator in names
    ]
    head = ("workload", "machine", "knobs", "time", "vs default", "layer", "date")
    if rows or document.wanted():
        console.table(head, rows, name="records")
    elif not broken:
        console.say(f"no records; tlang tune writes them to {held.user_folder()}")
    _refuse(broken)


def _time(record: Record) -> str:
    """The measured time, or the static estimate, marked as such."""
    said = Seconds(record.seconds)
    return f"static, about {said}" if record.static else str(said)


def _settings(record: Record) -> Settings:
    return Settings(record.knobs)


@app.command()
def explain(
    op: options.Name,
    *,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    target: options.TargetName = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time what each knob gives it.")
    ] = False,
    declined: Annotated[
        bool, typer.Option("--declined", help="List steps that its schedule declined.")
    ] = False,
) -> None:
    """Show which configuration a call would run, and why.

    --measure times it against the default, and against itself with one knob after the
    other at its default.

    Examples:
        tlang records explain dense --shape 64x784,512x784
        tlang records explain bits --measure
    """
    machine = targets.get(target)
    found = options.operator(op)
    workload = options.workload(found, shape, dtype, attr)
    chosen = configuration.choose(found, workload, machine)
    console.paragraph(f"{found.described(workload)} on {machine.fingerprint}")
    settings = Settings(chosen.knobs.values)
    console.paragraph(f"chosen: {chosen.algorithm}({settings})")
    console.say(f"because: {chosen.why}")
    document.found("workload", workload)
    document.found("machine", machine.fingerprint)
    document.found("algorithm", chosen.algorithm)
    document.found("knobs", settings)
    document.found("because", chosen.why)
    if chosen.record is not None:
        console.paragraph(measured := _measured(chosen.record, workload))
        document.found("measured", measured)
    limits = limits_of(
        found.function(workload, chosen.algorithm),
        found.sizes(workload),
        machine,
        configuration.measured(chosen.record, workload, machine),
    )
    console.paragraph(f"limit: {limits.said}")
    document.found("limit", limits.said)
    if measure:
        explain_gain(found, workload, machine, chosen)
    rows = [
        (
            str(verdict.record.workload),
            verdict.record.target,
            _settings(verdict.record),
            verdict.near,
            verdict.said,
        )
        for verdict in chosen.verdicts
    ]
    if rows:
        head = ("record", "machine", "knobs", "near", "verdict")
        console.table(head, rows, name="records")
    else:
        console.say("no record is close enough to apply")
    if declined:
        _tell_declined(chosen)


def _tell_declined(chosen: configuration.Chosen) -> None:
    """Print what a schedule attempted, and why it was declined."""
    counts = Counter((each.way, each.reason) for each in chosen.schedule.declined)
    steps = [(*step, times) for step, times in counts.items()]
    if steps:
        console.say("attempted by its schedule, and declined:")
        console.table(("step", "because", "times"), steps, name="declined")
    else:
        console.say("its schedule declined nothing")


def _measured(record: Record, workload: Workload) -> str:
    """What a record says about its measurement."""
    shapes = record.workload.shapes
    of = f" for {shapes}" if shapes != workload.shapes else ""
    spread = f" +- {Share(record.spread)}" if record.spread else ""
    said = [f"recorded {record.date}{of}: {_time(record)}{spread}"]
    if record.seconds:
        said.append(f"{record.default_seconds / record.seconds:.2f}x the default")
    if record.error:
        said.append(f"error {record.error:.2g} of the tolerance")
    return ", ".join(filter(None, (*said, record.measured)))


@app.command()
def merge(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Record files or folders.")
    ],
) -> None:
    """Merge record files into the user's folder, beside the records measured here.

    They are marked as unverified and used after those measured here, until tlang tune
    or tlang records verify --measure has compared them. The folder is copied before.

    Examples:
        tlang records merge their-records
    """
    broken: list[str] = []
    found: list[Record] = []
    for path in _expanded(paths):
        try:
            found += record_files.read(path, filed=False)
        except RecordError as problem:
            broken.append(str(problem))
    if not found:
        _refuse(broken)
    before = _copied(held.user_folder())
    kept = _filed(
        (replace(each, unverified=True) for each in found), held.user_folder()
    )
    _tell_filed(kept, len(found), held.user_folder())
    if before is not None and kept:
        console.say(f"what it held before is in {before}")
    elif before is not None:
        shutil.rmtree(before)
    if kept:
        console.say("tlang records verify --measure compares those of this machine")
    _refuse(broken)


def _copied(folder: Path) -> Path | None:
    """A copy of a folder of records beside it; None if it holds none."""
    if not held.all_files(folder):
        return None
    prefix = f"{folder.name}-{time.strftime('%Y%m%d')}-"
    copy = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    ignored = shutil.ignore_patterns("*.lock")
    shutil.copytree(folder, copy, ignore=ignored, dirs_exist_ok=True)
    return copy


def _expanded(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            inside = held.all_files(path) or sorted(path.glob("*.json"))
            if not inside:
                raise RecordError(f"folder {path} holds no record files")
            yield from inside
        elif path.exists():
            yield path
        else:
            raise RecordError(f"there is no record file or folder {path}")


def _filed(found: Iterable[Record], folder: Path, *, replacing: bool = False) -> int:
    """Store records below a folder; return how many are new there.

    Args:
        found: The records.
        folder: The folder.
        replacing: Whether they replace measured records of other code.
    """
    places: dict[Path, list[Record]] = defaultdict(list)
    for record in found:
        place = record_files.path_of(folder, record.target, record.workload.operator)
        places[place].append(record)
    filed = 0
    for path, group in places.items():
        there = [held.ir for held in record_files.read(path)] if replacing else []
        filed += record_files.merge(path, group, there)
    return filed


def _tell_filed(kept: int, count: int, folder: Path) -> None:
    console.say(f"{kept} of {count} records filed in {folder}")
    document.found("filed", kept)
    document.found("folder", folder)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="Only this operator.")
    ] = None,
) -> None:
    """Copy the user's records into a folder, to be merged elsewhere or shipped.

    They replace what the folder has for the same workloads on the same machines.

    Examples:
        tlang records export my-records
        tlang records export my-records --op dense
    """
    names = {found.id for found in options.operators(op)} if op else set()
    broken: list[str] = []
    found = [
        record
        for layer, record in every(broken)
        if layer == "user" and (not names or record.workload.operator in names)
    ]
    if not found and not broken:
        raise RecordError(f"there are no user records in {held.user_folder()}")
    kept = _filed(found, folder, replacing=True)
    for lock in folder.glob("*/*.json.lock"):  # not needed in shipped records
        lock.unlink(missing_ok=True)
    _tell_filed(kept, len(found), folder)
    _refuse(broken)


@app.command()
def rm(
    op: Annotated[
        str, typer.Argument(metavar="OP", autocompletion=completion.recorded)
    ],
    *,
    shape: options.Shape = None,
    dtype: options.DType = None,
    machine: Machine = None,
) -> None:
    """Remove the user's records of an operator on this machine, or on the one named.

    Shipped records remain and apply again.

    Examples:
        tlang records rm dense --shape 64x784,512x784
    """
    fingerprint = machine or targets.host().fingerprint
    wanted, types = options.shapes(shape), options.dtypes(dtype)
    only = (types,) if isinstance(types, str) else types

    def unwanted(record: Record) -> bool:
        shapes = record.workload.shapes  # those of keys may be left out
        fits = not wanted or shapes[-len(wanted) :] == wanted
        return fits and (not only or set(record.workload.dtypes) <= set(only))

    removed = 0
    for found in options.operators(op):
        path = record_files.path_of(held.user_folder(), fingerprint, found.id)
        removed += record_files.remove(path, unwanted)
    if not removed:
        raise RecordError(
            f"no user record matches {op} on {fingerprint}; tlang records ls lists them"
        )
    console.say(f"{removed} records removed")
    document.found("removed", removed)
