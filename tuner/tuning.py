"""Tune operators: search within a budget, time the finalists, record the winner.

The default configuration is tried first, the best so far is correct at any time, and
only a configuration that beats the default beyond noise replaces it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from tensorlang import records
from tensorlang.errors import ArgumentError, RecordError, TuningError
from tensorlang.ops import Operator, pins, select
from tensorlang.ops.kernels import building
from tensorlang.ops.kernels.requests import requested
from tensorlang.record_files import read as read_records
from tensorlang.targets import Target
from tensorlang.tuner.limits.roofline import least
from tensorlang.tuner.measurement.processor_load import Load
from tensorlang.tuner.measurement.rounds import Timing, paired_ratio
from tensorlang.tuner.progress import Listener, Report
from tensorlang.tuner.search import finals
from tensorlang.tuner.search.finals import Entrant, Finals
from tensorlang.tuner.search.search import Search
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.static import tuning as static_tuning
from tensorlang.tuner.storage.databases import default_url
from tensorlang.tuner.storage.filing import (
    add_kept_records,
    candidate_of,
    existing_records,
    machine,
    record_file,
    store_winner,
    withdraw,
)
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.storage.studies import (
    About,
    Study,
    by_name,
    of_name,
    turn,
)
from tensorlang.tuner.tuning_run import Run, space_note
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.workload import Workload

CANDIDATE_LIMIT: Final = 30.0
LEAST: Final = 10.0  # seconds for a member of a family; later runs reach the others


def tune(
    op: str | Operator,
    *,
    shapes: Sequence[tuple[int, ...]] | None = None,
    dtypes: tuple[str, ...] | str | None = None,
    workload: Workload | None = None,
    budget: float | None = 60.0,
    trials: int | None = None,
    target: str | Target | None = None,
    seed: int = 0,
    storage: str | None = None,
    resume: bool = True,
    listen: Listener | None = None,
    limit: float = CANDIDATE_LIMIT,
    compile_only: bool = False,
    log: str | Path | None = None,
    **attributes: object,
) -> list[Report]:
    """Find the fastest configuration and store it in the user's records.

    Args:
        op: An operator, its name, or the name of a family, tuned member by member:
            the dearest first, by the time of the best known kernel or else by what
            limits it. Those whose search is done come last (`studies.turn`).
        shapes: The arrays' shapes; default: the operator's.
        dtypes: One dtype for all arrays, or one each.
        workload: A workload in place of shapes, dtypes and attributes.
        budget: Seconds in total; None to be limited by trials only. The default has
            `limit` seconds even so, and as many for waiting.
        trials: Configurations per operator, including earlier runs.
        target: The target to tune for.
        seed: Seed of the search.
        storage: An Optuna storage URL; default: the user's SQLite file.
        resume: Whether trials of earlier runs count.
        listen: Called after each trial.
        limit: Busy seconds per candidate.
        compile_only: Compile for an absent GPU and choose by static cost.
        log: File for the output of workers, including tracebacks of failed candidates.
        attributes: The workload's other attributes.

    Raises:
        OperatorError, TargetError: unknown operator, or no device to measure on.
        ArgumentError, ShapeError, DTypeError: an invalid workload, or no positive
        limit.
        RecordError: the storage or the record file cannot be used.
        KeyboardInterrupt: Ctrl-C before anything was measured.
        TuningError: the worker cannot run, or the default is wrong; for all members of
            a family.
    """
    _checked_ends(budget, trials, limit)
    _checked_choice(seed, storage)
    members = (op,) if isinstance(op, Operator) else select(op)
    chosen = static_tuning.machine(target, compile_only=compile_only)
    begun = time.monotonic()
    runs = []
    for member in members:
        wanted = (
            requested(member, shapes, dtypes, attributes, threads=chosen.threads)
            if workload is None
            else dataclasses.replace(workload, threads=chosen.threads)
        )
        run = Run(member, wanted, chosen, None, trials, limit)
        run.listen, run.static = listen, compile_only
        run.log = None if log is None else Path(log)
        runs.append(run)
    url = storage or default_url()
    if len(runs) > 1:
        runs = _in_turn(runs, _studies(url) if resume else {})
    ends = None if budget is None else begun + budget

    def tuned(run: Run) -> Report:
        study = run.study if resume else f"{run.study}, from {time.time_ns()}"
        return _with_note(_tuned(run, url, study, seed), _passed_over(run.op))

    return _one_by_one(runs, tuned, ends)


def _one_by_one(
    runs: Sequence[Run], tuned: Callable[[Run], Report], ends: float | None
) -> list[Report]:
    """The reports of the runs that are reached before an end."""
    reports: list[Report] = []
    skipped: list[str] = []
    for number, run in enumerate(runs):
        left = None if ends is None else ends - time.monotonic()
        if reports and left is not None and left < LEAST:
            reports[-1] = _with_unreached(reports[-1], [r.op for r in runs[number:]])
            break
        run.begin((number + 1, len(runs)), _share(left, len(runs) - number), left)
        try:
            reports.append(tuned(run))
        except TuningError as problem:
            if len(runs) == 1:
                raise
            skipped.append(f"{run.op.id} was skipped: {problem}")
            continue
        if reports[-1].interrupted:
            break
    if skipped and not reports:
        raise TuningError("; ".join(skipped))
    if skipped:
        reports[-1] = _with_note(reports[-1], "; ".join(skipped))
    return reports


def _studies(url: str) -> Mapping[str, Study]:
    """The studies so far; unknown while the storage is away."""
    try:
        return by_name(url)
    except RecordError:  # an error if it stays so
        return {}


def _in_turn(runs: Sequence[Run], studies: Mapping[str, Study]) -> list[Run]:
    """Members of a family in order."""

    def key(run: Run) -> tuple[int, int, float]:
        study = of_name(studies, run.study)
        known = study.seconds if study else None
        return turn(study, known or least(run.op, run.workload, run.target))

    return sorted(runs, key=key)


def _share(left: float | None, members: int) -> float | None:
    """The seconds of the next of some members, enough for a result."""
    if left is None:
        return None
    return min(max(left / members, LEAST), max(left, 0.0))


def _with_unreached(last: Report, members: Sequence[Operator]) -> Report:
    """The last report, noting which operators the budget did not reach."""
    names = ", ".join(member.id for member in members)
    said = f"the budget ended before {names}; later runs go on with them"
    return _with_note(last, said)


def _passed_over(op: Operator) -> str:
    """That pins keep records of an operator from being used; else empty."""
    if not (fixed := pins.pinned(op)):
        return ""
    where = pins.sources(op)[0]
    return f"{where} fixes {', '.join(fixed)}: while it does, records are passed over"


def _with_note(report: Report, said: str) -> Report:
    return dataclasses.replace(
        report, note="; ".join(filter(None, (report.note, said)))
    )


def _checked_ends(budget: float | None, trials: int | None, limit: float) -> None:
    if budget is None and trials is None:
        raise ArgumentError("tuning needs an end: give a budget, or a number of trials")
    whole = trials is None or (type(trials) is int and trials > 0)
    if not (whole and all(map(_is_time, (1 if budget is None else budget, limit)))):
        raise ArgumentError(
            f"budget={budget!r}, trials={trials!r} and limit={limit!r}: an end lies in "
            "the future; give numbers of seconds, and an integer number of trials"
        )


def _is_time(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return value > 0


def _checked_choice(seed: int, storage: str | None) -> None:
    if type(seed) is not int or not 0 <= seed < 1 << 32:
        raise ArgumentError(f"seed={seed!r}: it is an integer from 0 to 2^32 - 1")
    if storage is not None and not isinstance(storage, str):
        raise ArgumentError(f"storage={storage!r}: give a URL such as sqlite:///x.db")


def _tuned(run: Run, url: str, study: str, seed: int) -> Report:
    """Tune one operator and record the result.

    Raises:
        TuningError: there is nothing to time, or the worker cannot run.
    """
    if not all(map(math.prod, run.workload.shapes)):
        raise TuningError(
            f"{run.workload} has an array without elements: there is nothing to tune"
        )
    add_kept_records()
    records.forget()
    read_records(record_file(run))  # fail early if the file is broken
    load = Load()
    with run.worker(run.log) as worker:
        space = Space(run.op, run.workload, run.target, worker)
        incumbent, hints, run.stale = existing_records(run, space)
        if incumbent is not None:
            run.incumbent = Entrant(candidate_of(incumbent), incumbent.seconds)
        trials = Trials(url, study, About(run.workload, machine(run)))
        try:
            default = _default(space)
            search = Search(space, trials, seed, hints, run.builders())
            measured = run.measure(search, worker, default)
            _note_reached(run, search, trials, default, measured)
        finally:
            trials.close()
        later = "trials are kept on this machine, and delivered by the next run"
        said = (run.trouble, trials.trouble, later if trials.trouble else "")
        run.trouble = "; ".join(filter(None, (*said, run.doubt)))
        if run.static and default.key in search.known:
            made = static_tuning.report(run, search, default)
            if made.best != default:
                made = store_winner(run, search, made, measured, incumbent)
            return static_tuning.note_measured_record(made, incumbent)
        dropped = withdraw(run, search, incumbent)
        if run.incumbent is not None and search.failure(run.incumbent.candidate):
            run.incumbent = None
    busy = load.trouble(run.workload.threads or 1)  # the worker has ended
    disturbed = "; ".join(filter(None, (busy, worker.unlocked)))
    report = _report(run, search, default, measured, disturbed)
    report = _with_note(report, dropped)
    kept = run.incumbent is not None and not measured.samples
    if report.best.key not in search.known or not report.compared or kept:
        return report
    return store_winner(run, search, report, measured, incumbent)


def _note_reached(
    run: Run, search: Search, trials: Trials, default: Candidate, measured: Finals
) -> None:
    """Note how far the study is, for the order of later runs.

    A run that tries nothing new is at its end, too: its budget allows no more. One that
    did not get to check the default says nothing.
    """
    if default.key not in search.known:
        return
    best = [candidate.key for candidate, _ in search.best(2)]
    compared = bool(measured.samples) or run.static or len(best) == 1
    if measured.samples:
        base = {default.key: [search.known[default.key][1].seconds]}
        samples = {**base, **measured.samples}
        best = [_champion(run, search, default, samples).key]
    used = {default.key, run.incumbent.key if run.incumbent else default.key}
    whole = search.exhausted and compared
    stuck = search.tried == search.earlier and not run.interrupted
    trials.reach(whole=whole or stuck, won=not used.issuperset(best[:1]))


def _default(space: Space) -> Candidate:
    """The default configuration."""
    default = space.default()
    if default.lost:
        said = f"the default of {space.workload} cannot be scheduled: {default.lost}"
        raise TuningError(f"{said}; run it again")
    return default.candidate


def _report(
    run: Run, search: Search, default: Candidate, measured: Finals, disturbed: str
) -> Report:
    """The result, based on this run's times only: a record's are from another day."""
    samples = measured.samples
    base = samples.get(default.key) or _seconds(search, default)
    alone = search.exhausted and len(search.best(2)) == 1  # nothing to compare with
    compared = bool(samples) or (alone and not run.interrupted)
    best, times = default, base
    if samples:
        best = _champion(run, search, default, {default.key: base, **samples})
        times = samples.get(best.key, base)
    elif run.interrupted:
        best, outcome = search.best(1)[0]
        times = [outcome.seconds]
    timing = Timing(tuple(times), 1) if times else None
    said = _note(run, search, default, compared=compared), _demoted(run, best, samples)
    return Report(
        operator=run.op.id,
        workload=run.workload,
        target=machine(run),
        default_seconds=median(base) if base else None,
        best=best,
        seconds=timing.median if timing else None,
        spread=timing.spread if timing else 0.0,
        ratio=paired_ratio(base, times) if samples and best != default else None,
        trials=search.tried,
        earlier=search.earlier,
        counts=dict(search.counts),
        reasons=dict(search.reasons),
        interrupted=run.interrupted,
        spent=dict(run.spent),
        exhausted=search.exhausted,
        note="; ".join(filter(None, said)),
        compared=compared,
        static=run.static,
        disturbed=disturbed,
    )


def _seconds(search: Search, default: Candidate) -> list[float]:
    """The default's time in its trial, if there was time for that."""
    known = search.known.get(default.key)
    return [known[1].seconds] if known else []


