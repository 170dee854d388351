"""Side tables: measuring and rendering of all tables but the main one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    batches,
    beside,
    defaults,
    every_operator,
    exports,
    model,
    networks,
    opencl,
    random_shapes,
    searching,
    suite,
)

Page = Callable[[Mapping[str, Any]], Iterator[str]]
# table -> (page heading, renderer of one thread count's rows)
PAGES: Final[dict[str, tuple[str, Page]]] = {
    "batches": (batches.HEAD, batches.page),
    "beside": (beside.HEAD, beside.page),
    "defaults": (defaults.HEAD, defaults.page),
    "exports": (exports.HEAD, exports.page),
    "model": (model.HEAD, model.page),
    "networks": (networks.HEAD, networks.page),
    "opencl": (opencl.HEAD, opencl.page),
    "operators": (every_operator.HEAD, every_operator.page),
    "random": (random_shapes.HEAD, random_shapes.page),
    "searching": (searching.HEAD, searching.page),
    "suite": (suite.HEAD, suite.page),
    "tuned": (suite.TUNED_HEAD, partial(suite.page, least=suite.TUNED_FLOOR)),
    "types": (random_shapes.TYPES_HEAD, random_shapes.page),
}


def measured(  # noqa: PLR0917 - the command line's options
    table: str,
    rounds: int,
    only: str,
    budget: float | None,
    folder: Path,
    threads: int,
    seed: int,
) -> list[dict[str, Any]]:
    """The rows of a table for one thread count, measured in this process."""
    if table == "batches":
        return list(batches.rows(rounds, only))
    if table == "beside":
        return list(beside.rows(rounds, only))
    if table == "exports":
        return list(exports.rows(rounds, only, threads))
    if table == "model":
        return list(model.rows(rounds, only, seed))
    if table == "networks":
        return list(networks.rows(rounds, only, threads))
    if table == "opencl":
        return list(opencl.rows(rounds, only))
    if table == "random":
        return list(random_shapes.rows(rounds, only, seed, threads))
    if table == "types":
        kinds = random_shapes.TYPES
        return list(random_shapes.rows(rounds, only, seed, threads, kinds))
    if table == "suite":
        return list(suite.rows(rounds, only, threads))
    if table == "tuned":
        seconds = suite.BUDGET if budget is None else budget
        return list(suite.rows(rounds, only, threads, seconds))
    if table == "operators":
        return list(every_operator.rows(rounds, only))
    earlier = {row["work"]: row for row in _held(folder, "defaults", threads)}
    if table == "searching":
        seconds = searching.BUDGET if budget is None else budget
        return list(searching.rows(rounds, only, seconds, earlier))
    seconds = defaults.BUDGET if budget is None else budget
    return list(defaults.rows(rounds, only, seconds, earlier))


def merged(
    table: str, folder: Path, runs: list[dict[str, Any]], machine: Mapping[str, str]
) -> dict[str, Any]:
    """New rows, and rows of earlier runs that they do not replace."""
    made = []
    for run in runs:
        drawn = "seed" in run  # other rows in each run
        old = () if drawn else _held(folder, table, run["threads"])
        rows = {_key(row): row for row in old}
        rows |= {_key(row): row for row in run["rows"]}
        made.append(run | {"rows": list(rows.values())})
    return {"machine": dict(machine), "runs": made}


def markdown(table: str, found: Mapping[str, Any]) -> str:
    """The whole page."""
    head, page = PAGES[table]
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    lines = [
        f"# {head}",
        "",
        f"Written by `python -m benchmarks {table}`.",
        "",
        machine,
    ]
    for run in found["runs"]:
        said = f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
        lines += ["", f"## {said}", "", *page(run)]
    return "\n".join(lines) + "\n"


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["work"], row.get("batch", 0)


def _held(folder: Path, table: str, threads: int) -> list[dict[str, Any]]:
    """The rows of the last run with this thread count."""
    path = folder / f"{table}.json"
    if not path.exists():
        return []
    runs = json.loads(path.read_text())["runs"]
    return next((run["rows"] for run in runs if run["threads"] == threads), [])
