"""Prepare a machine without a package index, using the packages in WHEELS.

The machine's own packages are used as they are; only missing or outdated ones are
installed, into a separate folder, so that torch, JAX and Triton keep the NumPy they
were built for. An outdated one that is not in the folder is used as it is.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
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
    "MarkupSafe": "2",
    "optuna": "4.0",
    "alembic": "1.5",
    "Mako": "1.1",
    "colorlog": "6",
    "sqlalchemy": "1.4.2",
    "tqdm": "4",
    "PyYAML": "5",
    "packaging": "20",
    "typing_extensions": "4",
    "typer": "0.12",
    "click": "8",
    "shellingham": "1.3",
    "rich": "13",
    "pygments": "2",
    "markdown-it-py": "2",
    "mdurl": "0",
    "platformdirs": "4",
    "filelock": "3.13",
    "pytest": "8",
    "pluggy": "1",
    "iniconfig": "1",
    "hypothesis": "6.100",
    "sortedcontainers": "2",
}
# and to open a GPU
OPENERS = {"cuda-bindings": "12.9", "cuda-pathfinder": "1"}


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


def toolkit() -> Path | None:
    """The CUDA toolkit: `CUDA_HOME`, nvcc on the PATH, or the default location."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parents[1]]
    for place in filter(None, [*places, "/usr/local/cuda"]):
        if (Path(place) / "include" / "cuda.h").is_file():
            return Path(place)
    return None


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3]))


def lacking(
    wheels: Path | None = None, needed: Mapping[str, str] = NEEDED
) -> list[str]:
    """Distributions that are missing or outdated here.

    Further ones in a folder of wheels are their dependencies.
    """
    files = wheels.glob("*.whl") if wheels else ()
    brought = {path.name.partition("-")[0]: "0" for path in files}
    listed = {_plain(name) for name in needed}
    more = {
        name: least for name, least in brought.items() if _plain(name) not in listed
    }
    return [
        name
        for name, least in {**needed, **more}.items()
        if version(version_here(name)) < version(least) or not version_here(name)
    ]


def version_here(name: str) -> str:
    """The version of a distribution that is here; else empty."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


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
    """Install missing packages from the folder; return a report line for each.

    Raises:
        RuntimeError: a package is neither installed nor in the folder.
    """
    site.mkdir(parents=True, exist_ok=True)
    wanted = lacking(wheels, needed)
    found = {name: wheel_of(name, wheels) if wheels else None for name in wanted}
    absent = [name for name, path in found.items() if path is None]
    gone = [name for name in absent if not version_here(name)]
    if gone:
        place = f"neither here nor in {wheels}" if wheels else "missing here"
        raise RuntimeError(f"{', '.join(gone)}: {place}; {REGISTRY_HINT}")
    files = {name: str(path) for name, path in found.items() if path}
    if files:
        _pip(site, list(files.values()))
    said = [f"installed {', '.join(files)}"] if files else ["all packages are here"]
    return said + [
        f"{name} {version_here(name)} is older than asked for" for name in absent
    ]


def _pip(site: Path, files: list[str]) -> None:
    options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site)]
    subprocess.run([*command, *files], check=True)  # noqa: S603 - our own arguments
