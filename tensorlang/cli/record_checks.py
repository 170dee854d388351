"""`tlang records verify`: records read, replayed and, if asked, measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Final

import typer

from tensorlang import lazy, record_files, targets
from tensorlang import records as held
from tensorlang.cli import console, document
from tensorlang.errors import OperatorError, RecordError, TargetError, TuningError
from tensorlang.ops import Operator, find
from tensorlang.ops.kernels import building
from tensorlang.record_files import Record
from tensorlang.workload import Workload

with lazy.modules(__name__):  # Optuna is slow to import
    from tensorlang.tuner import tuning


_LAYERS: Final = ("user", "shipped")
_UNVERIFIED: Final = "unverified"
_TRIALS: Final = 8  # the default, and records of other shapes, which are tried too


def _files() -> Iterator[tuple[str, Path]]:
    """Every record file with its layer, highest precedence first."""
    for layer, folder in zip(_LAYERS, held.folders(), strict=True):
        for path in held.all_files(folder):
            yield layer, path


def every(broken: list[str]) -> Iterator[tuple[str, Record]]:
    """All records with their layers; errors of files are collected in `broken`."""
    for layer, path in _files():
        try:
            found = record_files.read(path)
        except RecordError as problem:
            broken.append(str(problem))
            continue
        for record in found:
            yield layer, record


def verify(
    *,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Compare unverified records of this machine's devices."
        ),
    ] = False,
) -> None:
    """Check every record file and replay its records; exit with 1 if any is stale.

    Covers records of this CPU, of the devices present, and of the CUDA architectures
    that can be compiled for.

    With --measure, records that were merged from elsewhere are checked and timed
    against the default and the record in use, as tlang tune does: the winner becomes
    the record, and the others are dropped.

    Examples:
        tlang records verify
        tlang records verify --measure
    """
    here = {target.fingerprint: target for target in _present()}
    if measure:
        _measure(here)
    counts: dict[str, int] = defaultdict(int)
    broken: list[str] = []
    for layer, record in console.tracked(list(every(broken)), "records"):
        said = _verdict(record, here)
        finding = {"workload": record.workload, "machine": record.target}
        document.append("records", finding | {"layer": layer, "verdict": said})
        counts[said.partition(":")[0]] += 1
        if said not in ("good", _UNVERIFIED):
            console.say(f"{said}: {layer} record of {record.workload}")
    for problem in broken:
        console.say(f"broken: {problem}")
    counts["broken"] = len(broken)
    document.found("counts", counts)
    document.found("broken", broken)
    total = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    console.say(f"records: {total}")
    if counts["broken"] or counts["stale"]:
        raise typer.Exit(1)


def _present() -> Iterator[targets.Target]:
    """This CPU, every device present, and the architectures to compile for."""
    for architecture in targets.ARCHITECTURES:
        yield targets.get(f"cuda:{architecture}")
    yield targets.host()
    for kind in ("opencl", "cuda"):
        for number in count():
            try:
                yield targets.get(f"{kind}:{number}")
            except TargetError:
                break


def _verdict(record: Record, present: Mapping[str, targets.Target]) -> str:
    here = present.get(record.target)
    if here is None:
        return f"of another machine ({record.target})"
    try:
        op = find(record.workload.operator)
    except OperatorError:
        return "of an operator that is not imported here"
    threads = record.workload.threads
    target = here.with_threads(threads) if threads else here
    result = building.replayed(op, record, record.workload, target)
    if isinstance(result, str):
        return result
    if extra := result[1].unasked():
        return f"stale: {', '.join(extra)} is not a knob of its schedule"
    if record.schedule != (op.scheduled_as or building.GENERIC):
        return f"stale: {op.id} is not scheduled by {record.schedule!r}"
    if record.seconds <= 0:
        return "stale: its time is not positive"
    return _UNVERIFIED if record.unverified else "good"


def _measure(present: Mapping[str, targets.Target]) -> None:
    """Compare the unverified records of the devices present, by workload."""
    claims: dict[tuple[str, Workload], int] = defaultdict(int)
    for _, record in every([]):
        here = present.get(record.target)
        if record.unverified and here is not None and here.index >= 0:
            claims[record.target, record.workload] += 1
    for (fingerprint, workload), number in claims.items():
        try:
            op = find(workload.operator)
        except OperatorError as problem:
            console.paragraph(f"{workload}: {problem}")
            continue
        _compare(op, workload, present[fingerprint], number)


def _compare(
    op: Operator, workload: Workload, here: targets.Target, count: int
) -> None:
    """Settle the unverified records of a workload, and say how."""
    threads = workload.threads
    try:
        (report,) = tuning.tune(
            op,
            workload=workload,
            target=here.with_threads(threads) if threads else here,
            budget=None,
            trials=count + _TRIALS,
            storage="sqlite:///:memory:",
        )
    except TuningError as problem:
        console.paragraph(f"{op.described(workload)}: {problem}")
        return
    path = record_files.path_of(held.user_folder(), here.fingerprint, op.id)
    if report.compared:

        def settled(record: Record) -> bool:
            return record.unverified and record.workload == workload

        record_files.remove(path, settled)
        held.forget()
    times = f"{report.ratio} the default" if report.ratio else "the default stands"
    said = times if report.compared else f"not compared; {report.note}"
    console.paragraph(f"{op.described(workload)}: {report.best}, {said}")
    for reason in report.reasons:
        console.paragraph(reason, "  ")
