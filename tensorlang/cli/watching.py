"""A tuning run as people watch it: a bar with its end in sight, or plain lines."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from tensorlang.cli import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType

    from tensorlang.tuner import progress as told

_OK: Final = "ok"
_NOTABLE: Final = 0.98  # a line is worth an improvement of two percent


def watcher(
    members: int, budget: float | None, trials: int | None
) -> AbstractContextManager[Callable[[told.Progress], None]]:
    """What listens to a run: a bar on a terminal, else lines."""
    if console.terminal():
        return Bar(Course(members, budget, trials))
    return Plain()


class Course:
    """How far a run is: by the clock where it has a budget, else by its trials."""

    def __init__(self, members: int, budget: float | None, trials: int | None) -> None:
        self._budget, self._trials = budget, trials
        self._members = members
        self._begun = time.monotonic()
        self._tried = 0

    def note(self, said: told.Progress) -> None:
        """Take in a finished trial."""
        self._tried = (said.member - 1) * (self._trials or 0) + said.trials

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._begun

    @property
    def part(self) -> float:
        """The part done, from 0 to 1: of the time or of the trials, what ends first."""
        parts = [0.0]
        if self._budget is not None:
            parts.append(self.elapsed / self._budget)
        if self._trials is not None:
            parts.append(self._tried / (self._trials * self._members))
        return min(1.0, max(parts))

    @property
    def left(self) -> str:
        """The time to its end, in words."""
        part = self.part
        if part <= 0.0:
            return "-:--"
        seconds = round(self.elapsed * (1 - part) / part)
        return f"{seconds // 60}:{seconds % 60:02d}"


class Bar(Progress):
    """A bar that moves with the clock, and what is known so far beside it."""

    def __init__(self, course: Course) -> None:
        super().__init__(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=24),
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
            self._bar, description=f"{place}{said.operator}", found=standing(said)
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, moved to where the clock is."""
        if self.tasks:
            task = self.tasks[0]
            task.completed = self._course.part
            task.fields["left"] = self._course.left
        return super().get_renderables()


class Plain:
    """A line for each operator's first trial and each notable improvement."""

    def __init__(self) -> None:
        self._best: dict[int, float] = {}

    def __enter__(self) -> Any:
        return self.listen

    def __exit__(self, *_: object) -> None:
        return None

    def listen(self, said: told.Progress) -> None:
        """Tell a finished trial, if it is worth a line."""
        before, best = self._best.get(said.member), said.best_seconds
        if best is not None and (before is None or best < before * _NOTABLE):
            self._best[said.member] = best
            console.say(f"{said.operator}: {standing(said)}")


def standing(said: told.Progress) -> str:
    """Where a run stands: trials, best and default, failures by kind."""
    parts = [f"{said.trials} tried"]
    if said.best_seconds is not None:
        parts.append(f"best {console.duration(said.best_seconds)}")
    if said.default_seconds is not None:
        parts.append(f"default {console.duration(said.default_seconds)}")
    failed = {kind: n for kind, n in said.counts.items() if kind != _OK and n}
    parts += [f"{count} {kind}" for kind, count in sorted(failed.items())]
    return ", ".join(parts)
