"""Contests: given configurations, checked and timed against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

from tensorlang.errors import ArgumentError, TuningError
from tensorlang.frozen import frozen
from tensorlang.ops.operator import Operator
from tensorlang.ops.pins import ALGORITHM, value_of
from tensorlang.scheduling.knobs import Choice, Domain, Value
from tensorlang.targets import Target
from tensorlang.tuner.measurement.rounds import Ratio, paired_ratio
from tensorlang.tuner.search import finals
from tensorlang.tuner.search.finals import Entrant, Samples
from tensorlang.tuner.search.space import Point, Space
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.workload import Workload

DEFAULT: Final = "default"
WAIT: Final = 60.0  # seconds in all for waiting for the device
_CALL: Final = re.compile(r"\s*([\w.-]+)\((.*)\)\s*", re.DOTALL)


@frozen
class Contest:
    """The result of a contest."""

    samples: Samples  # seconds per call and round, by the candidate's key
    failed: Mapping[str, str]  # why the others were not timed
    # why something was timed while another process may have measured; else empty
    unlocked: str = ""

    def gain(self, slower: Candidate, faster: Candidate) -> Ratio | None:
        """The time of the first over that of the second; None if one has no time."""
        if {slower.key, faster.key} <= self.samples.keys():
            return paired_ratio(self.samples[slower.key], self.samples[faster.key])
        return None


def contest(run: Run, worker: Worker, candidates: Sequence[Candidate]) -> Contest:
    """Check candidates, and time those that are correct, interleaved.

    The run's budget is for waiting for the device, not for the timing.

    Raises:
        TuningError: there is no worker.
    """
    failed, entrants = {}, []
    worker.deadline = run.ends
    for candidate in candidates:
        outcome = worker.attempt(candidate, run.limit)
        if outcome.ok:
            entrants.append(Entrant(candidate, outcome.seconds))
        else:
            failed[candidate.key] = f"{outcome.status}: {outcome.reason}"
    found = finals.run(worker, entrants[:1], entrants[1:], lambda: inf)
    for candidate, outcome in found.failed:
        failed[candidate.key] = f"{outcome.status}: {outcome.reason}"
    return Contest(found.samples, failed, worker.unlocked)


def given(text: str, space: Space) -> Candidate:
    """The configuration of a text, or of the text in a file.

    Args:
        text: `default`, `algorithm(knob=value, ...)` as reports have it, knobs
            alone, or the path of a file that holds one of them; knobs that are left
            out have their defaults.

    Raises:
        ArgumentError: it is none of these, or not a configuration of the space.
    """
    if Path(text).is_file():
        text = " ".join(Path(text).read_text("utf-8").split())
    if text.strip() == DEFAULT:
        return space.default().candidate
    call = _CALL.fullmatch(text)
    settings = _settings(call[2] if call else text)
    algorithm = call[1] if call else settings.pop(ALGORITHM, space.algorithms[0])
    if algorithm not in space.algorithms:
        raise ArgumentError(
            f"{text!r}: {space.op.id} has the algorithms {', '.join(space.algorithms)} "
            "here"
        )
    point = space.given(Candidate(algorithm))
    knobs: dict[str, Value] = {}
    for name, value in settings.items():  # later domains may depend on earlier knobs
        knobs[name] = _value(value, point.domains.get(name))
        point = space.given(Candidate(algorithm, knobs))
    unknown = [name for name in knobs if name not in point.domains]
    if point.outcome is not None or unknown:
        why = point.outcome.reason if point.outcome else f"no knob {unknown[0]}"
        raise ArgumentError(f"{text!r} is no configuration of {space.op.id}: {why}")
    return point.candidate


def _settings(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = map(str.strip, part.partition("="))
        if not (name and equals and value):
            raise ArgumentError(
                f"{text!r} is no configuration; give default, knob=value,... or "
                "algorithm(knob=value, ...) as a report has it"
            )
        found[name] = value
    return found


def _value(text: str, domain: Domain | None) -> Value:
    """The value of a domain that is written like this, if there is one."""
    options = domain.options if isinstance(domain, Choice) else ()
    return next((o for o in options if str(o).lower() == text.lower()), value_of(text))


def compare(
    op: Operator,
    workload: Workload,
    target: Target,
    texts: Sequence[str],
    budget: float | None = WAIT,
) -> tuple[list[Candidate], Contest]:
    """A contest of configurations in the form of `given`.

    Args:
        target: The machine.
        texts: The configurations.
        budget: Seconds for waiting for the device.

    Raises:
        ArgumentError: they are no configurations, or the same.
        TuningError: there is no worker.
    """
    workload = replace(workload, threads=workload.threads or target.threads)
    run = Run(op, workload, target, budget)
    with run.worker() as worker:
        space = Space(op, workload, target, worker)
        candidates = [given(text, space) for text in texts]
        if len({space.given(each).ir for each in candidates}) < len(candidates):
            raise ArgumentError(f"{' and '.join(texts)} are the same code")
        return candidates, contest(run, worker, candidates)


@frozen
class Effect:
    """What a knob's value gives a configuration."""

    knob: str
    default: Value
    value: Value
    # time with the default over the time with the value, all else equal
    gain: Ratio | None = None
    note: str = ""  # why there is no gain; else empty


def effects(
    op: Operator, workload: Workload, target: Target, chosen: Candidate
) -> tuple[Ratio | None, list[Effect]]:
    """What makes a configuration faster than the default, knob by knob.

    Each knob that differs is set back to its default, all others kept. Another
    algorithm is compared with all its knobs at their defaults.

    Returns:
        The default's time over that of the configuration, and each knob's effect.

    Raises:
        TuningError: there is no worker, or the configuration is no longer correct.
    """
    workload = replace(workload, threads=workload.threads or target.threads)
    run = Run(op, workload, target, WAIT)
    with run.worker() as worker:
        return _effects(run, worker, chosen)


def _effects(
    run: Run, worker: Worker, chosen: Candidate
) -> tuple[Ratio | None, list[Effect]]:
    space = Space(run.op, run.workload, run.target, worker)
    default, own = space.default(), space.given(chosen)
    base, chosen = space.given(Candidate(chosen.algorithm)), own.candidate
    changed = [
        k for k, v in chosen.knobs.items() if v != base.candidate.knobs.get(k, v)
    ]
    without = {k: _without(space, chosen, k, base.candidate.knobs[k]) for k in changed}
    timed = {p.candidate.key: p.candidate for p in (default, own, base)}
    timed |= {
        p.candidate.key: p.candidate
        for p in without.values()
        if p.outcome is None and p.ir != own.ir
    }
    found = contest(run, worker, list(timed.values()))
    if chosen.key in found.failed:
        raise TuningError(f"{chosen} is no longer right: {found.failed[chosen.key]}")
    rows = []
    if default.candidate.algorithm != chosen.algorithm:
        gain = found.gain(default.candidate, base.candidate)
        names = default.candidate.algorithm, chosen.algorithm
        rows.append(Effect(ALGORITHM, *names, gain))
    for knob, point in without.items():
        note = point.outcome.reason if point.outcome else ""
        if not note:
            note = "the same code" if point.ir == own.ir else ""
        note = note or found.failed.get(point.candidate.key, "")
        gain = None if note else found.gain(point.candidate, chosen)
        values = base.candidate.knobs[knob], chosen.knobs[knob]
        rows.append(Effect(knob, *values, gain, note))
    return found.gain(default.candidate, chosen), rows


def _without(space: Space, chosen: Candidate, knob: str, default: Value) -> Point:
    return space.given(Candidate(chosen.algorithm, {**chosen.knobs, knob: default}))
