"""Arguments of `python -m benchmarks.gpu` and their validation."""

from __future__ import annotations

import argparse
import re
import tarfile
import zlib
from pathlib import Path

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parsed(about: str | None) -> argparse.Namespace:
    """Parse the arguments; `about` is the text of --help."""
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=about)
    parser.add_argument("out", type=Path, help="folder for records, tables and logs")
    parser.add_argument("--budget", type=_seconds, default=600, help="for tuning")
    parser.add_argument("--limit", type=_seconds, default=3600, help="for everything")
    parser.add_argument("--wheels", type=Path, help="folder of `make bench-gpu-pack`")
    parser.add_argument("--work", type=Path, help="build folder; default: OUT.work")
    parser.add_argument(
        "--archive", type=Path, help="what to bring back; default: OUT/all.tar.gz"
    )
    parser.add_argument(
        "--from", dest="earlier", type=Path, help="all.tar.gz of a run to resume"
    )
    parser.add_argument("--only", default="", help="works whose name contains this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--rehearse", action="store_true", help="all steps, small and without a GPU"
    )
    given = parser.parse_args()
    given.archive = given.archive or given.out / "all.tar.gz"
    return given


def mistake(given: argparse.Namespace) -> str:
    """The error in the folders and files, before anything is written; else empty."""
    if given.rounds < 1:
        return f"--rounds {given.rounds}: at least one is needed"
    if not given.out.name:
        return f"OUT={given.out} has no name of its own"
    if given.wheels and not given.wheels.is_dir():
        return f"there is no folder {given.wheels}; make bench-gpu-pack makes it"
    if given.earlier and (problem := _unreadable(given.earlier)):
        return f"{given.earlier} is no all.tar.gz of a run ({problem})"
    try:
        for folder in (given.out, given.archive.parent):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"nothing can be kept in {folder} ({error.strerror})"
    return ""


def _unreadable(archive: Path) -> str:
    try:
        with tarfile.open(archive) as held:
            names = held.getnames()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        return str(error).partition("\n")[0]
    return "" if "state.json" in names else "it has no state.json"


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 10m or 1h")
    return float(match[1]) * _UNITS[match[2]]
