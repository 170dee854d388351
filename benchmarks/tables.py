"""Measurements as markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def markdown(found: Mapping[str, Any]) -> str:
    """The whole page."""
    lines = ["# CPU benchmarks", "", *_head(found["machine"]), ""]
    for run in found["runs"]:
        lines += [*_limits(run), "", *_rows(run), ""]
    if "overheads" in found:
        lines += ["## Overheads", "", "| what | measured |", "| --- | --- |"]
        lines += [
            f"| {name} | {_quantity(name, value)} |"
            for name, value in found["overheads"].items()
        ]
    return "\n".join(lines) + "\n"


def _head(machine: Mapping[str, str]) -> Iterator[str]:
    yield "Written by `make bench`. 2^24 elements unless the row says otherwise; times"
    yield "are medians, ratios are peer over ours, paired by round, with their 95 %"
    yield "interval. A peer with fresh results is compared with ours returning fresh"
    yield "arrays, one that writes into existing arrays with ours doing so. Data are"
    yield "warm, keys are checked. Fractions are of limits measured in the same run:"
    yield "the fill is a kernel that only writes as much past the caches, timed in turn"
    yield "with the others. Before each sample there is a rest of 20 ms, in which the"
    yield "threads of the call before go to sleep."
    yield ""
    yield ", ".join(f"{name} {value}" for name, value in machine.items())


def _limits(run: Mapping[str, Any]) -> Iterator[str]:
    limits = run["limits"]
    yield f"## {run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    yield ""
    yield (
        f"Limits in this run: clock {limits['clock'] / 1e9:.2f} GHz, FMA "
        f"{limits['fma'] / 1e9:.0f} GFLOP/s, integer mix (add, rotate, xor) "
        f"{limits['integer_mix'] / 1e9:.0f} G lane operations/s, fill "
        f"{limits['fill'] / 1e9:.0f} GB/s, non-temporal fill "
        f"{limits['nontemporal_fill'] / 1e9:.0f} GB/s."
    )


def _rows(run: Mapping[str, Any]) -> Iterator[str]:
    heads = ["work", "ms, into existing", "ms, fresh", "of the integer limit"]
    yield "| " + " | ".join((*heads, "of a fill", "peers")) + " |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in run["rows"]:
        seconds, reached = row["seconds"], row["reached"]
        peers = "; ".join(
            _peer(name, ratio, seconds[name]) for name, ratio in row["ratios"].items()
        )
        peers += "".join(f"; {name} not installed" for name in row["missing"])
        yield " | ".join(
            (
                f"| {row['work']}",
                _ms(seconds.get("ours, into existing")),
                _ms(seconds["ours, fresh"]),
                _percent(reached.get("integer limit")),
                _percent(reached["fill"]),
                f"{peers or '-'} |",
            )
        )


def _peer(name: str, ratio: Mapping[str, Any], seconds: float) -> str:
    floor = f", floor {ratio['floor']:g}x" if ratio["floor"] else ""
    return (
        f"{name} {_ms(seconds)} ms: **{ratio['median']:.2f}x** "
        f"[{ratio['low']:.2f}, {ratio['high']:.2f}]{floor}"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _quantity(name: str, value: float) -> str:
    if "ratio" in name:
        return f"{value:.2f}x"
    return f"{value * 1e3:.1f} ms" if value > 1e-4 else f"{value * 1e6:.2f} µs"
