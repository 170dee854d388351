"""Knobs: the choices of a schedule, made while it runs.

    rows = knobs.choice("rows", [4, 6, 8, 12], default=6)

Given a trial (an Optuna trial, or anything with its `suggest_*` methods) knobs take
suggested values; given recorded values they replay them, checked against the declared
domains; otherwise they take the defaults. Domains and values are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias, TypeVar

from tensorlang.errors import ArgumentError, ScheduleError
from tensorlang.frozen import frozen

Value: TypeAlias = bool | int | float | str | None
V = TypeVar("V", bound=Value)


class Trial(Protocol):
    """The part of `optuna.Trial` that knobs use."""

    def suggest_categorical(self, name: str, choices: Sequence[V]) -> V:
        """One of the choices."""

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int, log: bool
    ) -> int:
        """An integer from `low` to `high`."""


@frozen
class Choice:
    """One of a list of values."""

    options: tuple[Value, ...]

    def __contains__(self, value: object) -> bool:
        return any(type(value) is type(o) and value == o for o in self.options)

    def __str__(self) -> str:
        return f"one of {', '.join(map(repr, self.options))}"

    def suggest(self, trial: Trial, name: str) -> Value:
        """Let a trial choose."""
        return trial.suggest_categorical(name, self.options)


@frozen
class Integer:
    """The integers `low, low + step, ...` up to `high`; searched on a log scale."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def __str__(self) -> str:
        steps = "" if self.step == 1 else f" in steps of {self.step}"
        return f"an integer from {self.low} to {self.high}{steps}"

    def suggest(self, trial: Trial, name: str) -> int:
        """Let a trial choose."""
        return trial.suggest_int(
            name, self.low, self.high, step=self.step, log=self.log
        )


@frozen
class Candidate:
    """Values of knobs, as a cost model sees them."""

    knobs: Mapping[str, Value]  # values that it compares, by name
    cycles: float  # predicted time of the slowest thread
    # what it is made of, by name, in cycles; they overlap in part
    terms: Mapping[str, float]
    # where the time is the geometric mean of those of several sizes: each of them, by
    # name; the terms are those of the last
    sizes: Mapping[str, float] = field(default_factory=dict)


Domain: TypeAlias = Choice | Integer
Cost: TypeAlias = Callable[[Mapping[str, Value]], float]
Candidates: TypeAlias = Callable[[], Iterable[Candidate]]


class Knobs:
    """The knobs of one run of a schedule: `Knobs()` gives every default.

    Attributes:
        domains: The domain of each knob used so far, by name.
        values: The value of each knob used so far, by name; JSON-able.
        defaults: The default of each knob used so far, by name.
        costs: The schedule's cost model, if any: a sum of predicted times, in any
            unit, by the values of its knobs; those that are absent have their defaults.
            A search begins with what it predicts to be fastest.
        compared: What was compared for the defaults: functions that predict it again.
        reasons: Why knobs have their defaults where a rule decides, by name.
        absent: Why knobs that may be fixed were not asked for, by name.
    """

    def __init__(
        self,
        *,
        trial: Trial | None = None,
        pinned: Mapping[str, Value] | None = None,
        complete: bool = False,
    ) -> None:
        """Take values from a trial, from pinned values, or from defaults.

        Args:
            trial: Suggests values that are not pinned.
            pinned: Values by name, checked on use.
            complete: Refuse a knob missing from `pinned`.
        """
        self._trial = trial
        self._pinned = dict(pinned or {})
        self._complete = complete
        self.domains: dict[str, Domain] = {}
        self.values: dict[str, Value] = {}
        self.defaults: dict[str, Value] = {}
        self.costs: list[Cost] = []
        self.compared: list[Candidates] = []
        self.reasons: dict[str, str] = {}
        self.absent: dict[str, str] = {}

    @classmethod
    def replay(cls, values: Mapping[str, Value]) -> Knobs:
        """Knobs of a record: each must be present, and in its domain."""
        return cls(pinned=values, complete=True)

    def choice(
        self,
        name: str,
        options: Sequence[V],
        default: V | None = None,
        *,
        why: str = "",
    ) -> V:
        """One of `options`; the first of them by default, for the reason `why`.

        Raises:
            ArgumentError: no options, or a default or replayed value that is none of
                them.
            ScheduleError: the knob was asked for with another domain before.
        """
        if not options:
            raise ArgumentError(f"knob {name!r} has no options")
        chosen: V = self.ask(
            name, Choice(tuple(options)), options[0] if default is None else default
        )
        if why:
            self.reasons[name] = why
        return chosen

    def integer(
        self,
        name: str,
        low: int,
        high: int,
        *,
        step: int = 1,
        log: bool = False,
        default: int | None = None,
    ) -> int:
        """An integer from `low` to `high`, both included; `low` by default.

        Raises:
            ArgumentError: an empty range, a step with `log`, or a default or replayed
                value outside it.
            ScheduleError: the knob was asked for with another domain before.
        """
        if low > high or step < 1 or (log and (step != 1 or low < 1)):
            raise ArgumentError(
                f"knob {name!r}: {low}..{high} in steps of {step} is no range"
                + (" for a log scale" if log else "")
            )
        number: int = self.ask(
            name, Integer(low, high, step, log), low if default is None else default
        )
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        """True or False."""
        chosen: bool = self.ask(name, Choice((False, True)), default)
        return chosen

    def fixes(self, name: str, value: Value) -> bool:
        """Whether a caller fixes a knob to a value, rather than a trial or record."""
        return not self._complete and self._pinned.get(name) == value

    def unasked(self) -> tuple[str, ...]:
        """The pinned names no knob has used: a stale record has some."""
        return tuple(sorted(self._pinned.keys() - self.values.keys()))

    def ask(self, name: str, domain: Domain, default: Value) -> Any:
        """The value of a knob; what `choice`, `integer` and `flag` come to.

        Raises:
            ArgumentError: a default or replayed value that is out of the domain.
            ScheduleError: the knob was asked for with another domain before.
        """
        if name in self.domains:
            if self.domains[name] != domain:
                raise ScheduleError(
                    f"knob {name!r} is asked for as {domain}, and was before as "
                    f"{self.domains[name]}; give the second another name"
                )
            return self.values[name]
        if default not in domain:
            raise ArgumentError(f"knob {name!r}: default {default!r} is not {domain}")
        value = self._value(name, domain, default)
        if value not in domain:
            raise ArgumentError(f"knob {name!r} is {domain}, not {value!r}")
        self.domains[name], self.values[name] = domain, value
        self.defaults[name] = default
        return value

    def _value(self, name: str, domain: Domain, default: Value) -> Value:
        if name in self._pinned:
            return self._pinned[name]
        if self._complete:
            known = ", ".join(sorted(self._pinned)) or "none"
            raise ArgumentError(
                f"knob {name!r} ({domain}) has no value; the recorded knobs: {known}"
            )
        return default if self._trial is None else domain.suggest(self._trial, name)
