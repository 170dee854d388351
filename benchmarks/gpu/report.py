"""The results table in Markdown, from OUT/works/*.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.steps import replace

OURS = "tensorlang"
_LIMITS = ("copy", "integer units")  # sides that are limits themselves
_HOW = """\
Times are medians of rounds in which all sides took turns; a ratio is the other side's
time over ours, paired by round, with a 95 % interval: above 1, ours is faster. Where a
side does other work (a copy of fewer bytes), its time is scaled to ours. All sides work
on the same normal random numbers, which no cache holds; each side's result is right.
Times are of the GPU's clock for a call alone, or of calls that were queued together
where it says so. "Of the limit": the least time that the limits below allow, over the
time. A time with * was taken while the GPU held its clock back in half of the samples
or more. "Untuned" is ours as it was before the search, in a run of its own."""
_UNITS = {
    "floats": "32-bit multiply-adds: {:.1f} Tflop/s (measured)",
    "integers": "integer operations of both pipes: {:.1f} Top/s (measured)",
    "copy": "copies: {:.2f} TB/s, read and written (measured)",
    "products": "16-bit products: {:.0f} Tflop/s (by the clock and data sheet)",
}


def report(out: Path) -> str:
    """Write OUT/bench.md and OUT/bench.json; return the Markdown."""
    machine = out / "machine.json"
    about = json.loads(machine.read_text()) if machine.exists() else {}
    limits = _read(out / "limits.json")
    rows = list(_rows(out))
    whole = {"machine": about, "limits": limits, "rows": rows}
    replace(out / "bench.json", json.dumps(whole) + "\n")
    said = "\n".join(_lines(about, limits, rows)) + "\n"
    replace(out / "bench.md", said)
    return said


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _rows(out: Path) -> Iterator[dict[str, Any]]:
    """A row per work with its latest measurement and our untuned time."""
    plan = list(_read(out / "plan.json"))
    first = {row["work"]: row for row in _measured(out / "works")}
    tuned = {row["work"]: row for row in _measured(out / "tuned")}
    names = [*plan, *(name for name in {**first, **tuned} if name not in plan)]
    for name in names:
        row = tuned.get(name, first.get(name))
        if row is not None:
            before = first.get(name) if name in tuned else None
            yield row | ({"untuned": before["samples"][OURS]} if before else {})


def _measured(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _lines(
    about: Mapping[str, Any], limits: Mapping[str, Any], rows: list[dict[str, Any]]
) -> list[str]:
    lines = ["# Measured on a GPU", ""]
    lines += [f"* {name}: {value}" for name, value in about.items()]
    lines += [
        f"* limit, {text.format(limits[name] / 1e12)}"
        for name, text in _UNITS.items()
        if limits.get(name)
    ]
    if "state" in limits:
        lines.append(f"* clocks beside the limits: {limits['state']}")
    if any(row["scale"] != 1 for row in rows):
        lines += ["", "A rehearsal at a small size: its times are meaningless."]
    lines += [
        "",
        _HOW,
        "",
        "| work | side | time | GB/s | Gop/s | of limit | over ours | 95 % | wanted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines += [_line(row, limits, side) for side in row["samples"]]
        if "untuned" in row:
            time = _time(median(row["untuned"]))
            lines.append(f"|  | tensorlang, untuned | {time} |  |  |  |  |  |  |")
    lines += ["", *_conditions(rows)]
    return lines


def _conditions(rows: list[dict[str, Any]]) -> Iterator[str]:
    """How works were measured, each way once, and clocks that were held back."""
    ways: dict[str, list[str]] = {}
    for row in rows:
        if "measured" in row:
            device = row["measured"].partition(";")[0]
            way = ", ".join(filter(None, (row.get("how", ""), device)))
            ways.setdefault(way, []).append(row["work"])
    yield from (f"* {way}: {', '.join(works)}" for way, works in ways.items())
    for row in rows:
        for side, clocks in row.get("clocks", {}).items():
            if row["slowed"].get(side):
                yield f"* {row['work']}, {side}: {clocks}"


def _fraction(row: Mapping[str, Any], limits: Mapping[str, Any], side: str) -> float:
    """The fraction of a limit that a side reaches; 0 if unknown or itself a limit."""
    rate, copy = limits.get(row.get("limit", ""), 0), limits.get("copy", 0)
    if row["scale"] != 1 or not copy or side in _LIMITS:
        return 0.0
    least = max(row["operations"] / rate if rate else 0.0, row["moved"] / copy)
    return float(least / median(row["samples"][side]))


def _line(row: Mapping[str, Any], limits: Mapping[str, Any], side: str) -> str:
    seconds = median(row["samples"][side])
    moved, operations = row["moved"] / seconds / 1e9, row["operations"] / seconds / 1e9
    share = _fraction(row, limits, side)
    slow = 2 * row.get("slowed", {}).get(side, 0) >= len(row["samples"][side])
    cells = [
        row["work"] if side == OURS else "",
        f"{side}, queued" if row.get("how") == "queued" and side == OURS else side,
        _time(seconds) + ("*" if slow else ""),
        f"{moved:.0f}" if moved else "",
        f"{operations:.0f}" if operations else "",
        f"{share:.0%}" if share else "",
    ]
    if side == OURS:
        return f"| {' | '.join([*cells, '', '', ''])} |"
    middle, low, high = row["ratios"][side]
    wanted = row["wanted"].get(side)
    mark = "" if wanted is None else f"{wanted:g} {'yes' if low >= wanted else 'no'}"
    return (
        f"| {' | '.join([*cells, f'{middle:.2f}x', f'{low:.2f}-{high:.2f}', mark])} |"
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
