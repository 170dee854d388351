"""A finished search as data: what each configuration took, kept in a file.

    name.jsonl      a header, then one line per configuration, as the tuner stores it
    name.json       a cache file of Kernel Tuner
    name.t4.json    T4 results, which Kernel Tuner and others write

The name decides what is written; what is read is recognised by its content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tensorlang.atomic_files import write_text
from tensorlang.errors import TensorlangError, TuningError
from tensorlang.frozen import frozen
from tensorlang.scheduling.knobs import Choice, Value
from tensorlang.tuner.landscapes import kernel_tuner as kernel_tuner_files
from tensorlang.tuner.landscapes.kernel_tuner import Table
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.workload import Workload

_FORMAT: Final = "tensorlang search 1"
_ALGORITHM: Final = "algorithm"


@frozen
class Landscape:
    """The configurations of a finished search."""

    name: str  # what was tuned, in words
    device: str  # fingerprint or the name of the machine
    # one trial per configuration, in the order in which they were tried
    rows: tuple[Row, ...]
    workload: Workload | None = None  # workload, if an operator of tensorlang was tuned

    @classmethod
    def of(
        cls,
        name: str,
        device: str,
        rows: Iterable[Row],
        workload: Workload | None = None,
    ) -> Landscape:
        """The last trial of each configuration; TuningError if none was correct."""
        last = {row.candidate.key: row for row in rows}
        if not any(row.outcome.ok for row in last.values()):
            raise TuningError(f"{name}: no configuration of this search was timed")
        return cls(name, device, tuple(last.values()), workload)

    @property
    def best(self) -> Row:
        """The fastest correct configuration."""
        right = (row for row in self.rows if row.outcome.ok)
        return min(right, key=lambda row: row.outcome.seconds)

    def of_best(self) -> Landscape:
        """The configurations of the best one's algorithm."""
        algorithm = self.best.candidate.algorithm
        rows = (row for row in self.rows if row.candidate.algorithm == algorithm)
        return replace(self, rows=tuple(rows))

    def table(self) -> Table:
        """The configurations with the same columns for all, as other tools have it.

        A knob that a configuration does not have is None; where there are several
        algorithms, the algorithm is a column.
        """
        algorithms = {row.candidate.algorithm for row in self.rows}
        several = len(algorithms) > 1
        settings: list[dict[str, Value]] = []
        for row in self.rows:
            algorithm = {_ALGORITHM: row.candidate.algorithm} if several else {}
            settings.append({**algorithm, **row.candidate.knobs})
        names = list(dict.fromkeys(name for each in settings for name in each))
        full = [{name: each.get(name) for name in names} for each in settings]
        columns = {name: _sorted({each[name] for each in full}) for name in names}
        shapes = self.workload.shapes if self.workload else ()
        outcomes = [row.outcome for row in self.rows]
        size = max(shapes, key=len, default=(1,))
        return kernel_tuner_files.Table(
            self.name,
            self.device,
            size,
            columns,
            list(zip(full, outcomes, strict=True)),
            "" if several else min(algorithms),
        )


def _sorted(values: Iterable[Value]) -> tuple[Value, ...]:
    def order(value: Value) -> tuple[str, bool | float | str]:
        return type(value).__name__, 0 if value is None else value

    return tuple(sorted(values, key=order))


def _landscape(table: Table) -> Landscape:
    """The configurations of another tool's kernel, which has one algorithm."""
    rows = []
    algorithm = table.algorithm or table.name
    domains = {name: Choice(values) for name, values in table.columns.items()}
    for settings, outcome in table.rows:
        named = {
            parameter(algorithm, knob, domains[knob]): (domains[knob], value)
            for knob, value in settings.items()
        }
        rows.append(Row.of(Candidate(algorithm, settings), outcome, named))
    return Landscape.of(table.name, table.device, rows)


def write(landscape: Landscape, path: Path) -> None:
    """Write a file in the format of its name; one of the same search is replaced.

    Raises:
        TuningError: the name has none, there is no such folder, or there is a file
            that is not known to be of the same search, as those of other tools.
    """
    if not path.parent.is_dir():
        raise TuningError(f"{path}: there is no folder {path.parent}; make it first")
    if path.name.endswith(".t4.json"):
        text = kernel_tuner_files.to_t4(landscape.table())
    elif path.suffix == ".json":
        text = kernel_tuner_files.to_cache(landscape.table())
    elif path.suffix == ".jsonl":
        text = _lines(landscape)
    else:
        raise TuningError(
            f"{path}: name it .jsonl for rows, .json for a cache file of Kernel Tuner, "
            "or .t4.json for T4 results"
        )
    if path.exists() and not _is_same(path, landscape):
        raise TuningError(
            f"{path} is there, and does not tell that it holds the same search: remove "
            "it first, or give another name"
        )
    write_text(path, text)


def _is_same(path: Path, landscape: Landscape) -> bool:
    """Whether a file holds a search of the same workload and machine."""
    try:
        held = read(path)
    except TuningError:
        return False
    asked = landscape.name, landscape.device, landscape.workload
    return (held.name, held.device, held.workload) == asked


def _lines(landscape: Landscape) -> str:
    workload = landscape.workload.to_json() if landscape.workload else None
    head = {
        "format": _FORMAT,
        "name": landscape.name,
        "device": landscape.device,
        "workload": workload,
    }
    lines = [json.dumps(head), *(row.to_json() for row in landscape.rows)]
    return "\n".join(lines) + "\n"


def read(path: Path) -> Landscape:
    """Read a file of any format; TuningError if it is of none, or empty."""
    try:
        text = path.read_text("utf-8")
        first = text.partition("\n")[0]
        if _FORMAT in first:
            return _from_lines(text)
        return _landscape(kernel_tuner_files.read(text, path.name.partition(".")[0]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise _unreadable(path, problem) from None
    except (RecursionError, OverflowError, TensorlangError) as problem:
        raise _unreadable(path, problem) from None


def _unreadable(path: Path, problem: Exception) -> TuningError:
    said = str(problem)
    if isinstance(problem, OSError):
        said = str(problem.strerror)
    elif isinstance(problem, KeyError):
        said = f"it lacks {problem}"
    elif isinstance(problem, RecursionError):
        said = "it is nested too deeply"
    elif isinstance(problem, (TypeError, AttributeError)):
        said = "a part of it is of another kind than in such files"
    return TuningError(
        f"{path} holds no search that can be read: {said}; it reads what tlang replay "
        "--to wrote, and Kernel Tuner's cache files and T4 results"
    )


def _from_lines(text: str) -> Landscape:
    first, *lines = text.splitlines()
    head: dict[str, Any] = json.loads(first)
    workload = head["workload"] and Workload.from_json(head["workload"])
    rows = [Row.from_json(line) for line in lines]
    return Landscape.of(str(head["name"]), str(head["device"]), rows, workload)
