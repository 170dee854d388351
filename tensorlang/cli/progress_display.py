"""Progress of a tuning run: a bar on a terminal, else plain lines."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from tensorlang.cli import console
from tensorlang.cli.quantities import Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType

    from tensorlang.tuner import progress as told

_OK: Final = "ok"
_BAR: Final = 8  # columns, so that the line fits 80
_NOTABLE: Final = 0.98  # print a line for an improvement of at least two percent


def watcher(
    members: int, budget: float | None, trials: int | None
) -> AbstractContextManager[Callable[[told.Progress], None]]:
    """The progress listener of a run: a bar on a terminal, else lines."""
    if console.terminal():
        return Bar(Course(members, budget, trials))
    return Plain(Course(members, budget, trials))


class Course:
    """Progress of a run: by the clock if it has a budget, else by trials."""

    def __init__(self, members: int, budget: float | None, trials: int | None) -> None:
        self._budget, self._trials = budget, trials
        self._members = members
        self._begun = time.monotonic()
        self._tried = 0

    def note(self, said: told.Progress) -> None:
        """Count a finished trial."""
        self._tried = (said.member - 1) * (self._trials or 0) + said.trials

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    @property
    def part(self) -> float:
        """Completed fraction, 0 to 1: of the time or trials, whichever ends first."""
        parts = [0.0]
        if self._budget is not None:
            parts.append(self.elapsed / self._budget)
        if self._trials is not None:
            parts.append(self._tried / (self._trials * self._members))
        return min(1.0, max(parts))

    @property
    def left(self) -> str:
        """Estimated remaining time as m:ss."""
        part = self.part
        if part <= 0.0:
            return "-:--"
        seconds = round(self.elapsed * (1 - part) / part)
        return f"{seconds // 60}:{seconds % 60:02d}"


class Bar(Progress):
    """A bar that advances with the clock, with the results so far."""

    def __init__(self, course: Course) -> None:
        super().__init__(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.percentage:>3.0f} % {task.fields[left]} left"),
            TextColumn("{task.fields[found]}", table_column=Column(ratio=1)),
            console=console.console(),
            expand=True,
        )
        self._course = course
        self._bar: TaskID = self.add_task("", total=1.0, left="-:--", found="")

    def __enter__(self) -> Any:
        super().__enter__()
        return self.listen

    def listen(self, said: told.Progress) -> None:
        """Show a finished trial."""
        self._course.note(said)
        place = f"{said.member}/{said.members} " if said.members > 1 else ""
        self.update(
            self._bar, description=f"{place}{said.operator}", found=status_line(said)
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar at its current position."""
        if self.tasks:
            task = self.tasks[0]
            task.completed = self._course.part
            task.fields["left"] = self._course.left
        return super().get_renderables()


class Plain:
    """A line for each operator's first trial and each notable improvement."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._best: dict[int, float] = {}

    def __enter__(self) -> Any:
        return self.listen

    def __exit__(self, *_: object) -> None:
        return None

    def listen(self, said: told.Progress) -> None:
        """Print a finished trial if it improves notably."""
        self._course.note(said)
        before, best = self._best.get(said.member), said.best_seconds
        if best is not None and (before is None or best < before * _NOTABLE):
            self._best[said.member] = best
            left = f"{self._course.left} left"
            console.say(f"{said.operator}: {status_line(said)}, {left}")


def status_line(said: told.Progress) -> str:
    """Status of a run: trials, best and default times, failures by kind."""
    space = f" of {_short(said.space)}" if said.space else ""
    parts = [f"{said.trials}{space} tried"]
    if said.best_seconds is not None:
        parts.append(f"best {Seconds(said.best_seconds)}")
    if said.default_seconds is not None:
        parts.append(f"default {Seconds(said.default_seconds)}")
    failed = {kind: n for kind, n in said.counts.items() if kind != _OK and n}
    parts += [f"{count} {kind}" for kind, count in sorted(failed.items())]
    return ", ".join(parts)


def _short(count: int) -> str:
    """A number in a few characters: 56, 12k, 1.5M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * size:
            return f"{count // size}{unit}"
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)
