"""The table of what was measured, from OUT/works/*.json, as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

OURS = "tensorlang"
_HOW = """\
Times are medians of rounds in which all sides took turns; a ratio is the other side's
time over ours, paired by round, with a 95 % interval: above 1, ours is faster. Where a
side does other work (a copy of fewer bytes), its time is scaled to ours. All sides work
on the same normal random numbers, which no cache holds."""


def report(out: Path) -> str:
    """Write OUT/bench.md and OUT/bench.json; the Markdown."""
    machine = out / "machine.json"
    about = json.loads(machine.read_text()) if machine.exists() else {}
    rows = [json.loads(path.read_text()) for path in sorted((out / "works").glob("*"))]
    (out / "bench.json").write_text(json.dumps({"machine": about, "rows": rows}) + "\n")
    said = "\n".join(_lines(about, rows)) + "\n"
    (out / "bench.md").write_text(said)
    return said


def _lines(about: Mapping[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    lines = ["# Measured on a GPU", ""]
    lines += [f"* {name}: {value}" for name, value in about.items()]
    if any(row["scale"] != 1 for row in rows):
        lines += ["", "A dry run in a small size: its times mean nothing."]
    lines += [
        "",
        _HOW,
        "",
        "| work | side | time | GB/s | Gop/s | over ours | 95 % | wanted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines += [_line(row, side) for side in row["samples"]]
    return lines


def _line(row: Mapping[str, Any], side: str) -> str:
    seconds = median(row["samples"][side])
    moved, operations = row["moved"] / seconds / 1e9, row["operations"] / seconds / 1e9
    cells = [
        row["work"] if side == OURS else "",
        side,
        _time(seconds),
        f"{moved:.0f}" if moved else "",
        f"{operations:.0f}" if operations else "",
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
