"""The picture of an operator's page: its measured kernels under the machine's limits.

It is drawn from the shipped benchmarks, so the same sources give the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tensorlang import templates

_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 620, 30, 350
_COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
_TABLES: Final = ("cpu", "operators")  # the benchmarks, the richer one first
# what is counted, and the limit of it in a run
_KINDS: Final = (
    ("floating", "fma", "floating-point operations"),
    ("integer", "integer_mix", "integer operations"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel: where it stands on both axes, and what it is."""

    threads: int
    work: str
    intensity: float
    rate: float


def roofline(op: str) -> str:
    """The picture as SVG; empty where no benchmark has such an operator."""
    for counted, limit, unit in _KINDS:
        for table in _TABLES:
            if picture := _of(op, _benchmark(table), counted, limit, unit):
                return picture
    return ""


def _of(
    op: str, runs: Sequence[Mapping[str, Any]], counted: str, limit: str, unit: str
) -> str:
    """The picture of one table's kernels; empty where it has none of the operator."""
    points = [
        _point(run["threads"], row, counted)
        for run in runs
        for row in run["rows"]
        if row.get("operator") == op and row.get(counted) and row.get("moved")
    ]
    return _drawn(op, points, runs, limit, unit) if points else ""


@cache
def _benchmark(table: str) -> list[dict[str, Any]]:
    """The runs of a shipped benchmark, one a number of threads; none without it."""
    file = files("tensorlang.results").joinpath("bench", f"{table}.json")
    if not file.is_file():
        return []
    found: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["runs"]
    return found


def _point(threads: int, row: Mapping[str, Any], counted: str) -> Point:
    seconds = row["seconds"]
    ours = seconds.get("ours, into existing") or seconds["ours, fresh"]
    return Point(threads, row["work"], row[counted] / row["moved"], row[counted] / ours)


def _drawn(
    op: str,
    points: Sequence[Point],
    runs: Sequence[Mapping[str, Any]],
    limit: str,
    unit: str,
) -> str:
    used = [run for run in runs if any(p.threads == run["threads"] for p in points)]
    roofs = [(run["limits"][limit], run["limits"]["nontemporal_fill"]) for run in used]
    corners = [peak / stream for peak, stream in roofs]
    x = _Axis.over([p.intensity for p in points] + corners, _LEFT, _RIGHT)
    heights = [p.rate for p in points] + [peak for peak, _ in roofs]
    y = _Axis.over(heights, _BOTTOM, _TOP)
    colours = dict(zip((run["threads"] for run in used), _COLOURS, strict=False))
    return templates.render(
        "roofline.svg.j2",
        title=op,
        unit=unit,
        x_ticks=x.ticks(1.0),
        y_ticks=y.ticks(1e-9),
        roofs=[
            _roof(run["threads"], *roof, x, y, colours[run["threads"]])
            for run, roof in zip(used, roofs, strict=True)
        ],
        points=[
            {
                "x": x.at(p.intensity),
                "y": y.at(p.rate),
                "colour": colours[p.threads],
                "label": f"{p.work}, {_threads(p.threads)}: {p.rate / 1e9:.3g} G/s",
            }
            for p in points
        ],
    )


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _roof(  # noqa: PLR0917 - one line of the picture
    threads: int, peak: float, stream: float, x: _Axis, y: _Axis, colour: str
) -> dict[str, Any]:
    """A limit: memory's slope up to the corner, then the registers' level."""
    corner = peak / stream
    low = max(x.low, y.low / stream)
    line = [(low, low * stream), (corner, peak), (x.high, peak)]
    return {
        "points": " ".join(f"{x.at(a)},{y.at(b)}" for a, b in line),
        "label": f"{_threads(threads)}: {peak / 1e9:.0f} G/s",
        "label_at": y.at(peak) - 5,
        "colour": colour,
    }


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis: whole decades from `low` to `high` between two places."""

    low: float
    high: float
    first: int
    last: int

    @classmethod
    def over(cls, values: Sequence[float], first: int, last: int) -> _Axis:
        low, high = math.log10(min(values)), math.log10(max(values))
        return cls(10.0 ** math.floor(low), 10.0 ** math.ceil(high + 0.05), first, last)

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.first + share * (self.last - self.first), 1)

    def ticks(self, scale: float) -> list[dict[str, Any]]:
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [
            {"at": self.at(10.0**n), "label": f"{10.0**n * scale:g}"}
            for n in range(first, last + 1)
        ]
