"""Kernel Tuner's files: caches of measurements, and T4 results.

The cache is what its simulation mode replays (`kernel_tuner.tune_cache`), and T4 the
format of results of https://github.com/odgaard/TuningSchema. Times are milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tensorlang.errors import TuningError
from tensorlang.frozen import frozen
from tensorlang.scheduling.knobs import Value
from tensorlang.tuner.workers.protocol import (
    CRASHED,
    FAILED,
    HUNG,
    ILLEGAL,
    OK,
    WRONG,
    Outcome,
)

_TIME: Final = "time"
_SCHEMA: Final = "1.0.0"
_OWN: Final = "tensorlang"  # in a cache's head, and among T4's metadata
# status, the error in a cache, `invalidity` in T4; the first of equal ones is read
_STATUSES: Final = (
    (OK, "", "correct"),
    (ILLEGAL, "InvalidConfig", "constraints"),
    (FAILED, "CompilationFailedConfig", "compile"),
    (FAILED, "ErrorConfig", "compile"),
    (CRASHED, "RuntimeFailedConfig", "runtime"),
    (HUNG, "RuntimeFailedConfig", "timeout"),
    (WRONG, "RuntimeFailedConfig", "correctness"),
)
_FROM_CACHE: Final = {error: status for status, error, _ in reversed(_STATUSES[1:])}
_FROM_T4: Final = {invalidity: status for status, _, invalidity in reversed(_STATUSES)}
_TO_CACHE: Final = {status: error for status, error, _ in reversed(_STATUSES)}
_TO_T4: Final = {status: invalidity for status, _, invalidity in reversed(_STATUSES)}
# stages of ours, as the cache and T4 name them
_STAGES: Final = (
    ("build", "compile_time", "compilation"),
    ("check", "verification_time", "validation"),
    ("measure", "benchmark_time", "benchmark"),
)

Settings = dict[str, Value]


@frozen
class Table:
    """Configurations of a kernel with the same parameters, and their outcomes."""

    name: str  # kernel
    device: str
    size: tuple[int, ...]  # problem size
    columns: Mapping[str, tuple[Value, ...]]  # values of each parameter
    # parameters of each configuration, and its outcome
    rows: Sequence[tuple[Settings, Outcome]]
    algorithm: str = ""  # of all of them; empty if it is unknown, or a parameter


def read(text: str, name: str) -> Table:
    """A cache file, which may have been left open, or T4 results.

    Args:
        text: The contents.
        name: The kernel, which T4 of other tools does not tell.

    Raises:
        TuningError, ValueError, KeyError, TypeError, AttributeError: neither of them.
    """
    data = _parsed(text)
    if "cache" in data:
        return _from_cache(data)
    if "results" in data:
        return _from_t4(data, name)
    raise ValueError("it has neither a cache nor results")


def _parsed(text: str) -> dict[str, Any]:
    text = text.strip()
    whole = f"{text.removesuffix(',')}}}}}"  # an ended run closes the brackets
    for attempt in (text, whole):
        try:
            return dict(json.loads(attempt))
        except ValueError as problem:
            failure = problem
    raise failure


def _from_cache(data: Mapping[str, Any]) -> Table:
    names = [str(name) for name in data["tune_params_keys"]]
    rows = []
    for entry in data["cache"].values():
        settings = {name: entry[name] for name in names}
        errors = [v for v in entry.values() if isinstance(v, str) and v in _FROM_CACHE]
        spent = {stage: entry.get(key) for stage, key, _ in _STAGES}
        status = _FROM_CACHE[errors[0]] if errors else OK
        time = 0.0 if errors else entry[_TIME]
        rows.append((settings, _outcome(status, time, spent)))
    columns = _columns(rows, {name: data["tune_params"][name] for name in names})
    size = data.get("problem_size", 1)
    sizes = tuple(size) if isinstance(size, list) else (1,)
    algorithm = str(dict(data.get(_OWN) or {}).get("algorithm", ""))
    named = str(data["kernel_name"]), str(data["device_name"])
    return Table(*named, sizes, columns, rows, algorithm)


def _from_t4(data: Mapping[str, Any], name: str) -> Table:
    rows = []
    for entry in data["results"]:
        if entry["invalidity"] not in _FROM_T4:
            raise TuningError(f"{str(entry['invalidity'])[:80]!r} is no invalidity")
        status = _FROM_T4[entry["invalidity"]]
        held = {each["name"]: each["value"] for each in entry.get("measurements", ())}
        spent = {stage: entry["times"].get(key) for stage, _, key in _STAGES}
        time = held[_TIME] if status == OK else 0.0
        rows.append((dict(entry["configuration"]), _outcome(status, time, spent)))
    columns = _columns(rows, {})
    for settings, _ in rows:
        if settings.keys() != columns.keys():
            lacking = ", ".join(columns.keys() - settings.keys())
            raise TuningError(f"configuration {settings} lacks {lacking}")
    own = dict(dict(data.get("metadata") or {}).get(_OWN) or {})
    told = [str(own.get(key, "")) for key in ("name", "device", "algorithm")]
    return Table(told[0] or name, told[1], (1,), columns, rows, told[2])


def _columns(
    rows: Sequence[tuple[Settings, Outcome]], known: Mapping[str, Sequence[Value]]
) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter: the known ones, and those of the rows."""
    found = {name: dict.fromkeys(values) for name, values in known.items()}
    for settings, _ in rows:
        for name, value in settings.items():
            found.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in found.items()}


