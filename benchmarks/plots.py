"""Plots: ratios as bars with intervals, and a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.tables import fastest

_PICTURES: Final = ("ratios", "roofline")


def draw(found: Mapping[str, Any], folder: Path) -> list[str]:
    """Write both plots of every run as SVG; return the file names.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "tensorlang"  # reproducible files
    written = []
    for run in found["runs"]:
        for name, picture in zip(_PICTURES, (_ratios, _roofline), strict=True):
            file = f"cpu_{name}_{run['threads']}.svg"
            if picture(run, folder / file):
                written.append(file)
    return written


def _ratios(run: Mapping[str, Any], path: Path) -> bool:
    """A bar per row with a peer: the fastest peer's time over ours."""
    from matplotlib import pyplot as plt

    rows = [(row["work"], least) for row in run["rows"] if (least := fastest(row))]
    if not rows:
        return False
    names = [name for name, _ in rows]
    values = [least["median"] for _, least in rows]
    below = [least["median"] - least["low"] for _, least in rows]
    above = [least["high"] - least["median"] for _, least in rows]
    figure, axes = plt.subplots(figsize=(9, 1 + 0.28 * len(rows)))
    colours = ["tab:blue" if value >= 1 else "tab:orange" for value in values]
    axes.barh(names, values, xerr=(below, above), color=colours, capsize=2)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("fastest peer's time over ours (95 % interval)")
    axes.set_title(f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}")
    _save(figure, path)
    return True


def _roofline(run: Mapping[str, Any], path: Path) -> bool:
    """A point per kernel, under the register and memory limits of the same run."""
    from matplotlib import pyplot as plt

    rows = [row for row in run["rows"] if row["floating"] and row["moved"]]
    if not rows:
        return False
    peak, stream = run["limits"]["fma"], run["limits"]["nontemporal_fill"]
    figure, axes = plt.subplots(figsize=(9, 6))
    intensities = [row["floating"] / row["moved"] for row in rows]
    line = [min(*intensities, peak / stream) / 2, peak / stream, 2 * max(intensities)]
    axes.plot(line, [min(peak, x * stream) / 1e9 for x in line], color="black")
    for number, (row, x) in enumerate(zip(rows, intensities, strict=True), 1):
        seconds = row["seconds"]
        ours = seconds.get("ours, into existing") or seconds["ours, fresh"]
        rate = row["floating"] / ours / 1e9
        axes.plot(x, rate, "o", markersize=4, label=f"{number} {row['work']}")
        axes.annotate(str(number), (x, rate), fontsize=7, xytext=(3, 2),
                      textcoords="offset points")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("floating-point operations a byte that has to move")
    axes.set_ylabel("GFLOP/s")
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_title(f"roofline, {run['threads']} threads")
    _save(figure, path)
    return True


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
