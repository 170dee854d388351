"""Replay: any sampler over a finished search, without hardware.

The sampler suggests one parameter after the other, as in the search, and the measured
configuration that has these values answers. Where none has, the nearest value that was
measured is taken; a search that tried its whole space is replayed exactly.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, log
from typing import TYPE_CHECKING, Any, Final

import optuna

from tensorlang import targets
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.ops import find
from tensorlang.scheduling import Knobs
from tensorlang.scheduling.knobs import Value
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.search.sampler import ModelSampler
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.storage.rows import Row

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

OWN: Final = "model"
_REPEATS: Final = 64  # suggestions in succession that were answered before
_SUFFIX: Final = "Sampler"

MakeSampler = Callable[[int], optuna.samplers.BaseSampler]


@dataclass(slots=True)
class Course:
    """A replayed search.

    Attributes:
        best: The best time after each configuration; infinite while all failed.
        near: How many of these configurations were not suggested themselves, but are
            the nearest that were measured.
    """

    best: list[float] = field(default_factory=list)
    near: int = 0


@dataclass
class Recorded:
    """The rows of a search, which answer suggestions.

    Args:
        rows: One per configuration.
    """

    rows: Sequence[Row]

    @cached_property
    def _distributions(self) -> dict[str, BaseDistribution]:
        texts = {name: t for row in self.rows for name, t in row.distributions.items()}
        read = optuna.distributions.json_to_distribution
        return {name: read(text) for name, text in texts.items()}

    @cached_property
    def _names(self) -> dict[int, list[str]]:
        """The parameters of each row, in the order in which they were asked for."""
        return {id(row): list(row.params) for row in self.rows}

    def answer(self, trial: optuna.Trial) -> tuple[Row, bool]:
        """The row of a trial's suggestions, and whether they were measured."""
        rows, exact, depth = list(self.rows), True, 0
        while True:
            longer = [row for row in rows if len(self._names[id(row)]) > depth]
            if not longer:
                return rows[0], exact
            name = self._names[id(longer[0])][depth]
            rows = [row for row in longer if self._names[id(row)][depth] == name]
            wanted = _suggested(trial, name, self._distributions[name])
            found = self._nearest(name, wanted, {row.params[name] for row in rows})
            exact &= found == wanted
            rows = [row for row in rows if row.params[name] == found]
            depth += 1

    def _nearest(self, name: str, wanted: Value, measured: set[Value]) -> Value:
        if wanted in measured:
            return wanted
        place = _place(self._distributions[name])
        return min(measured, key=lambda value: abs(place(value) - place(wanted)))


def _suggested(trial: optuna.Trial, name: str, domain: BaseDistribution) -> Value:
    if isinstance(domain, optuna.distributions.CategoricalDistribution):
        chosen: Value = trial.suggest_categorical(name, domain.choices)
        return chosen
    low, high, step, scale = domain.low, domain.high, domain.step, domain.log
    return int(trial.suggest_int(name, low, high, step=step, log=scale))


def _place(domain: BaseDistribution) -> Callable[[Any], float]:
    """Where a value lies in its domain, for distances."""
    if isinstance(domain, optuna.distributions.CategoricalDistribution):
        index: Callable[[Any], int] = domain.choices.index
        return index
    return log if domain.log else float


def replay(
    landscape: Landscape, make: MakeSampler, *, trials: int | None = None, seed: int = 0
) -> Course:
    """Run a sampler over a finished search.

    Args:
        landscape: The search.
        make: Makes the sampler from a seed; see `sampler`.
        trials: The number of configurations to try; default: all.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made = make(seed)
        study = optuna.create_study(sampler=made, direction="minimize")
        return _replayed(landscape, made, study, trials or len(landscape.rows))


def _replayed(
    landscape: Landscape,
    made: optuna.samplers.BaseSampler,
    study: optuna.Study,
    trials: int,
) -> Course:
    recorded, course = Recorded(landscape.rows), Course()
    seen: set[str] = set()
    best, repeats = inf, 0
    while len(seen) < min(trials, len(landscape.rows)) and repeats < _REPEATS:
        trial = study.ask()
        row, exact = recorded.answer(trial)
        key, outcome = row.candidate.key, row.outcome
        if isinstance(made, ModelSampler):
            made.learn(row.candidate, outcome)
        if outcome.ok:
            study.tell(trial, outcome.seconds)
            best = min(best, outcome.seconds)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        repeats = 0 if key not in seen else repeats + 1
        if key not in seen:
            seen.add(key)
            course.best.append(best)
            course.near += not exact
    return course


def sampler(name: str, landscape: Landscape) -> MakeSampler:
    """Makes a sampler of a name.

    Args:
        name: `model`, the tuner's own; one of Optuna's, such as `tpe` or `random`; or
            `module:name` of a function or class that takes `seed=`.
        landscape: The search, whose schedule predicts times for `model`.

    Raises:
        ArgumentError: there is none of this name, or the search has no model.
    """
    if name == OWN:
        space = _space(landscape)
        return lambda seed: ModelSampler(space, seed)
    if ":" in name:
        try:
            made = pkgutil.resolve_name(name)
        except Exception as problem:  # a user's module may raise anything
            raise ArgumentError(f"no sampler {name!r}: {problem}") from problem
        return lambda seed: _made(name, made, seed)
    known = {
        each.removesuffix(_SUFFIX).lower(): getattr(optuna.samplers, each)
        for each in optuna.samplers.__all__
        if each.endswith(_SUFFIX) and not each.startswith("Base")
    }
    if name.lower() not in known:
        names = ", ".join([OWN, *sorted(known)])
        raise ArgumentError(f"no sampler {name!r}; there are {names}, and module:name")
    return lambda seed: known[name.lower()](seed=seed)


def _made(name: str, make: Any, seed: int) -> optuna.samplers.BaseSampler:
    """What a user's function or class makes of a seed.

    Raises:
        ArgumentError: it fails, or makes no sampler.
    """
    try:
        made = make(seed=seed)
    except Exception as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise ArgumentError(
            f"no sampler {name!r}: {name}(seed={seed}) fails with {said}"
        ) from problem
    if not isinstance(made, optuna.samplers.BaseSampler):
        raise ArgumentError(
            f"no sampler {name!r}: {name}(seed={seed}) is a {type(made).__name__}, not "
            "one of Optuna's samplers"
        )
    return made


def _space(landscape: Landscape) -> Space:
    """The space of the schedules, if it is the one that was searched."""
    lacking = f"the sampler {OWN!r} needs the schedule's cost model"
    workload = landscape.workload
    if workload is None:
        raise ArgumentError(f"{lacking}, and {landscape.name} has none")
    try:
        here = targets.host().with_threads(workload.threads or targets.host().threads)
        space = Space(find(workload.operator), workload, here)
    except TensorlangError as problem:
        raise ArgumentError(f"{lacking}: {problem}") from None
    default = space.default()
    for algorithm in space.algorithms:
        space.point(algorithm, Knobs())
    if not space.modelled:
        raise ArgumentError(f"{lacking}, and {workload.operator} has none")
    searched = {name for row in landscape.rows for name in row.params}
    if not space.parameters(default).keys() <= searched:
        raise ArgumentError(
            f"{lacking}, and its knobs on this machine are not those of "
            f"{landscape.name} on {landscape.device}"
        )
    return space
