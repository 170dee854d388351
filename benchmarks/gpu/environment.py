"""Prepare a machine without a package index, using the packages in WHEELS.

The machine's own packages are used as they are; only missing or outdated ones are
installed, into a separate folder, so that torch, JAX and Triton keep the NumPy they
were built for. An outdated one that is not in the folder is used as it is.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

REGISTRY_HINT = (
    "run `make bench-gpu-pack WHEELS=folder` on a machine with a package index"
)
# distribution -> minimum version, for imports of tensorlang and its tests
NEEDED = {
    "numpy": "1.26",
    "ml_dtypes": "0.5",
    "llvmlite": "0.46",
    "jinja2": "3.1",
    "optuna": "4.0",
    "typer": "0.12",
    "rich": "13",
    "pygments": "2",
    "platformdirs": "4",
    "filelock": "3.13",
    "pytest": "8",
    "hypothesis": "6.100",
}
# and to open a GPU
OPENERS = {"cuda-bindings": "12.9"}


def gpu() -> str:
    """The name of the first GPU; empty if the driver finds none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), 0):
        return ""
    driver.cuDeviceGetName(name, len(name), handle)
    return name.value.decode()


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3]))


def version_here(name: str, site: Path | None = None) -> str:
    """The version of a distribution that is here, or in a folder; else empty."""
    found = _distribution(name, site)
    return found.version if found else ""


def _distribution(name: str, site: Path | None) -> metadata.Distribution | None:
    path = [*([str(site)] if site else []), *sys.path]
    return next(iter(metadata.distributions(name=name, path=path)), None)


def missing(site: Path, needed: Iterable[str]) -> list[str]:
    """What is neither here nor in a folder, of distributions and what they require.

    pytest brings `packaging`; pip's own would keep setuptools out of this process.
    """
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]
    absent, seen, waiting = [], set(), list(needed)
    while waiting:
        name = waiting.pop(0)
        if _plain(name) in seen:
            continue
        seen.add(_plain(name))
        found = _distribution(name, site)
        if found is None:
            absent.append(name)
            continue
        wanted = map(Requirement, found.requires or ())
        waiting += [
            each.name
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return absent


def _plain(name: str) -> str:
    """The normalised name of a distribution."""
    return re.sub(r"[-_.]+", "_", name).lower()


def wheel_of(name: str, folder: Path) -> Path | None:
    """The newest wheel of a distribution in a folder that fits this Python."""
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    fitting = [
        path
        for path in folder.glob("*.whl")
        if _plain(path.name.partition("-")[0]) == _plain(name)
        and any(
            tag in path.name for tag in ("-py3-", "-py2.py3-", f"-{own}-", "-abi3-")
        )
    ]
    return max(fitting, key=lambda path: version(path.name.split("-")[1]), default=None)


def install(
    site: Path, wheels: Path | None, needed: Mapping[str, str] = NEEDED
) -> list[str]:
    """Install what is missing or outdated from the folder; return report lines.

    Raises:
        RuntimeError: a package is neither installed nor in the folder.
    """
    site.mkdir(parents=True, exist_ok=True)
    least = {_plain(name): wanted for name, wanted in needed.items()}
    names = sorted(
        {path.name.partition("-")[0] for path in wheels.glob("*.whl")} if wheels else ()
    )
    chosen = [
        name
        for name in names
        if version(version_here(name)) < version(least.get(_plain(name), "0"))
        or not version_here(name)
    ]
    files = [path for name in chosen if wheels and (path := wheel_of(name, wheels))]
    if files:
        _pip(site, list(map(str, files)))
    if absent := missing(site, needed):
        place = f"neither here nor in {wheels}" if wheels else "missing here"
        raise RuntimeError(f"{', '.join(absent)}: {place}; {REGISTRY_HINT}")
    return [
        f"installed {', '.join(chosen)}" if files else "all packages are here",
        *(
            f"{name} {here} is older than asked for"
            for name, wanted in needed.items()
            if version(here := version_here(name, site)) < version(wanted)
        ),
    ]


def _pip(site: Path, files: list[str]) -> None:
    options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site)]
    subprocess.run([*command, *files], check=True)  # noqa: S603 - our own arguments
