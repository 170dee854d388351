"""Measurements as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

_HEAD: Final = """\
Written by `make bench`. Random numbers are 2^24 elements unless the row says otherwise;
times are medians, ratios are peer over ours, paired by round, with their 95 % interval.
A peer with fresh results is compared with ours returning fresh arrays, one that writes
into existing arrays with ours doing so. Data are warm, keys are checked. Limits are
timed in turn with the others: loops of multiply-adds or of Threefry's operations on
registers, kernels that only read or write memory. Before each sample there is a rest of
20 ms, in which the threads of the call before go to sleep. "Fastest" is the fastest of
the peers in the row. Memory of a step of training is the most that is held at one time
of what it computes (activations, their gradients, gradients of weights), as planned and
as PyTorch's profiler counts it for the same step; weights, data, what the optimizer
keeps and what a kernel or a library needs while it runs are not in it."""


def markdown(found: Mapping[str, Any]) -> str:
    """The whole page."""
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    lines = ["# CPU benchmarks", "", *_HEAD.splitlines(), "", machine, ""]
    for run in found["runs"]:
        lines += [*_limits(run), "", *_rows(run), "", *_means(run), ""]
    if "overheads" in found:
        lines += ["## Overheads", "", "| what | measured |", "| --- | --- |"]
        lines += [
            f"| {name} | {_quantity(name, value)} |"
            for name, value in found["overheads"].items()
        ]
    return "\n".join(lines) + "\n"


def fastest(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The smallest ratio of a peer's time over ours; None without peers."""
    ratios = row["ratios"].values()
    return min(ratios, key=lambda ratio: float(ratio["median"]), default=None)


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
    heads = ("work", "ms, into existing", "ms, fresh", "GFLOP/s", "of its limits")
    yield "| " + " | ".join((*heads, "fastest", "peers")) + " |"
    yield "| " + " | ".join("---" for _ in range(len(heads) + 2)) + " |"
    for row in run["rows"]:
        seconds = row["seconds"]
        peers = "; ".join(
            _peer(name, ratio, seconds[name]) for name, ratio in row["ratios"].items()
        )
        peers += "".join(f"; {name}: {why}" for name, why in row["missing"].items())
        peers += _memory(row.get("memory"))
        yield " | ".join(
            (
                f"| {row['work']}",
                _ms(seconds.get("ours, into existing")),
                _ms(seconds.get("ours, fresh")),
                _rate(row),
                "; ".join(_share(*pair) for pair in row["reached"].items()) or "-",
                _least(row),
                f"{peers or '-'} |",
            )
        )


def _memory(held: Mapping[str, int] | None) -> str:
    """Bytes by name, as a sentence."""
    told = ", ".join(f"{name} {size:,} bytes" for name, size in (held or {}).items())
    return f"; memory of a step: {told}" if told else ""


def _means(run: Mapping[str, Any]) -> Iterator[str]:
    """Geometric means of the fastest peer's ratios, by kind with several rows."""
    kinds: dict[str, list[float]] = {}
    for row in run["rows"]:
        least = fastest(row)
        if least is not None and row["floating"]:
            kinds.setdefault(row["work"].split()[0], []).append(least["median"])
    for kind, ratios in kinds.items():
        if len(ratios) > 1:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            yield f"{kind}: {mean:.2f}x the fastest, geometric mean of {len(ratios)}."


def _rate(row: Mapping[str, Any]) -> str:
    seconds = row["seconds"]
    ours = seconds.get("ours, into existing") or seconds.get("ours, fresh")
    return f"{row['floating'] / ours / 1e9:.0f}" if row["floating"] else "-"


def _share(name: str, reached: Mapping[str, Any]) -> str:
    floor = f", floor {100 * reached['floor']:.0f} %" if reached["floor"] else ""
    return (
        f"{100 * reached['median']:.0f} % [{100 * reached['low']:.0f}, "
        f"{100 * reached['high']:.0f}] of {name}{floor}"
    )


def _least(row: Mapping[str, Any]) -> str:
    least = fastest(row)
    if least is None:
        return "-"
    floor = f", floor {row['fastest']:g}x" if row["fastest"] else ""
    return f"{least['median']:.2f}x [{least['low']:.2f}, {least['high']:.2f}]{floor}"


def _peer(name: str, ratio: Mapping[str, Any], seconds: float) -> str:
    floor = f", floor {ratio['floor']:g}x" if ratio["floor"] else ""
    return (
        f"{name} {_ms(seconds)} ms: **{ratio['median']:.2f}x** "
        f"[{ratio['low']:.2f}, {ratio['high']:.2f}]{floor}"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _quantity(name: str, value: float) -> str:
    if "ratio" in name:
        return f"{value:.2f}x"
    return f"{value * 1e3:.1f} ms" if value > 1e-4 else f"{value * 1e6:.2f} µs"
