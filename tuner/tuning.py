"""Tuning an operator: search within a budget, time the finalists, file the winner.

The default configuration is tried first, best-so-far is right at every moment, and only
a configuration that beats the default beyond the noise replaces it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tensorlang import __version__, records, targets
from tensorlang.errors import ArgumentError, TargetError, TuningError
from tensorlang.ops import Operator, select
from tensorlang.record_files import Record, path_of
from tensorlang.tuner.process import Worker
from tensorlang.tuner.progress import Progress, Report
from tensorlang.tuner.protocol import Candidate, Outcome
from tensorlang.tuner.roofline import fraction
from tensorlang.tuner.rounds import Ratio, Timing, paired_ratio
from tensorlang.tuner.search import Search, Space, Suggestion
from tensorlang.tuner.storage import Trials, default_url
from tensorlang.workload import Workload

if TYPE_CHECKING:
    from tensorlang.targets import Target

Listener = Callable[[Progress], None]
CANDIDATE_LIMIT: Final = 30.0
_FINALISTS: Final = 3
_ROUNDS: Final = 21
_FINALS_SHARE: Final = 0.2
_FINALS_MOST: Final = 20.0


def tune(
    op: str | Operator,
    *,
    shapes: Sequence[tuple[int, ...]] | None = None,
    dtypes: tuple[str, ...] | str | None = None,
    budget: float | None = 60.0,
    trials: int | None = None,
    target: str | Target | None = None,
    seed: int = 0,
    storage: str | None = None,
    resume: bool = True,
    listen: Listener | None = None,
    limit: float = CANDIDATE_LIMIT,
    **attributes: Any,
) -> list[Report]:
    """Find the fastest configuration and file it in the user's records.

    Args:
        op: An operator, its name, or the name of a family, tuned member by member.
        shapes: The arrays' shapes; the operator's default where not given.
        dtypes: One element type for all arrays, or one each.
        budget: Seconds for everything; None for as many as the trials take.
        trials: Configurations to try an operator, those of earlier runs included.
        target: What to tune for.
        seed: Of the search.
        storage: An Optuna storage's URL; the user's SQLite file where not given.
        resume: Whether trials of earlier runs count.
        listen: Told after each trial.
        limit: Seconds that one candidate may take.
        attributes: The workload's other attributes.

    Raises:
        OperatorError, TargetError, ArgumentError: nothing to tune by these names.
        RecordError: the storage or the record file cannot be used.
        TuningError: the worker cannot run, or the default itself is not right.
    """
    if budget is None and trials is None:
        raise ArgumentError("tuning needs an end: give a budget, or a number of trials")
    if (budget is not None and budget <= 0) or (trials is not None and trials < 1):
        raise ArgumentError(
            f"budget={budget} and trials={trials}: an end lies in the future"
        )
    members = (op,) if isinstance(op, Operator) else select(op)
    chosen = targets.get(target)
    if chosen.kind != "llvm":
        raise TargetError(f"{chosen.name} kernels cannot be measured here yet")
    begun, reports = time.monotonic(), []
    for number, member in enumerate(members):
        share = None
        if budget is not None:
            left = budget - (time.monotonic() - begun)
            share = max(left, 0.0) / (len(members) - number)
        workload = member.workload(
            *(shapes or ()), dtypes=dtypes, threads=chosen.threads, **attributes
        )
        run = _Run(member, workload, chosen, budget=share, trials=trials, limit=limit)
        run.place = (number + 1, len(members))
        run.listen = listen
        url = storage or default_url()
        reports.append(run.tune(Trials(url, run.study_name(resume=resume)), seed))
        if reports[-1].interrupted:
            break
    return reports


class _Run:
    """One operator and workload being tuned."""

    def __init__(
        self,
        op: Operator,
        workload: Workload,
        target: Target,
        *,
        budget: float | None,
        trials: int | None,
        limit: float,
    ) -> None:
        self._op, self._workload, self._target = op, workload, target
        self._budget, self._trials, self._limit = budget, trials, limit
        self._begun = time.monotonic()
        self._spent: dict[str, float] = defaultdict(float)
        self.place = (1, 1)
        self.listen: Listener | None = None

    def study_name(self, *, resume: bool) -> str:
        """The study that equal runs share."""
        parts = (self._workload, self._target.fingerprint, __version__)
        fresh = "" if resume else f" from {time.time_ns()}"
        return " | ".join(map(str, parts)) + fresh

    def tune(self, trials: Trials, seed: int) -> Report:
        """Search, finals, record."""
        space = Space(self._op, self._workload, self._target)
        search = Search(space, trials, seed)
        default = space.default().candidate
        interrupted = False
        with self._worker() as worker:
            try:
                self._explore(search, worker, default)
                samples = self._finals(search, worker, default)
            except KeyboardInterrupt:
                interrupted = True
                samples = {}
        report = self._report(search, default, samples, interrupted=interrupted)
        return self._filed(report, search)

    def _worker(self) -> Worker:
        name = self._op.id
        if not self._op.module.startswith("tensorlang."):
            name = f"{self._op.module}:{self._op.__name__}"
        return Worker(name, self._workload, self._target.name)

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def _left(self) -> float:
        """Seconds left for exploring: the finals have their share."""
        if self._budget is None:
            return self._limit
        reserve = min(self._budget * _FINALS_SHARE, _FINALS_MOST)
        return self._budget - reserve - self._elapsed

    def _explore(self, search: Search, worker: Worker, default: Candidate) -> None:
        suggestions = search.suggestions()
        while True:
            with self._bookkeeping():
                suggestion = next(suggestions, None)
            if suggestion is None or self._done(search, suggestion, default):
                return
            outcome = suggestion.outcome
            if outcome is None:
                limit = self._limit
                if suggestion.candidate != default:
                    limit = min(limit, max(self._left(), 1.0))
                outcome = worker.attempt(suggestion.candidate, limit)
            for stage, seconds in outcome.spent.items():
                self._spent[stage] += seconds
            with self._bookkeeping():
                search.file(suggestion, outcome)
            self._tell(search, suggestion.candidate, outcome, default)
            if suggestion.candidate == default and not outcome.ok:
                raise TuningError(
                    f"the default configuration of {self._workload} is itself "
                    f"{outcome.status}: {outcome.reason}"
                )

    @contextmanager
    def _bookkeeping(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._spent["bookkeeping"] += time.perf_counter() - start

    def _done(self, search: Search, suggestion: Suggestion, default: Candidate) -> bool:
        if suggestion.candidate == default:
            return False  # something right is wanted, however short the budget
        full = self._trials is not None and len(search.known) >= self._trials
        return full or self._left() <= 0

    def _finals(
        self, search: Search, worker: Worker, default: Candidate
    ) -> dict[str, list[float]]:
        finalists = {c.key: c for c, _ in search.best(_FINALISTS)}
        finalists[default.key] = default
        if len(finalists) == 1:
            known = search.known[default.key][1]
            return {default.key: [known.seconds]}
        left = self._limit
        if self._budget is not None:
            left = max(self._budget - self._elapsed, 2.0)
        return worker.finals(list(finalists.values()), _ROUNDS, left)

    def _report(
        self,
        search: Search,
        default: Candidate,
        samples: dict[str, list[float]],
        *,
        interrupted: bool,
    ) -> Report:
        best, ratio = default, None
        base = samples.get(default.key) or [search.known[default.key][1].seconds]
        for key, times in samples.items():
            against: Ratio = paired_ratio(base, times)
            faster = ratio is None or against.median > ratio.median
            if key != default.key and against.low > 1 and faster:
                best, ratio = search.known[key][0], against
        timing = Timing(tuple(samples.get(best.key, base)), 1)
        return Report(
            self._op.id,
            self._workload,
            self._target.fingerprint,
            median(base),
            best,
            timing.median,
            timing.spread,
            ratio,
            len(search.known),
            dict(search.counts),
            dict(search.reasons),
            None,
            interrupted,
            dict(self._spent),
        )

    def _filed(self, report: Report, search: Search) -> Report:
        """The report, with the winner in the user's records."""
        if report.interrupted:
            return report
        outcome = search.known[report.best.key][1]
        record = Record(
            workload=self._workload,
            target=self._target.fingerprint,
            architecture=records.architecture(self._target),
            algorithm=report.best.algorithm,
            schedule=self._op.family or "generic",
            knobs=tuple(sorted(report.best.knobs.items())),
            ir=outcome.ir,
            generator=__version__,
            seconds=report.seconds,
            spread=report.spread,
            default_seconds=report.default_seconds,
            roofline=fraction(self._op, self._workload, self._target, report.seconds),
            error=outcome.error,
            date=time.strftime("%Y-%m-%d"),
        )
        records.add(record)
        folder = records.user_folder()
        path: Path = path_of(folder, record.target, self._op.id)
        return dataclasses.replace(report, record=path)

    def _tell(
        self,
        search: Search,
        candidate: Candidate,
        outcome: Outcome,
        default: Candidate,
    ) -> None:
        if self.listen is None:
            return
        best = search.best(1)
        base = search.known.get(default.key)
        member, members = self.place
        self.listen(
            Progress(
                self._op.id,
                member,
                members,
                self._workload,
                len(search.known),
                self._trials,
                self._elapsed,
                self._budget,
                best[0][1].seconds if best else None,
                base[1].seconds if base and base[1].ok else None,
                (candidate, outcome),
                dict(search.counts),
            )
        )
