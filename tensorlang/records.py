"""The best known configurations: records looked up by workload and target.

There are two layers: the shipped records (`results/records`) and the user's, which take
precedence. A lookup falls back as follows, never silently to another kind of device:

    exact workload -> nearest shape on this kind of machine -> same architecture -> none

Measured records come first throughout, then those that were merged from elsewhere and
not measured here (`Record.unverified`), then those chosen by static cost
(`Record.static`).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from tensorlang import lazy, record_files
from tensorlang.errors import RecordError
from tensorlang.frozen import frozen
from tensorlang.record_files import Record
from tensorlang.targets import Target
from tensorlang.workload import Workload

with lazy.modules(__name__):  # keeps importing light
    import platformdirs


FOLDER_VARIABLE: Final = "TENSORLANG_RECORDS"
STATIC: Final = "chosen by static cost, not measured"
UNVERIFIED: Final = "merged from elsewhere, not measured here"
_FARTHEST: Final = 6.0  # sum of |log2| over the extents; farther shapes are not used
_STANDINGS: Final[tuple[Callable[[Record], bool], ...]] = (
    lambda record: not (record.unverified or record.static),
    lambda record: record.unverified and not record.static,
    lambda record: record.static,
)


@frozen
class Choice:
    """A record to use for a workload, and briefly, why this one."""

    record: Record
    reason: str


def user_folder() -> Path:
    """The folder of the user's records; `TENSORLANG_RECORDS` overrides it."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    return platformdirs.user_data_path("tensorlang") / "records"


def shipped_folder() -> Path:
    """The folder of the records shipped with the package."""
    return Path(str(files("tensorlang.results"))) / "records"


def folders() -> tuple[Path, Path]:
    """The layers, highest precedence first."""
    return user_folder(), shipped_folder()


def architecture(target: Target) -> str:
    """The class of machines that may use each other's records."""
    return f"{target.arch}-{target.vector_bits}"


@cache
def _held(path: Path) -> tuple[Record, ...]:
    """A file's records, cached; a broken file is skipped with a warning."""
    try:
        return tuple(record_files.read(path))
    except RecordError as problem:
        warnings.warn(f"{problem} (operators go on without it)", stacklevel=2)
        return ()


def forget() -> None:
    """Reread the files at the next lookup."""
    _held.cache_clear()
    _chosen.cache_clear()


def candidates(workload: Workload, target: Target) -> Iterator[Choice]:
    """The records that may be used, best first, with fallbacks for stale ones.

    A workload without a number of threads gets the target's.
    """
    if not workload.threads:
        workload = replace(workload, threads=target.threads)
    own = _layered(target.fingerprint, workload.operator)
    others = [
        record
        for record in _other_machines(target.fingerprint, workload.operator)
        if record.architecture == architecture(target)
    ]
    for standing in _STANDINGS:
        yield from _nearest(workload, (r for r in own if standing(r)), "")
        yield from _nearest(
            workload,
            (r for r in others if standing(r)),
            f"same architecture, {architecture(target)}",
        )


def lookup(workload: Workload, target: Target) -> tuple[Choice, ...]:
    """`candidates` as a tuple, memoised."""
    return _chosen(workload, target)


@cache
def _chosen(workload: Workload, target: Target) -> tuple[Choice, ...]:
    return tuple(candidates(workload, target))


def _layered(target: str, operator: str) -> list[Record]:
    found: dict[tuple[Workload, str], Record] = {}
    for folder in folders():
        for record in _held(record_files.path_of(folder, target, operator)):
            held = found.setdefault(record.place, record)
            if held.static and not record.static:
                found[record.place] = record
    return list(found.values())


def _other_machines(target: str, operator: str) -> Iterator[Record]:
    seen = {target}
    for folder in folders():
        if not folder.is_dir():
            continue
        for machine in sorted(folder.iterdir()):
            known = machine.name in seen or not record_files.is_name(machine.name)
            if machine.is_dir() and not known:
                seen.add(machine.name)
                yield from _layered(machine.name, operator)


def _nearest(
    workload: Workload, records: Iterable[Record], where: str
) -> Iterator[Choice]:
    ranked = sorted(
        ((distance(workload, r.workload), r.order, r) for r in records),
        key=lambda entry: entry[:2],
    )
    for far, _, record in ranked:
        if far <= _FARTHEST:
            near = "exact" if far == 0 else f"nearest shape {record.workload.shapes}"
            doubt = UNVERIFIED if record.unverified else ""
            said = (near, where, STATIC if record.static else doubt)
            yield Choice(record, "; ".join(filter(None, said)))


def distance(wanted: Workload, known: Workload) -> float:
    """The distance of two workloads: 0 if equal, infinite if not comparable.

    Everything but shapes and threads must match. Shapes count in doublings over all
    extents, a different number of threads as a quarter of one.
    """
    same = (
        wanted.operator == known.operator
        and wanted.dtypes == known.dtypes
        and wanted.attributes == known.attributes
        and [len(s) for s in wanted.shapes] == [len(s) for s in known.shapes]
    )
    if not same:
        return math.inf
    total = 0.0 if wanted.threads == known.threads else 0.25
    for a, b in zip(wanted.shapes, known.shapes, strict=True):
        for m, n in zip(a, b, strict=True):
            total += abs(math.log2((m + 1) / (n + 1)))
    return total


def add(
    record: Record, folder: Path | None = None, beaten: Collection[str] = ()
) -> bool:
    """Add a record to the user's folder; returns whether it outranked the existing one.

    Args:
        folder: Another folder than the user's.
        beaten: Code measured along with it that lost; see `record_files.merge`.

    Raises:
        RecordError: the file is broken, which leaves it unchanged, or locked.
    """
    path = record_files.path_of(
        folder or user_folder(), record.target, record.workload.operator
    )
    kept = record_files.merge(path, [record], beaten) > 0
    forget()
    return kept


def all_files(folder: Path) -> list[Path]:
    """Every record file below a folder, sorted."""
    return sorted(folder.glob("*/*.json")) if folder.is_dir() else []