def _champion(
    run: Run, search: Search, default: Candidate, samples: finals.Samples
) -> Candidate:
    """The winner of the finals."""
    held = run.incumbent
    known = {candidate.key: candidate for candidate, _ in search.known.values()}
    if held is not None:
        known.setdefault(held.key, held.candidate)
    return known[finals.champion(samples, default.key, held.key if held else None)]


def _demoted(run: Run, best: Candidate, samples: finals.Samples) -> str:
    """That a record was contradicted; else empty."""
    held = run.incumbent
    if held is None or held.key not in samples or best.key == held.key:
        return ""
    return f"{held.candidate}, which was on record, lost and is replaced"


def _note(run: Run, search: Search, default: Candidate, *, compared: bool) -> str:
    space = search.space
    schedules = [
        entry
        for name in space.algorithms
        for entry in building.schedules(space.op, name, space.target)
    ]
    said = "; ".join(filter(None, (run.trouble, space_note(space, schedules))))
    if default.key not in search.known:
        held = (
            f"the default was not checked in {run.elapsed:.1f} s, mostly spent "
            "waiting, and stands: run it again on an idle machine, or with a larger "
            "budget"
        )
        return "; ".join(filter(None, (said, held)))
    if said or compared:
        return said
    more = "run it again"
    if run.budget is not None and not run.interrupted:
        more += f" with a budget of {math.ceil(run.enough(search, default))} s or more"
    if run.incumbent is not None:
        return (
            f"{run.incumbent.candidate} is on record and stays in use; there was no "
            f"time to compare it with anything: {more}"
        )
    fastest = [candidate for candidate, _ in search.best(1)]
    if fastest not in ([], [default]):
        return (
            f"{fastest[0]} was faster in its trial, but there was no time to compare "
            f"it with the default: {more}"
        )
    said = f"there was no time to compare the default with anything: {more}"
    if time.monotonic() > run.ends:  # and nothing else was begun
        said = f"the default alone took {run.elapsed:.1f} s, and {said}"
    return said
