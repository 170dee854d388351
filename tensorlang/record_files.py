"""Record files: diffable JSON, validated strictly and written atomically.

    <folder>/<target fingerprint>/<operator>.json

Several tuners may write to one folder: a writer locks the file, reads the current
contents, merges, and moves a complete new file into place.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from tensorlang import lazy
from tensorlang.atomic_files import write_text
from tensorlang.errors import RecordError
from tensorlang.frozen import frozen
from tensorlang.workload import Workload

with lazy.modules(__name__):  # only writers need it
    import filelock


FORMAT: Final = 1
MAX_BYTES: Final = 16 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,127}")
_SECONDS_TO_WAIT: Final = 30
_LARGEST: Final = 1e18
_LONGEST: Final = 400  # characters of a line
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

KnobValue: TypeAlias = bool | int | float | str | None


@frozen
class Record:
    """The best configuration for a workload on a target, and how it was measured."""

    workload: Workload  # tuned workload
    target: str  # fingerprint of the machine it was measured on
    architecture: str  # wider class of that machine
    algorithm: str  # winning algorithm of the operator
    schedule: str  # name of the schedule function
    knobs: tuple[tuple[str, KnobValue], ...]  # knobs' values, by name
    ir: str  # content hash of the scheduled IR; a different one on replay means stale
    generator: str  # version of tensorlang that produced it
    seconds: float  # median time of a call
    spread: float  # half the interquartile range of the samples over their median
    # default configuration's time in the same run: `seconds` times the ratio of the
    # two, paired by round
    default_seconds: float
    roofline: float  # fraction of the machine's limit for this work, 0 if unknown
    error: float  # largest error against the reference, in units of the tolerance
    date: str  # day of the measurement, ISO 8601
    static: bool = False  # chosen by static cost only; never outranks a measured one
    # on a GPU, the device, its driver, its clocks during the measurement, and the
    # compilers: a line for people
    measured: str = ""
    # merged from elsewhere, and not measured here yet: it stays beside the records that
    # were, and is used after them
    unverified: bool = False

    def outranks(self, other: Record) -> bool:
        """Whether it replaces a record of its workload that it was not timed beside.

        Times of different runs say nothing about which code is faster. Of the same
        code the later measurement stays, but not if it is the noisier one.
        """
        if self.static != other.static:
            return other.static
        if self.ir != other.ir:
            return self.static and self.seconds < other.seconds
        noisier = 0 < other.spread < self.spread and self.generator == other.generator
        return self.date >= other.date and not noisier

    def to_json(self) -> dict[str, object]:
        """Plain JSON data; `from_json` reads it back to an equal record."""
        data = {
            **asdict(self),
            "workload": self.workload.to_json(),
            "knobs": dict(self.knobs),
        }
        for optional in ("measured", "unverified"):
            if not data[optional]:
                del data[optional]
        return data

    @classmethod
    def from_json(cls, data: object) -> Record:
        """The record written by `to_json`.

        Raises:
            RecordError: a field is missing, unknown, of another kind or out of range.
        """
        if not isinstance(data, dict):
            raise RecordError(f"a record is a JSON object, not {str(data)[:80]}")
        unknown = data.keys() - set(cls.__dataclass_fields__)
        if unknown:
            raise RecordError(f"a record has no field {', '.join(sorted(unknown))}")
        try:
            fields = {name: read(data[name]) for name, read in _READERS.items()}
            fields["measured"] = _line(data.get("measured", ""))
            fields["unverified"] = _flag(data.get("unverified", False))
        except KeyError as missing:
            raise RecordError(f"a record lacks its field {missing}") from None
        return cls(**fields)

    @property
    def order(self) -> tuple[str, str]:
        """The sort key within files."""
        return json.dumps(self.workload.to_json(), sort_keys=True), self.place[1]

    @property
    def place(self) -> tuple[Workload, str]:
        """Records of one place replace each other: measured ones of a workload do."""
        return self.workload, self.ir if self.unverified else ""


def is_name(value: object) -> bool:
    """Whether a value is a valid name of a machine, an operator or a knob."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _name(value: object) -> str:
    if not is_name(value):
        raise RecordError(f"{str(value)[:80]!r} is not a name")
    return str(value)


def _number(value: Any) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (good and 0 <= value <= _LARGEST):  # a NaN is not
        raise RecordError(f"{str(value)[:80]!r} is not a number from 0 to {_LARGEST:g}")
    return float(value)


def _day(value: object) -> str:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise RecordError(f"{str(value)[:80]!r} is not a day such as 2026-11-21")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise RecordError(f"{str(value)[:80]!r} is neither true nor false")
    return value


