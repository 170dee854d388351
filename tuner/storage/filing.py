"""Records read and written by a tuning run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang import record_files, records
from tensorlang.errors import RecordError, TensorlangError, TuningError
from tensorlang.record_files import Record, path_of
from tensorlang.tuner.limits.roofline import fraction
from tensorlang.tuner.storage import spool
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.version import __version__

if TYPE_CHECKING:
    from tensorlang.tuner.progress import Report
    from tensorlang.tuner.search.finals import Finals
    from tensorlang.tuner.search.search import Search
    from tensorlang.tuner.search.space import Space
    from tensorlang.tuner.tuning_run import Run

_NEIGHBOURS: Final = 4
_RECORDS: Final = "records"  # where they are kept until they can be added


def candidate_of(record: Record) -> Candidate:
    """The configuration of a record."""
    return Candidate(record.algorithm, dict(record.knobs))


def existing_records(
    run: Run, space: Space
) -> tuple[Record | None, list[Candidate], list[str]]:
    """The current record, candidates worth trying early, and stale IR hashes.

    A stale record's knobs no longer produce its code: it is not used, and its time does
    not keep a new record out. A static record has no measured time to compare with, and
    the time of an unverified one is a claim, but both are worth trying.
    """
    incumbent: Record | None = None
    hints, stale = [], []
    for number, choice in enumerate(records.lookup(run.workload, run.target)):
        record = choice.record
        own = record.workload == run.workload and record.target == machine(run)
        if number >= _NEIGHBOURS and not (own and record.unverified):
            continue
        if record.algorithm not in space.algorithms:
            stale += [record.ir] * own
            continue
        point = space.given(candidate_of(record))
        if point.lost:  # which says nothing about the record
            raise TuningError(f"records cannot be checked: {point.lost}")
        hints.append(point.candidate)
        if own and point.ir != record.ir:
            stale.append(record.ir)
        elif own and record.unverified:
            run.merged[record.ir] = point.candidate
        elif own and incumbent is None and (run.static or not record.static):
            incumbent = record
    return incumbent, hints, stale


def machine(run: Run) -> str:
    """The fingerprint of the machine that a run tunes for."""
    return run.target.fingerprint


def record_file(run: Run) -> Path:
    """The user's record file of a run's operator."""
    return path_of(records.user_folder(), machine(run), run.op.id)


def withdraw(run: Run, search: Search, incumbent: Record | None) -> str:
    """Remove the records of a run's workload whose configurations failed in it.

    Returns:
        Which of them were on record, and why they are no longer, in a sentence.
    """
    on_record = dict(run.merged)
    if incumbent is not None:
        on_record[incumbent.ir] = candidate_of(incumbent)
    said = {
        ir: f"{each}, which was on record, failed ({outcome.status}) and is dropped"
        for ir, each in on_record.items()
        if (outcome := search.failure(each))
    }
    if not said:
        return ""
    with contextlib.suppress(RecordError, OSError):  # what replaces it may be kept
        record_files.remove(
            record_file(run),
            lambda held: held.workload == run.workload and held.ir in said,
        )
    records.forget()
    run.op.forget()
    return "; ".join(said.values())


def store_winner(
    run: Run, search: Search, report: Report, measured: Finals, incumbent: Record | None
) -> Report:
    """Store the winner in the user's records; return the completed report."""
    assert report.seconds is not None
    assert report.default_seconds is not None
    outcome = search.known[report.best.key][1]
    record = Record(
        workload=run.workload,
        target=machine(run),
        architecture=records.architecture(run.target),
        algorithm=report.best.algorithm,
        schedule=run.op.scheduled_as or "generic",
        knobs=tuple(sorted(report.best.knobs.items())),
        ir=outcome.ir,
        generator=__version__,
        seconds=report.seconds,
        spread=report.spread,
        default_seconds=report.seconds * report.ratio.median
        if report.ratio
        else report.default_seconds,
        roofline=0.0 if run.static else _roofline(run, report.seconds),
        error=outcome.error,
        date=time.strftime("%Y-%m-%d"),
        static=run.static,
        measured=measured.measured,
    )
    beaten = list(run.stale)
    if incumbent is not None:
        held = candidate_of(incumbent)
        judged = held.key in measured.samples or search.failure(held) is not None
        beaten += [incumbent.ir] * judged
    beaten += [ir for ir, each in run.merged.items() if each.key in search.known]
    try:
        kept = records.add(record, beaten=beaten)
    except (RecordError, OSError) as problem:
        said = f"the winner could not be recorded: {problem}; {_later(record, beaten)}"
        note = "; ".join(filter(None, (report.note, said)))
        return dataclasses.replace(report, note=note)
    run.op.forget()
    if run.static and not kept:
        return report
    if not kept and (other := _other_winner(run, record)):
        said = (
            f"{other} was recorded meanwhile and stays in use: run it again to compare"
        )
        note = "; ".join(filter(None, (report.note, said)))
        return dataclasses.replace(report, note=note)
    return dataclasses.replace(report, record=record_file(run))


def _other_winner(run: Run, record: Record) -> Candidate | None:
    """The configuration of other code that is on record for the same workload."""
    for held in record_files.read(record_file(run)):
        if held.place == record.place and held.ir != record.ir:
            return candidate_of(held)
    return None


def _later(record: Record, beaten: Sequence[str]) -> str:
    """Keep a record that could not be added; what becomes of it."""
    text = json.dumps([record.to_json(), beaten])
    file = spool.write(f"{_RECORDS}/{uuid.uuid4().hex}.json", text)
    return (
        f"it is kept in {file}, and added by the next run" if file else "run it again"
    )


def add_kept_records() -> None:
    """Add the records that earlier runs could not add, if possible."""
    for file in spool.files(_RECORDS):
        with contextlib.suppress(RecordError, OSError, ValueError, TypeError):
            plain, beaten = json.loads(file.read_text("utf-8"))
            records.add(Record.from_json(plain), beaten=beaten)
            file.unlink(missing_ok=True)


def _roofline(run: Run, seconds: float) -> float:
    """The fraction of the machine's limit reached; 0 if unknown."""
    try:
        return fraction(run.op, run.workload, run.target, seconds)
    except TensorlangError:
        return 0.0
