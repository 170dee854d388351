"""`tlang doctor`: what an installation has, what it lacks, and how to get it."""

from __future__ import annotations

import platform
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

import typer

from tensorlang import machine as machines
from tensorlang import record_files, records, targets
from tensorlang.cli import console, document
from tensorlang.cli.quantities import Bytes
from tensorlang.errors import TensorlangError
from tensorlang.machine import store
from tensorlang.runtime import cache
from tensorlang.runtime.cuda import toolchain
from tensorlang.tuner.storage import databases, spool
from tensorlang.version import __version__

app = typer.Typer(add_completion=False)

FAILED: Final = 1
_LITTLE: Final = 1 << 30  # bytes of free disk, below which caches and searches suffer
_PACKAGE: Final = "tensorlang"
_FOR_DEVELOPERS: Final = ("dev", "docs", "browser")
# a requirement of a package: its name, and the extra that it is of
_REQUIREMENT: Final = re.compile(r"([\w.-]+)[^;]*(?:;.*extra == ['\"]([\w-]+)['\"])?")


class Finding(NamedTuple):
    """A part of the installation."""

    part: str  # what it is
    state: str  # `ok`, `missing` (something optional) or `broken`
    said: str  # what was found
    remedy: str = ""  # how to get or mend it; empty if nothing has to be done


@app.command()
def doctor() -> None:
    """Show what this installation has, what it lacks, and how to get it.

    Looks at Python and its packages, the targets and CUDA's compilers, the caches,
    records and searches with their sizes, the disk, and the libraries that tlang bench
    compares with. Exits with 1 if something necessary is broken.

    Examples:
        tlang doctor
        tlang doctor --json
    """
    findings = list(_findings())
    marks = {"ok": "ok", "missing": "--", "broken": "!!"}
    for each in findings:
        line = f"{marks[each.state]}  {each.part:<15}{each.said}"
        console.paragraph(line, hanging=19)
        if each.remedy:
            console.paragraph(f"get it: {each.remedy}", " " * 19)
    document.found("findings", [each._asdict() for each in findings])
    if any(each.state == "broken" for each in findings):
        raise typer.Exit(FAILED)


def _findings() -> Iterator[Finding]:
    yield Finding("tensorlang", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Finding("Python", "ok", f"{platform.python_version()} in {sys.prefix}")
    for extra, names in _requirements().items():
        yield _packages(extra, names)
    yield from map(_target, targets.availability().items())
    lacking = toolchain.missing()
    said = lacking.partition(";")[0] if lacking else toolchain.versions()
    yield Finding("compilers", *_either(lacking, said, toolchain.REMEDY))
    yield _machine()
    yield _cache()
    yield from _records()
    yield from _searches()


def _either(lacking: object, said: str, remedy: str) -> tuple[str, str, str]:
    return ("missing", said, remedy) if lacking else ("ok", said, "")


def _requirements() -> dict[str, list[str]]:
    """The packages that this one declares, by the extra that brings them."""
    found: dict[str, list[str]] = {}
    try:
        declared = metadata.requires(_PACKAGE) or ()
    except metadata.PackageNotFoundError:  # a folder on the path, not installed
        declared = ()
    for text in declared:
        if match := _REQUIREMENT.match(text):
            name, extra = match[1], match[2] or ""
            if extra not in _FOR_DEVELOPERS and name != _PACKAGE:
                found.setdefault(extra, []).append(name)
    return found


def _packages(extra: str, names: Iterable[str]) -> Finding:
    """The packages of an extra; without its name, those that are always needed."""
    part = f"[{extra}]" if extra else "packages"
    versions = {name: _version(name) for name in names}
    lacking = [name for name, version in versions.items() if not version]
    if not lacking:
        said = ", ".join(f"{name} {version}" for name, version in versions.items())
        return Finding(part, "ok", said)
    get = f"pip install '{_PACKAGE}[{extra}]'" if extra else f"pip install {_PACKAGE}"
    said = f"without {', '.join(lacking)}"
    return Finding(part, "missing" if extra else "broken", said, get)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _target(kind: tuple[str, str]) -> Finding:
    name, problem = kind
    if problem:
        return Finding(name, "missing", problem)
    found = targets.get(name)
    return Finding(name, "ok", f"{found.device}, {found.threads} threads")


def _machine() -> Finding:
    path = store.path_of(targets.host().fingerprint)
    if machines.kept() is None:
        remedy = "tlang machine --probe measures it, as the first tlang tune does"
        return Finding(
            "machine", "missing", "rates are published, not measured", remedy
        )
    return Finding("machine", "ok", f"measured, in {path}")


def _cache() -> Finding:
    folder = cache.directory()
    if folder is None:
        remedy = f"set {cache.VARIABLE} to a folder of your own"
        return Finding("kernels", "broken", "are not cached", remedy)
    return _held("kernels", folder, "cached")


def _held(part: str, folder: Path, said: str) -> Finding:
    """A folder with its size, and the room on its disk."""
    free = shutil.disk_usage(_existing(folder)).free
    text = f"{Bytes(_size(folder))} {said} in {folder}, {Bytes(free)} free"
    little = "make room on this disk" if free < _LITTLE else ""
    return Finding(part, "broken" if little else "ok", text, little)


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def _records() -> Iterator[Finding]:
    """Records of this machine, in each layer; files that cannot be read."""
    own = targets.host().fingerprint
    counts: list[str] = []
    for layer, folder in zip(("yours", "shipped"), records.folders(), strict=True):
        count = 0
        for path in records.all_files(folder):
            try:
                count += sum(each.target == own for each in record_files.read(path))
            except TensorlangError as problem:
                remedy = "tlang records verify checks them all"
                yield Finding("records", "broken", str(problem), remedy)
        counts.append(f"{count} {layer}")
    said = f"of this machine: {', '.join(counts)}; yours are in {records.user_folder()}"
    yield Finding("records", "ok", said)


def _searches() -> Iterator[Finding]:
    """The database of searches, and trials that wait to be written to it."""
    place = databases.default_file()
    try:
        if place.exists():
            with closing(
                sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True)
            ) as held:
                held.execute("pragma schema_version")
        yield _held("searches", place, "of trials")
    except sqlite3.Error as problem:
        yield Finding("searches", "broken", f"{place}: {problem}")
    waiting = [path for folder in spool.folders() for path in folder.rglob("*.json*")]
    if waiting:
        said = f"{len(waiting)} files of trials wait in {waiting[0].parent}"
        yield Finding("waiting", "ok", f"{said}, for the next tlang tune")