def _outcome(status: str, milliseconds: object, spent: Mapping[str, Any]) -> Outcome:
    if not isinstance(milliseconds, (int, float)):
        raise TuningError(f"{str(milliseconds)[:80]!r} is not a time in milliseconds")
    stages = {stage: time / 1e3 for stage, time in spent.items() if time}
    reason = "" if status == OK else "as Kernel Tuner has it"
    return Outcome(status, reason, milliseconds / 1e3, spent=stages)


def to_cache(table: Table) -> str:
    """The text of a cache file, for `kernel_tuner.tune_cache`."""
    entries = {}
    for settings, outcome in table.rows:
        found: dict[str, object] = dict(settings)
        if error := _TO_CACHE[outcome.status]:
            found |= {_TIME: error, "__error__": error}
        else:
            found[_TIME] = outcome.seconds * 1e3
        found |= {key: outcome.spent.get(s, 0.0) * 1e3 for s, key, _ in _STAGES}
        entries[",".join(map(str, settings.values()))] = found
    head = {
        "device_name": table.device,
        "kernel_name": table.name,
        "problem_size": list(table.size),
        "tune_params_keys": list(table.columns),
        "tune_params": table.columns,
        "objective": _TIME,
        _OWN: {"algorithm": table.algorithm},
    }
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in entries.items())
    opened = json.dumps(head, indent=0).removesuffix("\n}")
    return f'{opened},\n"cache": {{\n{lines}}}\n}}'  # Kernel Tuner looks for this end


def to_t4(table: Table) -> str:
    """The text of T4 results."""
    results = []
    for settings, outcome in table.rows:
        times: dict[str, object] = {
            key: outcome.spent.get(stage, 0.0) * 1e3 for stage, _, key in _STAGES
        }
        time = {"name": _TIME, "value": outcome.seconds * 1e3, "unit": "ms"}
        results.append(
            {
                "configuration": settings,
                "times": times | {"runtimes": []},
                "invalidity": _TO_T4[outcome.status],
                "correctness": int(outcome.status != WRONG),
                "measurements": [time] if outcome.ok else [],
                "objectives": [_TIME],
            }
        )
    whole = {
        "results": results,
        "schema_version": _SCHEMA,
        "metadata": {
            "timeunit": "milliseconds",
            _OWN: {
                "name": table.name,
                "device": table.device,
                "algorithm": table.algorithm,
            },
        },
    }
    return json.dumps(whole, indent=1) + "\n"
