"""The roofline plot of an operator's page: measured kernels and machine limits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

_MACHINE: Final = "amd-zen5-m2"  # whose tables have every operator
_TABLES: Final = ("cpu", "operators")  # benchmark tables, the more detailed one first
# operation count, its limit in a run, and its unit
_KINDS: Final = {
    "floating": ("fma", "floating-point operations"),
    "integer": ("integer_mix", "integer operations"),
}


class Point(NamedTuple):
    """A measured kernel: operations per byte, and 10^9 operations per second."""

    run: Mapping[str, Any]
    work: str
    intensity: float
    rate: float


def measured(op: str) -> tuple[str, list[Point]]:
    """The kind of operations counted for an operator, and its benchmarked kernels."""
    for counted in _KINDS:
        for table in _TABLES:
            points = [
                _point(run, row, counted)
                for run in _runs(table)
                for row in run["rows"]
                if row.get("operator") == op and row.get(counted) and row.get("moved")
            ]
            if points:
                return counted, points
    return "", []


@cache
def _runs(table: str) -> list[dict[str, Any]]:
    """The runs of a shipped benchmark, one per thread count; empty without it."""
    file = files("tensorlang.results").joinpath("bench", _MACHINE, f"{table}.json")
    return json.loads(file.read_text("utf-8"))["runs"] if file.is_file() else []


def _point(run: Mapping[str, Any], row: Mapping[str, Any], counted: str) -> Point:
    seconds = row["seconds"]
    ours = seconds.get("ours, into existing") or seconds["ours, fresh"]
    rate = row[counted] / ours / 1e9
    return Point(run, row["work"], row[counted] / row["moved"], rate)


def draw(op: str) -> None:
    """Draw an operator's plot, for Sphinx's `plot` directive."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - only if there is a plot

    counted, points = measured(op)
    limit, unit = _KINDS[counted]
    axes = plt.subplots(figsize=(7, 4))[1]
    runs = {point.run["threads"]: point.run["limits"] for point in points}
    peaks = [limits[limit] / 1e9 for limits in runs.values()]
    streams = [limits["nontemporal_fill"] / 1e9 for limits in runs.values()]
    corners = [peak / stream for peak, stream in zip(peaks, streams, strict=True)]
    low, high = _decades([*corners, *(point.intensity for point in points)])
    for n, (threads, peak, stream) in enumerate(zip(runs, peaks, streams, strict=True)):
        label = f"limits of {threads} thread{'s' if threads > 1 else ''}"
        roof = (low * stream, peak, peak)
        axes.loglog((low, peak / stream, high), roof, color=f"C{n}", label=label)
    for point in points:
        colour = f"C{list(runs).index(point.run['threads'])}"
        axes.plot(point.intensity, point.rate, "o", color=colour)
    axes.set_xlim(low, high)
    axes.set_ylim(_decades([*peaks, *(point.rate for point in points)]))
    axes.set_xlabel(f"{unit} per byte moved")
    axes.set_ylabel(f"10⁹ {unit} per second")
    axes.minorticks_off()  # logarithmic minor ticks dominate drawing time
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.legend()


def _decades(values: Iterable[float]) -> tuple[float, float]:
    """Powers of ten around numbers."""
    logarithms = [math.log10(value) for value in values]
    low, high = math.floor(min(logarithms)), math.ceil(max(logarithms) + 0.05)
    return 10.0**low, 10.0**high