def _line(value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise RecordError(f"{str(value)[:80]!r} is not a line of text")
    return value


def _knobs(value: object) -> tuple[tuple[str, KnobValue], ...]:
    if not isinstance(value, dict) or len(value) > 256:
        raise RecordError(f"knobs are an object of names to values: {str(value)[:80]}")
    for name, setting in value.items():
        _name(name)
        if not (setting is None or isinstance(setting, (bool, int, float, str))):
            raise RecordError(f"knob {name} cannot be {str(setting)[:80]!r}")
    return tuple(sorted(value.items()))


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "workload": Workload.from_json,
    **dict.fromkeys(("target", "architecture", "algorithm", "schedule"), _name),
    "knobs": _knobs,
    **dict.fromkeys(("ir", "generator"), _name),
    "date": _day,
    **dict.fromkeys(("seconds", "spread", "default_seconds"), _number),
    **dict.fromkeys(("roofline", "error"), _number),
    "static": _flag,
}


def path_of(folder: Path, target: str, operator: str) -> Path:
    """The file with the records of an operator on a target."""
    return folder / _name(target) / f"{_name(operator)}.json"


def read(path: Path, *, filed: bool = True) -> list[Record]:
    """Read the records of a file; none if it does not exist.

    Args:
        path: The file.
        filed: Whether to check that its records match its place in a record folder.

    Raises:
        RecordError: the file is broken; the message names it and what is wrong.
    """
    try:
        found = _parsed(_bounded(path))
        for record in found if filed else ():
            _filed_right(record, path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise RecordError(
            f"record file {path} cannot be used: {problem}; mend or remove it"
        ) from problem
    return found


def _parsed(text: str) -> list[Record]:
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordError(f"it is not in record format {FORMAT}")
    if not isinstance(data.get("records"), list):
        raise RecordError("it has no list of records")
    return [Record.from_json(item) for item in data["records"]]


def _bounded(path: Path) -> str:
    """The text of a regular file of limited size."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise RecordError("it is not a regular file")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RecordError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return data.decode("utf-8")


def _filed_right(record: Record, path: Path) -> None:
    if path_of(path.parent.parent, record.target, record.workload.operator) != path:
        raise RecordError(
            f"it holds a record of {record.workload.operator} on {record.target}"
        )


def write(path: Path, records: Iterable[Record]) -> None:
    """Replace the file atomically by one with these records, sorted."""
    ordered = sorted(records, key=lambda record: record.order)
    lines = ",\n".join(json.dumps(r.to_json(), sort_keys=True) for r in ordered)
    text = f'{{"format": {FORMAT}, "records": [\n{lines}\n]}}\n'
    write_text(path, text)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, as writers do; RecordError if held for half a minute."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(f"{path}.lock", timeout=_SECONDS_TO_WAIT):
            yield
    except filelock.Timeout:
        raise RecordError(
            f"record file {path} has been locked for {_SECONDS_TO_WAIT} seconds; "
            f"if no tuner is running, remove {path}.lock"
        ) from None


def remove(path: Path, unwanted: Callable[[Record], bool]) -> int:
    """Remove records from a file, and the file with its last one; returns their number.

    Raises:
        RecordError: the file is broken (it is left unchanged), or stays locked.
    """
    if not path.exists():
        return 0
    with locked(path):
        held = read(path)
        kept = [record for record in held if not unwanted(record)]
        if len(kept) == len(held):
            return 0
        if kept:
            write(path, kept)
        else:
            path.unlink()
        return len(held) - len(kept)


def merge(path: Path, records: Iterable[Record], beaten: Collection[str] = ()) -> int:
    """Merge records into a file; returns how many were added or outranked its contents.

    Args:
        path: The file.
        records: The records to add.
        beaten: Code (`Record.ir`) that was measured along with the new records and
            lost: its records are removed, whatever time they state; only measured
            records beat.

    Raises:
        RecordError: the file is broken (it is left unchanged), or stays locked.
    """
    with locked(path):
        before = read(path)
        held = {record.place: record for record in before}
        kept = 0
        for record in records:
            if record.unverified and _known(record, held):
                continue
            old = held.get(record.place)
            fair = old is None or old.static or not record.static
            won = old is None or record.outranks(old) or (fair and old.ir in beaten)
            if won:
                held[record.place] = record
                kept += 1
            stands = won or (old is not None and old.ir == record.ir)
            for ir in (record.ir, *beaten) if stands and not record.unverified else ():
                held.pop((record.workload, ir), None)
        if list(held.values()) != before:
            write(path, held.values())
        return kept


def _known(record: Record, held: Mapping[tuple[Workload, str], Record]) -> bool:
    """Whether a record from elsewhere is held, or its code was measured here."""
    own = held.get((record.workload, ""))
    return held.get(record.place) == record or (own is not None and own.ir == record.ir)
